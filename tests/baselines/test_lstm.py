"""The LSTM baselines against loops that know of no batch, no padding and no kernel."""

import dataclasses
from functools import partial

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.func import functional_call

from small_baselines import small_lstm, small_neural_gpu
from training import tiny
from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.decoding import Sampling, beam_search, generate
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.call import DepthOptions
from universal_transformer.models.components import VocabularyConfig
from universal_transformer.models.universal import Classifier
from universal_transformer.registry import build, load_pretrained
from universal_transformer.rules import Exit
from universal_transformer.runs.trainer import train

SOURCE = torch.tensor([[3, 4, 5, 6, 2], [7, 2, 0, 0, 0], [8, 8, 2, 0, 0], [5, 6, 7, 2, 0]])
TARGET = torch.tensor([[4, 4, 2, 0], [3, 2, 0, 0], [8, 7, 6, 2], [2, 0, 0, 0]])
PROMPTS = [[1, 3, 4], [1], [1, 8, 8, 8, 5], [1, 5]]
KINDS = {
    "two layers": {},
    "one layer": {"num_layers": 1, "target_vocabulary_size": 9},
}
CLASSIFIERS = {
    "tokens": {},
    "mean": {"pooling": "mean"},
    "facts": {"inputs": "facts", "max_fact_words": 2},
}


