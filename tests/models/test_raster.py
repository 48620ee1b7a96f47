"""Pictures that are written pixel by pixel: cached = uncached, what a pixel sees, and where generation ends."""

import itertools

import pytest
import torch

from small_models import small
from universal_transformer.decoding import beam_search, generate, generate_stream
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.call import Sampling
from universal_transformer.models.components import DepthConfig, GenerationConfig, OutputsConfig, VocabularyConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.step_config import HaltingConfig, Sizes, StepConfig
from universal_transformer.registry import build
from universal_transformer.typed import replaced

ROWS, COLUMNS, LEVELS = 4, 3, 5
FIRST = 3
"""The id of intensity 0; smaller ones are padding, start and end."""


PRINTED = {"step.residual": "state", "attention.scale": "width"}


def model_of(*, halting="none", seed=0, **changes):
    torch.manual_seed(seed)
    config = ModelConfig(
        vocabulary=VocabularyConfig(size=9, target_size=FIRST + LEVELS),
        outputs=OutputsConfig(kind="raster", columns=COLUMNS),
        sizes=Sizes(width=8, filter_width=12, num_heads=2),
        depth=DepthConfig(max_steps=3),
        step=StepConfig(dropout=0.0),
        halting=HaltingConfig(side=halting, bias=0.0),
        generation=GenerationConfig(max_new_tokens=ROWS * COLUMNS, fixed_length=True),
    )
    return build(replaced(config, changes)).eval()


SOURCE = torch.tensor([[4, 5, 2, 0], [6, 7, 8, 2]])


def pictures(rows=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(FIRST, FIRST + LEVELS, (rows, ROWS * COLUMNS), generator=generator)


@pytest.mark.claim("JP 5")
@pytest.mark.parametrize("halting", ["none", "both"])
@pytest.mark.parametrize(("parts", "changes"), [([1] * 12, {}), ([4, 5, 3], {}), ([12], {}), ([1] * 12, PRINTED)])
@torch.no_grad()
def test_pixels_one_by_one_have_the_logits_of_the_whole_picture(halting, parts, changes):
    model, target = model_of(halting=halting, **changes), pictures()
    whole = model(SOURCE, target).logits
    fed = torch.cat((torch.full((2, 1), model.config.start_id), target[:, :-1]), dim=1)
    state = model.start(SOURCE, capacity=ROWS * COLUMNS)
    found = [model.target.advance(part, state) for part in torch.split(fed, parts, dim=1)]
    torch.testing.assert_close(torch.cat(found, dim=1), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.claim("JP 1", "JP 10")
@torch.no_grad()
def test_the_input_of_a_pixel_is_the_pixel_before_and_the_pixel_above():
    model, target = model_of(), pictures(rows=1)
    embedding, scale = model.target.embedding, 8**0.5
    ids = torch.cat((torch.tensor([[model.config.start_id]]), target[:, :-1]), dim=1)
    found = embedding(ids)[0]
    for place in range(ROWS * COLUMNS):
        expected = scale * embedding.weight[ids[0, place]]
        if place >= COLUMNS:
            expected = expected + scale * embedding.above[target[0, place - COLUMNS]]
        torch.testing.assert_close(found[place], expected)


@pytest.mark.parametrize("halting", ["none", "both"])
def test_a_picture_has_all_its_pixels_and_no_end(halting):
    model = model_of(halting=halting)
    with torch.no_grad():  # a model that would like to end
        model.target.bias[model.config.vocabulary.end_id] = 50.0
    for sampling in (Sampling(), Sampling(temperature=1.0)):
        for one in generate(model, SOURCE, DecodingOptions(sampling=sampling)):
            assert len(one.tokens) == len(one.token_scores) == ROWS * COLUMNS
            assert min(one.tokens) >= FIRST
    for best in beam_search(model, SOURCE, DecodingOptions(beams=2)):
        assert [len(one.tokens) for one in best] == [ROWS * COLUMNS]


@pytest.mark.claim("JP 1")
@torch.no_grad()
def test_the_greedy_picture_is_that_of_a_naive_loop():
    model = model_of(seed=1)
    for row in range(2):
        source = SOURCE[row : row + 1]
        pixels: list[int] = []
        for _ in range(ROWS * COLUMNS):
            target = torch.tensor([[*pixels, FIRST]])
            logits = model(source, target).logits[0, -1].clone()
            logits[:FIRST] = -torch.inf
            pixels.append(int(logits.argmax()))
        assert generate(model, source)[0].tokens == pixels


@torch.no_grad()
def test_the_likeliest_of_all_pictures_is_found_by_a_wide_beam():
    model = model_of(seed=2)
    source, length = SOURCE[:1], 3
    scores = {}
    for pixels in itertools.product(range(FIRST, FIRST + LEVELS), repeat=length):
        log = model(source, torch.tensor([pixels])).logits[0].log_softmax(-1)
        scores[pixels] = float(log[range(length), pixels].sum())
    best = max(scores, key=scores.__getitem__)
    ((found,),) = beam_search(model, source, DecodingOptions(beams=LEVELS**length, max_new_tokens=length))
    assert tuple(found.tokens) == best
    assert found.score == pytest.approx(scores[best], abs=1e-4)


def test_requests_of_pictures_are_not_served_as_a_stream():
    with pytest.raises(UserError, match="use generate"):
        generate_stream(model_of(halting="both"), [(0, [4, 2])], capacity=ROWS * COLUMNS)


@pytest.mark.claim("JP 1", "JP 2", "JP 3")
@torch.no_grad()
def test_another_text_gives_other_intensities():
    model, target = model_of(), pictures(rows=1)
    first, second = (model(SOURCE[row : row + 1], target).logits for row in (0, 1))
    assert not torch.allclose(first, second)


def test_the_number_of_pixels_does_not_follow_from_the_text():
    assert GenerationConfig(max_new_tokens=12, fixed_length=True).limit(100) == 12
    assert small().config.generation.limit(100) == 210
