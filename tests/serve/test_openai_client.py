"""OpenAI's own client is served as by its own server."""

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
pytest.importorskip("openai")
import openai

from small_server import alone, serving, text_after, writer


@pytest.fixture(scope="module")
def address():
    with serving(writer(), rows=4, capacity=60) as address:
        yield address


@pytest.fixture
def client(address):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{address.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_completion_with_its_steps(client):
    answer = client.completions.create(model="tiny", prompt="the red", max_tokens=9, logprobs=2)
    (choice,), found = answer.choices, alone("the red", max_new_tokens=9)
    assert choice.text == text_after("the red", found.tokens)
    assert choice.model_extra["steps"] == found.token_steps
    assert choice.model_extra["mean_steps"] == pytest.approx(found.steps)
    assert choice.logprobs.token_logprobs == pytest.approx(found.token_scores)
    assert answer.usage.completion_tokens == len(found.token_steps)


def test_a_stream_of_two_choices(client):
    body = {"model": "tiny", "prompt": "the red", "max_tokens": 7, "n": 2, "seed": 3, "temperature": 1.0}
    whole = client.completions.create(**body)
    texts, last = ["", ""], None
    for part in client.completions.create(**body, stream=True, stream_options={"include_usage": True}):
        for choice in part.choices:
            texts[choice.index] += choice.text
        last = part
    assert texts == [choice.text for choice in whole.choices]
    assert last.usage == whole.usage


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_mistakes_are_those_of_the_client_library(client):
    with pytest.raises(openai.BadRequestError, match="max_tokens: expected"):
        client.completions.create(model="tiny", prompt="a", max_tokens=0)
    with pytest.raises(openai.NotFoundError, match="this server has 'tiny' alone"):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError, match="max_steps=9"):
        client.completions.create(model="tiny", prompt="a", extra_body={"max_steps": 9})
