"""What the server answers is what the library answers, whoever else asks meanwhile."""

import copy
import dataclasses
import json
import re
import sys
import threading

import pytest

from universal_transformer.cli import main
from universal_transformer.cli import serve as serve_command
from universal_transformer.decoding import Beams, DecodingOptions
from universal_transformer.evaluation.pipeline import load
from universal_transformer.models.call import GREEDY, Sampling

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
from small_server import alone, digits, serving, text_after, writer
from universal_transformer.serve.app import Inputs


@pytest.fixture(scope="module")
def server():
    with serving(writer(), rows=4, capacity=60) as address:
        yield address


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_is_what_generate_makes(server, stream):
    answer = server.complete(prompt="the red", max_tokens=9, stream=stream)
    assert answer.status == 200, answer.body
    found = alone("the red", max_new_tokens=9)
    parts = [choice for event in answer.events for choice in event["choices"]] if stream else answer.json["choices"]
    assert "".join(part["text"] for part in parts) == text_after("the red", found.tokens)
    assert [steps for part in parts for steps in part["steps"]] == found.token_steps
    assert parts[-1]["mean_steps"] == pytest.approx(found.steps)
    assert parts[-1]["finish_reason"] == ("stop" if found.finished else "length")
    if stream:
        assert len(parts) == len(found.token_steps)
        assert all(part["finish_reason"] is None for part in parts[:-1])
    else:
        count = len(found.token_steps)
        assert answer.json["usage"] == {"prompt_tokens": 2, "completion_tokens": count, "total_tokens": 2 + count}


