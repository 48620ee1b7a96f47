"""Source to target: what of the source matters, what must not, and which positions are trained."""

import pytest
import torch

from configs import config_of
from small_models import COORDINATES, ROTARY_SOURCE, SIZES, SOURCES, small, variants
from universal_transformer.errors import UserError
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.context import Kept
from universal_transformer.registry import build
from universal_transformer.typed import replaced

ENDS = {"end": {"end_coordinates": True}, "end learned": {**COORDINATES["learned"], "end_coordinates": True}}
VARIANTS = variants() | ENDS | SOURCES
SOME = dict(list(VARIANTS.items())[::2])
LABELS = torch.tensor([[3, 4, 2], [5, 2, 0], [6, 7, 8]])


def ragged():
    source = torch.randint(2, 9, (3, 5))
    source[1, 3:] = 0
    return source


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS.keys())
@torch.no_grad()
def test_source_padding_on_either_side_changes_nothing(fields):
    model, source = small(**fields), ragged()
    expected, blanks = model(source, LABELS), torch.zeros(3, 2, dtype=torch.long)
    for first, last in ((0, 2), (2, 0), (1, 1)):
        found = model(torch.cat((blanks[:, :first], source, blanks[:, :last]), dim=1), LABELS)
        torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-10)
        assert torch.equal(found.encoder.steps[:, first : first + 5], expected.encoder.steps)
        assert found.encoder.steps.sum() == expected.encoder.steps.sum()
        torch.testing.assert_close(found.ponder_cost, expected.ponder_cost)
        torch.testing.assert_close(found.mean_steps, expected.mean_steps)


@pytest.mark.parametrize("fields", SOME.values(), ids=SOME.keys())
@torch.no_grad()
def test_rows_do_not_know_of_each_other(fields):
    model, source = small(**fields), ragged()
    together, order = model(source, LABELS), torch.tensor([1, 2, 0])
    shuffled = model(source[order], LABELS[order])
    torch.testing.assert_close(shuffled.logits, together.logits[order], rtol=0, atol=1e-10)
    alone = model(source[1:2, :3], LABELS[1:2, :2])
    torch.testing.assert_close(alone.logits[0], together.logits[1, :2], rtol=0, atol=1e-10)


@pytest.mark.claim("US 1", "US 14")
@pytest.mark.parametrize("fields", SOME.values(), ids=SOME.keys())
@torch.no_grad()
def test_every_source_token_and_its_place_matter(fields):
    model = small(**fields)
    source = torch.tensor([[3, 4, 5, 6]])
    base = model(source, LABELS[:1]).logits
    for place in range(4):
        changed = source.clone()
        changed[0, place] = 8
        assert bool((model(changed, LABELS[:1]).logits - base).abs().amax(dim=2).gt(1e-8).all())
    moved = model(source.flip(1), LABELS[:1]).logits
    blind = fields.get("position_coordinates") == "none" and "transition" not in fields
    assert bool((moved - base).abs().max() > 1e-8) != blind


@pytest.mark.parametrize("offsets", ["random", "scattered", "spread"])
@torch.no_grad()
def test_positions_are_drawn_while_training_and_only_then(offsets):
    model, source = small(position_offsets=offsets, dropout=0.0), ragged()
    plain = small(dropout=0.0)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(source, LABELS).logits, plain(source, LABELS).logits)
    model.train()
    first, second = model(source, LABELS).logits, model(source, LABELS).logits
    assert bool((first - second).abs().max() > 1e-8)


@pytest.mark.parametrize("offsets", ["random", "scattered", "spread"])
def test_source_and_target_share_the_draw(offsets):
    model = small(position_offsets=offsets)
    rows = torch.full((4, 5), 3), torch.full((4, 3), 3)
    draws = [model.train().positions({"source": rows[0], "target": rows[1]}) for _ in range(20)]
    for source, target in draws:
        assert source.shape == (4, 5)
        assert target.shape == (4, 3)
        assert int(source.max()) < 40
    assert all(torch.equal(source[:, :3], target) for source, target in draws)
    assert not all(torch.equal(source, draws[0][0]) for source, _ in draws)


def test_a_sequence_longer_than_the_positions_to_draw_from_is_refused():
    model = small(position_offsets="random", max_positions=4).train()
    with pytest.raises(UserError, match=r"5 positions .*coordinates\.max_positions=4"):
        model(ragged(), LABELS)


def test_dropout_only_while_training():
    model, source = small(dropout=0.5), ragged()
    with torch.no_grad():
        assert torch.equal(model(source, LABELS).logits, model(source, LABELS).logits)
        model.train()
        assert not torch.equal(model(source, LABELS).logits, model(source, LABELS).logits)