def cell(lstm, layer, x, h, c):
    """One step of one layer, gate by gate (Hochreiter and Schmidhuber 1997, with forget gates)."""
    weights = [getattr(lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    gates = weights[0] @ x + weights[2] + weights[1] @ h + weights[3]
    i, f, g, o = gates.chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def read(layers, xs, memory):
    """All layers over a list of vectors; ``memory`` is a list of (h, c), one a layer."""
    after = []
    for layer in range(layers.lstm.num_layers):
        h, c = memory[layer]
        outputs = []
        for x in xs:
            h, c = cell(layers.lstm, layer, x, h, c)
            outputs.append(h)
        after.append((h, c))
        xs = outputs
    return xs, after


def embedded(table, token):
    return table.weight[token] * table.weight.shape[1] ** 0.5


def zeros(layers):
    nothing = torch.zeros(layers.lstm.hidden_size, dtype=torch.float64)
    return [(nothing, nothing)] * layers.lstm.num_layers


def oracle(model, source, target):
    """Logits of one sequence pair, no position of which is padding."""
    reader, writer = model.source, model.target
    states, memory = read(reader.layers, [embedded(reader.input, t) for t in source], zeros(reader.layers))
    shifted = [model.config.start_id, *target[:-1]]
    hs, _ = read(writer.layers, [embedded(writer.embedding, t) for t in shifted], memory)
    logits = []
    for h in hs:
        asked = writer.score.weight @ h
        scores = torch.stack([torch.exp(asked @ s) for s in states])
        context = sum(score / scores.sum() * s for score, s in zip(scores, states, strict=True))
        g = torch.tanh(writer.combine.weight @ torch.cat((context, h)))
        logits.append(writer.embedding.weight @ g + writer.bias)
    return torch.stack(logits)


def real(row):
    return [token for token in row.tolist() if token]


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_encoder_and_decoder_are_the_equations(kind):
    model = small_lstm(**KINDS[kind])
    logits = model(SOURCE, TARGET).logits
    for row, (source, target) in enumerate(zip(SOURCE, TARGET, strict=True)):
        expected = oracle(model, real(source), real(target))
        torch.testing.assert_close(logits[row, : len(expected)], expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_a_language_model_is_a_plain_lstm():
    model = small_lstm(architecture="language_model")
    writer = model.target
    logits = model(TARGET).logits
    for row, target in enumerate(map(real, TARGET)):
        xs = [embedded(writer.embedding, token) for token in [1, *target[:-1]]]
        states, _ = read(writer.layers, xs, zeros(writer.layers))
        expected = torch.stack(states) @ writer.embedding.weight.T + writer.bias
        torch.testing.assert_close(logits[row, : len(target)], expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_decoding_is_teacher_forcing_token_by_token(kind):
    model = small_lstm(**KINDS[kind])
    expected = model(SOURCE, TARGET).logits
    state = model.start(SOURCE, capacity=4)
    shifted = torch.cat((torch.ones(4, 1, dtype=torch.long), TARGET[:, :-1]), dim=1)
    one_by_one = torch.cat([model.target.advance(shifted[:, i : i + 1], state) for i in range(4)], dim=1)
    kept = TARGET != 0
    torch.testing.assert_close(one_by_one[kept], expected[kept], rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_neither_padding_nor_the_order_of_rows_changes_a_row(kind):
    model = small_lstm(**KINDS[kind])
    expected = model(SOURCE, TARGET).logits
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(SOURCE[order], TARGET[order]).logits, expected[order])
    left = torch.tensor([[0] * (5 - len(real(row))) + real(row) for row in SOURCE])
    torch.testing.assert_close(model(left, TARGET).logits, expected)
    shoved = torch.tensor([[0] * (4 - len(real(row))) + real(row) for row in TARGET])
    moved = model(SOURCE, shoved).logits
    for row, target in enumerate(map(real, TARGET)):
        assert torch.allclose(moved[row, 4 - len(target) :], expected[row, : len(target)])
        alone = model(SOURCE[row : row + 1, : len(real(SOURCE[row]))], torch.tensor([target])).logits
        assert torch.allclose(alone[0], expected[row, : len(target)])
    nothing = torch.zeros(1, 3, dtype=torch.long)
    assert torch.isfinite(model(nothing, TARGET[:1]).logits).all()


@torch.no_grad()
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_padding_changes_no_class(name):
    model = small_lstm(architecture="classifier", num_classes=3, **CLASSIFIERS[name])
    rows = SOURCE.unsqueeze(-1).repeat(1, 1, 2) if name == "facts" else SOURCE
    expected = model(rows).logits
    assert expected.shape == (4, 3)
    for row in range(4):
        length = len(real(SOURCE[row]))
        assert torch.allclose(model(rows[row : row + 1, :length]).logits[0], expected[row])


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["encoder_decoder", "language_model"])
def test_greedy_is_what_whole_passes_give(architecture):
    """Prompts of any lengths in one batch, padded on the left, and rows that end at different times."""
    model = small_lstm(architecture=architecture)
    model.target.bias[2] += 1.0  # so that some sequences end
    given = SOURCE if architecture == "encoder_decoder" else PROMPTS
    for row, result in enumerate(generate(model, given, DecodingOptions(max_new_tokens=6))):
        tokens, total = [], 0.0
        while len(tokens) < 6:
            if architecture == "encoder_decoder":
                logits = model(SOURCE[row : row + 1], torch.tensor([[*tokens, 2]])).logits[0, -1]
            else:
                logits = model(torch.tensor([[*PROMPTS[row][1:], *tokens, 2]])).logits[0, -1]
            scores = logits.log_softmax(-1)
            scores[:2] = float("-inf")
            total += float(scores.max())
            if int(scores.argmax()) == 2:
                break
            tokens.append(int(scores.argmax()))
        assert result.tokens == tokens
        assert result.score == pytest.approx(total)
        assert (result.steps, result.source_steps) == (0.0, [])
    best = beam_search(model, given, DecodingOptions(beams=3, max_new_tokens=6))
    assert len(best) == 4
    assert len(generate(model, given, DecodingOptions(max_new_tokens=6, sampling=Sampling(temperature=1.0)))) == 4


@pytest.mark.parametrize("fields", [{}, {"num_layers": 1}])
def test_gradients_are_those_of_finite_differences(fields):
    model = small_lstm(**{"width": 4, **fields})
    names, parameters = zip(*model.named_parameters(), strict=True)

    def run(*parameters):
        values = dict(zip(names, parameters, strict=True))
        return functional_call(model, values, (SOURCE[:2], TARGET[:2])).logits[TARGET[:2] != 0]

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("fields", [*KINDS.values(), {"architecture": "language_model"}])
def test_a_saved_model_comes_back_bit_for_bit(fields, tmp_path):
    model = small_lstm(**fields).float()
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    back = load_pretrained(tmp_path)
    assert (type(back), back.config) == (type(model), model.config)
    given = (TARGET,) if model.config.architecture == "language_model" else (SOURCE, TARGET)
    assert torch.equal(back(*given).logits, model(*given).logits)
    with pytest.raises(UserError, match='Classifier needs "classifier"'):
        Classifier.from_pretrained(tmp_path)


@pytest.mark.parametrize("architecture", ["classifier", "encoder_decoder", "language_model"])
def test_twenty_updates_lower_the_loss_and_a_resume_changes_no_bit(architecture, tmp_path):
    task = tiny.task(architecture)
    config = dataclasses.replace(
        tiny.run_config(max_updates=20, learning_rate=0.02, validate_every=100),
        model=LstmConfig(width=16, dropout=0.1),
    )
    train(config, tmp_path / "straight", task=task, quiet=True)
    losses = [float.fromhex(loss) for _, loss, _ in tiny.losses(tmp_path / "straight")]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    half = dataclasses.replace(config, training=dataclasses.replace(config.training, max_updates=9))
    train(half, tmp_path / "halves", task=task, quiet=True)
    train(config, tmp_path / "halves", task=task, resume=True, quiet=True)
    assert tiny.losses(tmp_path / "halves") == tiny.losses(tmp_path / "straight")


def test_there_is_no_depth_to_choose():
    model = small_lstm()
    with pytest.raises(UserError, match=r"max_steps=3: a model of kind lstm has no depth"):
        generate(model, SOURCE, DecodingOptions(max_steps=3))
    assert model(SOURCE, TARGET).mean_steps == 0.0


@pytest.mark.parametrize("depth", [{"max_steps": 3}, {"halting_threshold": 0.5}, {"exit": Exit("confidence", 0.9)}])
def test_every_call_takes_no_depth_and_refuses_one(depth):
    none = dict.fromkeys(("max_steps", "halting_threshold", "exit"))
    translator = small_lstm()
    writer = small_lstm(architecture="language_model")
    classifier = small_lstm(architecture="classifier", num_classes=3)
    calls = [
        partial(translator, SOURCE, TARGET),
        partial(writer, TARGET),
        partial(classifier, SOURCE),
        partial(small_neural_gpu(), SOURCE, TARGET),
    ]
    for call in calls:
        call(**none)
        with pytest.raises(UserError, match=f"{next(iter(depth))}=.* has no depth to choose; leave it out") as found:
            call(**depth)
        assert "\n" not in str(found.value)
        with pytest.raises((TypeError, TypeCheckError)):
            call(max_step=3)
    options = DepthOptions(**depth)
    for start in (partial(translator.start, SOURCE), partial(writer.start, batch=2)):
        start(capacity=4)
        with pytest.raises(UserError, match="has no depth to choose; leave it out"):
            start(capacity=4, depth=options)


def test_forget_gates_begin_open():
    layers = build(LstmConfig(width=6, vocabulary=VocabularyConfig(size=9))).target.layers.lstm
    for layer in range(2):
        assert getattr(layers, f"bias_ih_l{layer}").tolist() == [0.0] * 6 + [1.0] * 6 + [0.0] * 12
        assert not getattr(layers, f"bias_hh_l{layer}").any()