def test_choices_are_drawn_by_their_number_and_the_seed(server):
    body = {"prompt": ["the red", "a cat"], "n": 3, "seed": 5, "temperature": 1.2, "top_p": 0.9, "max_tokens": 6}
    choices = server.complete(**body).json["choices"]
    assert [choice["index"] for choice in choices] == list(range(6))
    sampling = Sampling(temperature=1.2, top_p=0.9, seed=5)
    for number, choice in enumerate(choices):
        prompt = body["prompt"][number // 3]
        found = alone(prompt, number=number, sampling=sampling, max_new_tokens=6)
        assert choice["text"] == text_after(prompt, found.tokens)
        assert choice["steps"] == found.token_steps
    assert len({choice["text"] for choice in choices}) > 2
    unseeded = {
        server.complete(prompt="the", temperature=3.0, max_tokens=8).json["choices"][0]["text"] for _ in range(4)
    }
    assert len(unseeded) > 1


def test_many_clients_at_once_change_nothing(server):
    prompts = ["the red", "a", "", "seven cups, and", "the green box"]
    bodies = [
        {"prompt": prompts[number % 5], "max_tokens": 1 + number % 7, "stream": bool(number % 2)}
        | ({"temperature": 1.0, "seed": number} if number % 3 else {})
        | ({"max_steps": 2} if number % 4 == 3 else {})
        for number in range(24)
    ]
    answers = [None] * len(bodies)

    def ask(number):
        answers[number] = server.complete(**bodies[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status == 200, answer.body
        parts = [c for e in answer.events for c in e["choices"]] if body["stream"] else answer.json["choices"]
        sampling = Sampling(temperature=1.0, seed=body["seed"]) if "seed" in body else GREEDY
        found = alone(
            body["prompt"], sampling=sampling, max_new_tokens=body["max_tokens"], max_steps=body.get("max_steps")
        )
        assert "".join(part["text"] for part in parts) == text_after(body["prompt"], found.tokens)
        assert [steps for part in parts for steps in part["steps"]] == found.token_steps


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_ends_the_text_before_it(server, stream):
    whole = text_after("the red", alone("the red", max_new_tokens=12).tokens)
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    answer = server.complete(prompt="the red", max_tokens=12, stop=[stop, "never this"], stream=stream)
    parts = [c for e in answer.events for c in e["choices"]] if stream else answer.json["choices"]
    assert "".join(part["text"] for part in parts) == whole[: whole.find(stop)]
    assert parts[-1]["finish_reason"] == "stop"
    assert server.service.engine.running == 0 or server.complete(prompt="a", max_tokens=1).status == 200


def test_logprobs_have_the_scores_of_the_likeliest(server):
    (choice,) = server.complete(prompt="a cat", max_tokens=5, logprobs=3).json["choices"]
    found, logprobs = alone("a cat", max_new_tokens=5), choice["logprobs"]
    assert logprobs["token_logprobs"] == pytest.approx(found.token_scores)
    assert len(logprobs["tokens"]) == len(logprobs["text_offset"]) == len(found.token_scores)
    for token, score, best in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert 1 <= len(best) <= 3
        assert best[token] == pytest.approx(score)  # greedy
        assert max(best.values()) == pytest.approx(score)


def test_a_stream_of_parts_of_characters_sends_whole_ones():
    pipeline = writer("bpe")
    with serving(pipeline, rows=4, capacity=60) as server:
        for seed in range(6):
            body = {"prompt": "the", "temperature": 2.0, "seed": seed, "max_tokens": 20}
            parts = [c for e in server.complete(**body, stream=True).events for c in e["choices"]]
            (whole,) = server.complete(**body).json["choices"]
            assert "".join(part["text"] for part in parts) == whole["text"]
            assert whole["steps"] == [steps for part in parts for steps in part["steps"]]


def test_an_answer_that_is_not_written_in_order_comes_at_the_end():
    with serving(digits(), rows=4, capacity=60) as server:
        whole = server.predict("12+34").json["predictions"][0]["text"]
        parts = [c for e in server.complete(prompt="12+34", stream=True).events for c in e["choices"]]
        assert "".join(part["text"] for part in parts) == whole
        assert {part["text"] for part in parts[:-1]} <= {""}
        assert server.complete(prompt="12+34").json["choices"][0]["text"] == whole
        assert server.complete(prompt="").status == 400


def test_predict_is_what_ut_predict_prints(server):
    answer = server.predict("the red", "a cat", "")
    expected = writer()(["the red", "a cat", ""])
    found = answer.json["predictions"]
    assert found == json.loads(json.dumps([each.to_dict() for each in expected]))
    (drawn,) = server.predict("the red", temperature=1.0, seed=3, max_new_tokens=4).json["predictions"]
    assert drawn["text"] == alone_prediction("the red", temperature=1.0, seed=3)


def alone_prediction(text, **sampling):
    options = DecodingOptions(sampling=Sampling(**sampling), max_new_tokens=4)
    return writer()(text, options=options).text


def test_the_model_its_health_and_its_counts(server):
    assert [model["id"] for model in server.get("/v1/models").json["data"]] == ["tiny"]
    assert server.get("/health").json == {"status": "ok"}
    before = counts(server)
    server.complete(prompt="the", max_tokens=3)
    after = counts(server)
    assert 1 <= after["ut_tokens_total"] - before["ut_tokens_total"] <= 3
    name = 'ut_requests_total{path="/v1/completions",status="200"}'
    assert after[name] == before.get(name, 0) + 1
    assert after["ut_running"] == after["ut_waiting"] == 0


def counts(server):
    text = server.get("/metrics").body.decode()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines())}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "prompt: missing"),
        ({"prompt": 3}, "prompt: expected text or "),
        ({"prompt": []}, "expected one prompt or more"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens: expected a whole number, at least 1"),
        ({"prompt": "a", "max_tokens": 500}, "do not fit capacity=60"),
        ({"prompt": "a", "temperature": -1}, "temperature: expected a number"),
        ({"prompt": "a", "top_p": 0, "temperature": 1}, "top_p: expected"),
        ({"prompt": "a", "echo": True}, "echo: this server has no such choice"),
        ({"prompt": "a", "max_token": 4}, "max_token: unknown (did you mean max_tokens"),
        ({"prompt": "a", "stop": ["x"] * 5}, "stop: expected at most 4 texts"),
        ({"prompt": "a", "stop": [""]}, "stop: expected at most 4 texts"),
        ({"prompt": "a", "n": 100}, "100 answers in one request; at most 64"),
        ({"prompt": "a", "max_steps": 9}, "max_steps=9: this stream makes 1 to 4 steps"),
        ({"prompt": "a", "exit": "confidence:0.9"}, "exit=confidence:0.9: requests of one stream share it"),
        ({"prompt": "a", "halting_threshold": 0.5}, "halting_threshold=0.5: requests of one stream share it"),
        ({"prompt": [3, 4000]}, "token id 4000"),
        ({"prompt": "a\nb"}, "line break"),
        ({"prompt": "a", "logprobs": 99}, "logprobs: expected"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "they are for a stream"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(server, body, message):
    answer = server.complete(**body)
    assert answer.status == 400, answer.body
    assert message in answer.message
    assert "\n" not in answer.message


@pytest.mark.parametrize(("text", "stop"), [("ab né cd", "né"), ("price 5€ now", "5€"), ("a日本b", "日本")])
def test_no_part_of_a_stop_is_sent_before_its_last_character_is_whole(text, stop):
    from universal_transformer.serve.completions import ChoiceText
    from universal_transformer.serve.engine import TokenEvent

    codec = load("writer").codec
    choice, sent = ChoiceText(codec, (), [stop]), ""
    for token in codec.source.tokenizer.encode(text):
        sent += choice.add(TokenEvent(0, token, 0.0, 1.0), streamed=True)
        if choice.reason:
            break
    assert (sent, choice.reason) == (text[: text.index(stop)], "stop")


def test_more_steps_than_the_page_offers_are_refused(server):
    answer = server.predict("the red", max_steps=1000)
    assert (answer.status, answer.message) == (400, "max_steps: at most 10 here")


def test_neutral_and_foreign_fields_change_nothing(server):
    plain = server.complete(prompt="the red", max_tokens=4).json["choices"]
    more = {"model": "tiny", "user": "x", "echo": False, "best_of": 1, "presence_penalty": 0, "suffix": None}
    assert server.complete(prompt="the red", max_tokens=4, temperature=0, top_p=0.5, **more).json["choices"] == plain
    assert server.complete(prompt="a", model="other").status == 404


def test_a_stream_ends_with_the_usage_that_is_asked_for(server):
    body = {"prompt": "the red", "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    *_, last = server.complete(**body).events
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 2


def test_the_depth_of_the_server_holds_and_a_calibrated_one_is_for_greedy_answers():
    pipeline = dataclasses.replace(writer(), options=DecodingOptions(max_steps=2), note="as calibrated")
    with serving(pipeline, rows=2, capacity=60) as server:
        found = alone("the red", max_new_tokens=5, max_steps=2)
        assert server.complete(prompt="the red", max_tokens=5).json["choices"][0]["steps"] == found.token_steps
        assert "max_steps=3: this stream makes 1 to 2 steps" in server.complete(prompt="a", max_steps=3).message
        for answer in (server.complete(prompt="a", temperature=1.0), server.predict("a", temperature=1.0)):
            assert answer.status == 400
            assert "calibrated for greedy answers" in answer.message
        deep, shallow = (server.predict("the red", beams=beams, max_new_tokens=3) for beams in (2, None))
        steps = [answer.json["predictions"][0]["tokens"][-1]["steps"] for answer in (deep, shallow)]
        assert steps[0] > steps[1] == 2
        assert server.predict("the red", temperature=1.0, max_steps=2).status == 200


def test_a_client_may_sample_with_one_beam_and_search_with_the_penalty_of_the_server():
    served = DecodingOptions(beams=Beams(3, length_penalty=2.0))
    pipeline = dataclasses.replace(writer(), options=served)
    with serving(pipeline) as server:
        refused = server.predict("the red", temperature=1.0, seed=1)
        assert refused.status == 400
        assert "choose beams or sampling" in refused.message
        sampled = server.predict("the red", temperature=1.0, seed=1, beams=1, max_new_tokens=3).json
    options = DecodingOptions(sampling=Sampling(temperature=1.0, seed=1), max_new_tokens=3)
    assert sampled["predictions"][0]["text"] == writer()("the red", options=options).text
    asked = Inputs(inputs=("a",), beams=4)
    chosen = asked.of(served, pipeline.model.config, most=None, calibrated=False, beams=asked.beams)
    assert chosen.beams == Beams(4, length_penalty=2.0)


def test_a_model_whose_rows_cannot_part_predicts_alone():
    pipeline = dataclasses.replace(writer(), model=copy.deepcopy(writer().model))
    pipeline.model.target.recurrence.register_forward_hook(lambda *_: None)
    pipeline.model.target.recurrence.blocks[0].register_forward_hook(lambda *_: None)
    with serving(pipeline) as server:
        answer = server.complete(prompt="a")
        assert answer.status == 400
        assert "this model has no completions here (rows cannot be at different depth steps" in answer.message
        assert server.predict("the red").json["predictions"][0]["text"] == writer()("the red").text


@pytest.mark.parametrize(
    ("run", "options", "routes", "said"),
    [
        ("reverse", [], "/v1/completions and /predict", ""),
        ("reverse", ["--beams", "2"], "/v1/completions and /predict", "ut: --beams is for /predict: /v1/completions "),
        ("addition", ["--beams", "2"], "/predict", "ut: no /v1/completions: "),
    ],
)
def test_the_start_says_which_routes_answer_and_which_search(run, options, routes, said, monkeypatch, capsys):
    monkeypatch.setattr(serve_command, "run_server", lambda *_, **__: None)
    assert main(["serve", run, "--port", "0", *options]) == 0
    shown = capsys.readouterr()
    assert re.fullmatch(rf"{run}: http://127\.0\.0\.1:\d+{routes}; Ctrl-C ends it\n", shown.out)
    assert shown.err.startswith(said)
    assert shown.err.count("\n") == bool(said)


def test_a_server_has_no_size_of_batches(capsys):
    assert main(["serve", "reverse", "--batch-tokens", "64"]) == 2
    assert "unknown option --batch-tokens" in capsys.readouterr().err


def test_the_extra_is_named_where_it_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "reverse"]) == 2
    assert "pip install 'universal-transformer[serve]'" in capsys.readouterr().err