@pytest.mark.claim("US FIG. 2")
@torch.no_grad()
def test_depth_is_chosen_at_run_time_on_both_sides():
    model, source = small(halting=True, max_steps=4), ragged()
    usual = model(source, LABELS)
    capped = model(source, LABELS, max_steps=1)
    for trace, other in ((usual.encoder, capped.encoder), (usual.decoder, capped.decoder)):
        assert torch.equal(other.steps, trace.steps.clamp(max=1))
    sooner = model(source, LABELS, halting_threshold=0.01)
    assert float(sooner.mean_steps) == 1.0
    assert float(sooner.ponder_cost) == 4.0  # N + R = 1 + 1 on each side


@pytest.mark.claim("US 9", "US 22")
def test_a_side_has_one_self_attention_whatever_its_depth():
    for max_steps in (1, 3, 50):
        model = small(max_steps=max_steps)
        for side, cross in ((model.source, 0), (model.target, 1)):
            parts = list(side.recurrence.modules())
            assert sum(isinstance(part, SelfAttention) for part in parts) == 1
            assert sum(isinstance(part, CrossAttention) for part in parts) == cross
    sizes = {sum(p.numel() for p in small(max_steps=steps).parameters()) for steps in (1, 3, 50)}
    assert len(sizes) == 1


def test_tables_that_are_too_short_for_the_source_are_refused():
    model = small(position_coordinates="learned", max_positions=4)
    with pytest.raises(UserError, match="position 5 lies beyond the learned table of 4 positions"):
        model(ragged(), LABELS)


@torch.no_grad()
def test_attention_is_kept_on_request_and_costs_nothing_else():
    model, source = small(halting=True), ragged()
    kept, plain = model(source, LABELS, keep=Kept(attention=True)), model(source, LABELS)
    torch.testing.assert_close(kept.logits, plain.logits, rtol=0, atol=1e-10)
    assert plain.encoder.self_attention is None
    applications = kept.decoder.probability.shape[0]
    assert kept.decoder.self_attention.shape == (applications, 3, 2, 3, 3)
    assert kept.decoder.cross_attention.shape == (applications, 3, 2, 3, 5)
    assert kept.encoder.cross_attention is None
    torch.testing.assert_close(
        kept.decoder.cross_attention.sum(-1), torch.ones(applications, 3, 2, 3, dtype=torch.float64)
    )
    assert bool((kept.decoder.cross_attention[:, 1, :, :, 3:] == 0.0).all())


def test_two_vocabularies_have_a_table_each():
    model = small(target_vocabulary_size=12)
    with torch.no_grad():
        assert model(torch.tensor([[8]]), torch.tensor([[11]])).logits.shape == (1, 1, 12)
    with pytest.raises(UserError, match="token id 9: allowed are 0 to 8"):
        model(torch.tensor([[9]]), torch.tensor([[11]]))


def test_encoder_and_decoder_can_differ_in_steps_and_halting():
    torch.manual_seed(0)
    config = replaced(config_of(**SIZES), {"depth.decoder_max_steps": 5, "halting.side": "encoder"})
    model, source = build(config).eval(), ragged()
    output = model(source, torch.randint(2, 9, (len(source), 4)))
    assert (output.decoder.steps == 5).all()
    assert int(output.encoder.steps.max()) <= 3
    assert output.ponder_cost == output.encoder.ponder_cost > 0
    assert output.decoder.ponder_cost == 0
    other = build(replaced(config, {"halting.side": "decoder", "step.tied": False}))
    assert [len(side.recurrence.blocks) for side in (other.source, other.target)] == [3, 5]
    assert not other.source.recurrence.halting.stops
    assert other.target.recurrence.halting.stops


def test_facts_are_for_classifiers():
    with pytest.raises(UserError, match=r"inputs\.kind='facts': architecture must be"):
        small(inputs="facts")


@pytest.mark.parametrize("fields", [{}, {"halting": True}, {"end_coordinates": True}], ids=["fixed", "halting", "ends"])
@torch.no_grad()
def test_distance_positions_are_rotary_ones_for_the_source_too_with_a_sink(fields):
    named = small(position_coordinates="distance", **fields)
    spelled = small(**ROTARY_SOURCE, source_sink=True, **fields)
    spelled.load_state_dict(named.state_dict())
    source = ragged()
    assert torch.equal(named(source, LABELS).logits, spelled(source, LABELS).logits)
    assert named.config != spelled.config


@pytest.mark.parametrize("architecture", ["language_model", "classifier"])
@torch.no_grad()
def test_distance_positions_of_a_model_without_two_sides_are_rotary_ones(architecture):
    fields = {"architecture": architecture, "num_classes": 9 if architecture == "classifier" else None}
    named, rotary = (small(**fields, position_coordinates=position) for position in ("distance", "rotary"))
    rotary.load_state_dict(named.state_dict())
    assert torch.equal(named(LABELS).logits, rotary(LABELS).logits)
