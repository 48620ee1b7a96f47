"""A server of a tiny model in a thread, and requests to it by sockets alone."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from functools import cache

import torch

from small_task_models import model_for
from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.decoding import DecodingOptions, generate
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.listed import Symbols
from universal_transformer.tasks.sides.tokenized import RunningText
from universal_transformer.tasks.task import Task

TEXTS = ["the red hat stood on the green box", "a cat saw the blue cup", "seven cups, and a hat; no pen!"]
JSON = {"Content-Type": "application/json"}


@cache
def writer(kind="word"):
    """A language model with random weights whose tokens differ in steps."""
    tokenizer = Tokenizer.train(TEXTS, kind=kind, vocabulary_size=300 if kind == "bpe" else 60)
    codec = Codec.shared(RunningText(tokenizer, block_length=40))
    examples = [Example(source=(), target=(*tokenizer.encode(text), tokenizer.end_id)) for text in TEXTS]
    task = Task(name="text", codec=codec, train=examples, validation=examples, test={}, metric="perplexity")
    model = model_for(task)
    with torch.no_grad():
        model.target.recurrence.halting.weight.normal_(std=2.0)
        model.target.recurrence.halting.bias.fill_(-0.5)
    return Pipeline(model, codec)


@cache
def digits():
    """An encoder-decoder whose answers begin with the last digit."""
    codec = Codec.shared(Symbols(symbols="0123456789+", operator="+"))
    examples = [codec.source.example("12+34", "46")]
    task = Task(name="sums", codec=codec, train=examples, validation=examples, test={}, metric="sequence")
    return Pipeline(model_for(task), codec)


def alone(prompt, *, number=0, **options):
    """What `generate` makes of a prompt."""
    pipeline = writer()
    ids = pipeline.codec.source.tokenizer.encode(prompt)
    return generate(pipeline.model, [ids], DecodingOptions(**options), indices=[number])[0]


def text_after(prompt, tokens):
    """The text that tokens add to a prompt."""
    codec = writer().codec
    before = codec.source.tokenizer.encode(prompt)
    return codec.render([*before, *tokens]).removeprefix(codec.render(before))


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def message(self):
        return self.json["error"]["message"]

    @property
    def events(self):
        """Of a stream; the last one says that it is done."""
        parts = self.body.decode().split("\n\n")
        assert parts.pop() == ""
        assert all(part.startswith("data: ") for part in parts)
        assert parts.pop() == "data: [DONE]"
        return [json.loads(part.removeprefix("data: ")) for part in parts]


class Address:
    """Where a server is, and requests to it."""

    def __init__(self, port, service):
        self.port, self.service = port, service

    def ask(self, method, path, body=None, headers=None, *, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = json.dumps(body) if isinstance(body, dict) else body
            connection.request(method, path, text, {**(JSON if method == "POST" else {}), **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def complete(self, **body):
        return self.ask("POST", "/v1/completions", body)

    def predict(self, *inputs, **body):
        return self.ask("POST", "/predict", {"inputs": list(inputs), **body})

    def connect(self, timeout=30):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def raw(self, data, *, timeout=30):
        """All that the server sends for these bytes until it closes."""
        with self.connect(timeout) as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection):
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@contextmanager
def running(app):
    """The port of a server of an application in a thread, which has answered everything at the end."""
    import uvicorn

    from universal_transformer.serve.guard import PROTOCOL

    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=20, **PROTOCOL)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
                assert thread.is_alive()
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@contextmanager
def serving(pipeline, **limits):
    """A server of `ut serve` in a thread."""
    from universal_transformer.serve.app import Service
    from universal_transformer.serve.engine import Engine
    from universal_transformer.serve.limits import Limits

    engine = Engine(pipeline, Limits(**limits))
    service = Service(engine, "tiny")
    with running(service.app()) as port:
        yield Address(port, service)
    assert not engine.is_alive()
