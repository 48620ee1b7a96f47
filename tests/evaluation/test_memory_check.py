"""What cannot work is refused in one line before anything is made: depths, thresholds, batches beyond memory."""

import pytest

from small_models import small
from small_task_models import model_for
from universal_transformer import memory
from universal_transformer.decoding import DecodingOptions, beam_search, generate, generate_stream
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.evaluation.prediction import predict

STEPS = "max_steps: expected a whole number, at least 1 or None, found"
THRESHOLD = "halting_threshold: expected a number, more than 0 and at most 1 or None, found"
DEPTHS = [
    ({"max_steps": 0}, f"{STEPS} 0"),
    ({"max_steps": -2}, f"{STEPS} -2"),
    ({"halting_threshold": 0.0}, f"{THRESHOLD} 0.0"),
    ({"halting_threshold": 1.5}, f"{THRESHOLD} 1.5"),
    ({"halting_threshold": float("nan")}, f"{THRESHOLD} nan"),
]


@pytest.mark.parametrize("halting", [True, False])
@pytest.mark.parametrize(("options", "said"), DEPTHS, ids=[str(options) for options, _ in DEPTHS])
def test_a_depth_that_cannot_be_is_refused_everywhere(options, said, halting, copying):
    model = small(architecture="language_model", halting=halting)
    of_task = model_for(copying, halting=halting)
    for work in (
        lambda: generate(model, [[1, 3]], DecodingOptions(max_new_tokens=2, **options)),
        lambda: beam_search(model, [[1, 3]], DecodingOptions(beams=2, max_new_tokens=2, **options)),
        lambda: generate_stream(model, [(0, [1, 3])], capacity=9, options=DecodingOptions(**options)),
        lambda: predict(of_task, copying.codec, [], options=DecodingOptions(**options)),
        lambda: evaluate(of_task, copying, options=DecodingOptions(**options)),
    ):
        with pytest.raises(UserError) as refused:
            work()
        assert str(refused.value).startswith(said)
        assert "\n" not in str(refused.value)


def test_batches_and_caches_beyond_memory_are_refused_before_they_are_made(copying, monkeypatch):
    model = model_for(copying)
    examples = next(iter(copying.test.values()))
    monkeypatch.setattr(memory, "free_bytes", lambda _: 1000)
    with pytest.raises(UserError, match=r"^batch_tokens=9999: a batch of .* are free on cpu: choose fewer$"):
        evaluate(model, copying, batch_tokens=9999)
    with pytest.raises(UserError, match=r"^batch_tokens=9999: a batch of .* are free on cpu: choose fewer$"):
        list(predict(model, copying.codec, examples, batch_tokens=9999))
    with pytest.raises(UserError, match=r"^a cache of capacity \d+ for 1 sequences takes .*fewer new tokens"):
        generate(small(architecture="language_model"), [[1, 3]], DecodingOptions(max_new_tokens=500))
    for value in (0, -3):
        with pytest.raises(UserError, match=f"^batch_tokens: expected a whole number, at least 1, found {value}$"):
            evaluate(model, copying, batch_tokens=value)
        with pytest.raises(UserError, match=f"^batch_tokens: expected a whole number, at least 1, found {value}$"):
            predict(model, copying.codec, examples, batch_tokens=value)
    with pytest.raises(UserError, match=r"^max_new_tokens: expected a whole number, at least 1 or None, found 0$"):
        DecodingOptions(max_new_tokens=0)
