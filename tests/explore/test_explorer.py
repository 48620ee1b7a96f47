"""The page of a model over sockets: what it answers, and what any page of this machine is held to (W1 to W5)."""

import gzip
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections import Counter
from contextlib import contextmanager

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
from small_explored import BOARD, STORY, boards, of_rows, stories
from small_server import Address, digits, read_all, running, writer
from small_task_models import model_for
from universal_transformer import load
from universal_transformer.cli import explore as cli_explore
from universal_transformer.cli import main
from universal_transformer.data.example import Example
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.measure import TESTS, evaluate
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.explore.explorer import FILES, Explored, Explorer
from universal_transformer.explore.input_trace import trace_input
from universal_transformer.explore.page_model import CARD, same_test
from universal_transformer.rules import Exit
from universal_transformer.serve import guard
from universal_transformer.serve.engine import Engine
from universal_transformer.serve.limits import Limits
from universal_transformer.tasks import LabelledData
from universal_transformer.tasks.stories import StoriesData
from universal_transformer.tasks.task import Task

POSTS = ("/api/trace", "/api/stream", "/api/test")
GETS = (*FILES, "/api/models", "/api/saved")


def story_task():
    return StoriesData(train_stories=30, validation_stories=2, test_stories=5).load()


@contextmanager
def exploring(*pipelines, task=None, **limits):
    engines = [Engine(pipeline, Limits(**{"rows": 1, "queue": 8, **limits})) for pipeline in pipelines]
    models = [Explored(f"tiny {n}", engine, task, "" if task else "no data") for n, engine in enumerate(engines)]
    with running(Explorer(models).app()) as port:
        yield Address(port, engines[0])
    assert not any(engine.is_alive() for engine in engines)


@pytest.fixture(scope="module")
def server():
    with exploring(stories(), stories(halting=False), task=story_task()) as address:
        yield address


@pytest.fixture(scope="module")
def writing():
    with exploring(writer()) as address:
        yield address


@pytest.fixture(scope="module")
def pretrained():
    with exploring(load("babi-halting")) as address:
        yield address


def plain(trace):
    return json.loads(json.dumps(trace.to_dict()))


def ask(server, path="/api/trace", **body):
    return server.ask("POST", path, body)


def test_a_long_story_is_sent_in_few_bytes(pretrained):
    facts = ["Mary moved to the office", "John got the football", "Mary went to the garden", "John left the football"]
    story = "".join(f"{number} {facts[number % 4]}\n" for number in range(1, 71)) + "71 Where is the football?"
    sent = pretrained.ask("POST", "/api/trace", {"text": story}, {"Accept-Encoding": "gzip"})
    assert len(sent.body) < 200_000
    assert json.loads(gzip.decompress(sent.body)) == ask(pretrained, text=story).json


def events(answer):
    parts = answer.body.decode().split("\n\n")
    assert parts.pop() == ""
    return [json.loads(part.removeprefix("data: ")) for part in parts]


@pytest.mark.parametrize(("fields", "options"), [
    ({}, DecodingOptions()),
    ({"max_steps": 2}, DecodingOptions(max_steps=2)),
    ({"halting_threshold": 0.3}, DecodingOptions(halting_threshold=0.3)),
    ({"exit": "state_change:0.5"}, DecodingOptions(exit=Exit.parse("state_change:0.5"))),
])  # fmt: skip
def test_the_page_gets_the_trace_of_a_text_at_any_depth(server, fields, options):
    pipeline = stories()
    example = pipeline.example(STORY, 0)
    expected = trace_input(pipeline.model, pipeline.codec, example, options=options, name="tiny 0")
    answer = ask(server, text=STORY, **fields)
    assert answer.json == {"text": STORY, "trace": plain(expected)}


def test_a_second_model_answers_the_same_text(server):
    first, second = (ask(server, text=STORY, model=model).json["trace"] for model in (0, 1))
    assert (first["model"], second["model"]) == ("tiny 0", "tiny 1")
    assert first["halting"]
    assert not second["halting"]
    assert first["sides"][0]["tokens"] == second["sides"][0]["tokens"]


def test_a_test_example_opens_as_if_it_were_typed(server):
    task = story_task()
    for number in range(len(task.test["test"])):
        example = task.test["test"][number]
        answer = ask(server, set="test", number=number).json
        trace = answer["trace"]
        assert trace["right"] == task.codec.render(example.target)
        order = list(task.codec.source.reading_order(len(example.source)))
        assert [order[place] for place in trace["sides"][0]["supports"]] == sorted(example.supports)
        again = ask(server, text=answer["text"]).json["trace"]
        assert again["sides"][0]["tokens"] == trace["sides"][0]["tokens"]
        assert again["answer"] == trace["answer"]
    assert ask(server, set="test", number=10**6).status == 404
    assert ask(server, set="other", number=0).status == 404


def test_a_model_without_its_data_opens_what_it_brings():
    engine = Engine(stories(), Limits(rows=1, queue=8))
    explored = Explored("tiny", engine, None, "no data", [STORY])
    with running(Explorer([explored]).app()) as port:
        alone = Address(port, engine)
        about = alone.get("/api/models").json
        assert (about["models"][0]["sets"], about["models"][0]["first"]) == ({CARD: 1}, [CARD, 0])
        assert not about["same_test"]
        found = ask(alone, set=CARD, number=0).json
        assert found == ask(alone, text=STORY).json
        assert found["trace"]["right"] is None
        assert ask(alone, set=CARD, number=1).message == "no data"


def test_two_models_have_one_test_where_its_inputs_are_equal(server):
    task, other = story_task(), StoriesData(train_stories=30, validation_stories=2, test_stories=5, seed=1).load()
    assert server.get("/api/models").json["same_test"]
    assert same_test((task, task.codec), (story_task(), task.codec))
    assert not same_test((task, task.codec), (other, other.codec))
    assert not same_test((None, task.codec), (None, task.codec))


def test_unknown_words_are_named(server):
    trace = ask(server, text="1 Zeus went to the kitchen.\n2 Where is Zeus?").json["trace"]
    assert trace["unknown"] == ["Zeus", "kitchen"]


def test_the_whole_test_has_the_error_and_the_steps_of_the_report(server):
    task, model = story_task(), stories().model
    report = evaluate(model, task, TESTS)
    rows = ask(server, "/api/test", limit=5000).json["rows"]
    assert sorted(row["number"] for row in rows) == list(range(len(task.test["test"])))
    assert 100 * sum(row["wrong"] for row in rows) / len(rows) == pytest.approx(report.totals[0].metrics["error"])
    assert all(row["group"] == task.test["test"][row["number"]].group for row in rows)
    positions = [len(task.test["test"][row["number"]].source) for row in rows]
    mean = sum(row["steps"] * count for row, count in zip(rows, positions, strict=True)) / sum(positions)
    assert mean == pytest.approx(report.mean_steps)
    assert len(ask(server, "/api/test", limit=7).json["rows"]) == 7


def test_a_language_model_begins_a_test_example_and_is_tested_on_whole_ones():
    texts = ["the red hat stood on the green box", "a cat saw the blue cup"]
    codec = writer().codec
    examples = [Example(source=(), target=(*codec.source.tokenizer.encode(text), 2)) for text in texts]
    task = Task(name="text", codec=codec, train=[], validation=[], test={"test": examples}, metric="perplexity")
    with exploring(writer(), task=task) as server:
        found = ask(server, set="test", number=0, max_new_tokens=2).json
        assert found["text"] == "the red hat stood"
        assert found["trace"]["right"] is None
        rows = ask(server, "/api/test").json["rows"]
        report = evaluate(writer().model, task, TESTS)
        tokens = [len(example.target) for example in examples]
        right = sum((1 - row["wrong"]) * tokens[row["number"]] for row in rows) / sum(tokens)
        assert right == pytest.approx(report.totals[0].metrics["accuracy"])


def test_any_test_example_of_texts_opens(tmp_path):
    two = of_rows(tmp_path, ["a red hat\tthe hat is red\tA", "the blue cup\ta cup\tB"], LabelledData)
    pipeline = Pipeline(model_for(two), two.codec)
    with exploring(pipeline, task=two) as server:
        found = ask(server, set="test", number=0).json
        assert found["text"] == "a red hat\tthe hat is red"
        assert ask(server, text=found["text"]).json["trace"]["sides"] == found["trace"]["sides"]
        assert found["trace"]["right"] == "A"


def test_tokens_arrive_before_their_trace(writing):
    answer = ask(writing, "/api/stream", text="the red hat", max_new_tokens=6)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    *tokens, last = events(answer)
    assert [(each["token"], each["steps"]) for each in tokens] == [
        (text, last["trace"]["sides"][0]["steps"][place])
        for (text, _), place in zip(last["trace"]["output"], last["trace"]["places"], strict=True)
    ]
    assert 0 < len(tokens) <= 6
    for depth in ({"halting_threshold": 0.2}, {"max_steps": 1}):
        *tokens, last = events(ask(writing, "/api/stream", text="the red hat", max_new_tokens=3, **depth))
        assert len(tokens) == len(last["trace"]["output"])


@pytest.mark.parametrize(("pipeline", "text"), [(boards, BOARD), (digits, "12+34")])
def test_other_forms_are_answered(pipeline, text):
    with exploring(pipeline()) as server:
        about = server.get("/api/models").json["models"][0]
        assert about["view"] == pipeline().codec.source.view
        assert about["obstacle"] == "no data"
        trace = ask(server, text=text).json["trace"]
        *tokens, last = events(ask(server, "/api/stream", text=text))
        assert last["trace"] == trace
        decodes = pipeline().model.config.decodes
        assert [each["token"] for each in tokens] == [text for text, _ in trace["output"]] * decodes
        assert ask(server, "/api/test").status == 404


@pytest.mark.parametrize(("body", "wrong"), [
    ({}, "expected one of them"),
    ({"text": "a", "set": "test"}, "expected one of them"),
    ({"text": "1 no question"}, "no question"),
    ({"text": ""}, "no question"),
    ({"text": STORY, "max_steps": 0}, "max_steps"),
    ({"text": STORY, "max_steps": 1000}, "max_steps"),
    ({"text": STORY, "exit": "never:1"}, "never"),
    ({"text": STORY, "model": 2}, "model"),
    ({"text": STORY, "other": 2}, "other"),
    ({"text": 5}, "text"),
])  # fmt: skip
def test_what_is_wrong_with_a_question_is_said(server, body, wrong):
    answer = ask(server, **body)
    assert answer.status == 400
    assert wrong in answer.message


def test_a_long_input_is_refused():
    with exploring(stories(), longest=3) as server:
        assert ask(server, text=STORY).status == 413


# What must hold of a local page -------------------------------------------------------------------------------------


def head(method, path, **headers):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


def headers_of(answer):
    lines = answer.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:])


def check_headers(found):
    assert not any(name.startswith("access-control") for name in found)
    assert {name: found[name] for name in guard.HEADERS if "policy" not in name} == {
        name: value for name, value in guard.HEADERS.items() if "policy" not in name
    }
    assert found["content-security-policy"].startswith("default-src 'none'")
    assert "unsafe-eval" not in found["content-security-policy"]
    assert "'unsafe-inline'" not in found["content-security-policy"].partition("script-src")[2].partition(";")[0]


@pytest.mark.parametrize("path", GETS)
def test_files_come_with_a_policy_and_to_this_machine_alone(server, path):
    status, found = headers_of(server.raw(head("GET", path, Host="localhost", Connection="close")))
    assert status == 200
    check_headers(found)
    for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "localhost@evil.example"):
        status, found = headers_of(server.raw(head("GET", path, Host=host, Connection="close")))
        assert status in (400, 421)
        check_headers(found)


@pytest.mark.parametrize("path", POSTS)
def test_pages_of_other_servers_are_refused(server, path):
    own, body = f"http://127.0.0.1:{server.port}", json.dumps({"text": STORY})
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"{own}.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert server.ask("POST", path, body, headers).status == 403
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""):
        assert server.ask("POST", path, body, {"Content-Type": kind}).status == 415
    assert server.ask("POST", path, b"x" * (2 * guard.MOST_BYTES)).status == 413
    assert server.ask("POST", path, json.dumps({"text": STORY, "limit": 3} if "test" in path else {"text": STORY}),
                      {"Origin": own, "Sec-Fetch-Site": "same-origin"}).status == 200  # fmt: skip


def test_a_link_of_another_page_opens_the_page_alone(server):
    opened = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert server.ask("GET", "/", headers=opened).status == 200
    assert server.ask("GET", "/", headers={**opened, "Sec-Fetch-Dest": "iframe"}).status == 403
    assert server.ask("GET", "/", headers={**opened, "Sec-Fetch-Mode": "no-cors"}).status == 403
    assert server.ask("GET", "/api/models", headers=opened).status == 403
    assert server.ask("POST", "/api/trace", json.dumps({"text": STORY}), opened).status == 403


def test_no_path_gives_a_file(server):
    draw = random.Random(0)
    parts = ["..", "%2e%2e", "etc", "passwd", "api", "trace", "page.js", "%00", "\\", "//", "~", "?a=b", "assets"]
    parts += ["%2f", ".", "page.html", "d3.LICENSE", ";", "%c0%ae", "C:", "draw.js", "&", "__init__.py"]
    for _ in range(500):
        path = "/" + "/".join(draw.choices(parts, k=draw.randint(1, 5)))
        if path.partition("?")[0] in {*GETS, *POSTS}:
            continue
        answer = server.raw(head("GET", path, Host="localhost", Connection="close"))
        assert headers_of(answer)[0] == 404, path
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"] == "Not Found"


HOSTILE = (
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "</textarea><svg/onload=alert(1)>",
    "\u2028",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_comes_back_as_json(server, text):
    for body in (
        {"text": f"1 {text} went home.\n2 Where is {text}?"},
        {"text": STORY, text: 1},
        {"exit": text, "text": STORY},
    ):
        answer = ask(server, **body)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json


def test_as_many_wait_as_may(monkeypatch):
    with exploring(stories()) as server:
        engine, gate, found = server.service, threading.Event(), []
        turn = engine._turn
        monkeypatch.setattr(engine, "_turn", lambda: gate.wait(30) and turn())
        threads = [threading.Thread(target=lambda: found.append(ask(server, text=STORY))) for _ in range(64)]
        for thread in threads:
            thread.start()
        while len(found) < 56:
            time.sleep(0.01)
        gate.set()
        for thread in threads:
            thread.join()
        assert Counter(answer.status for answer in found) == {200: 8, 503: 56}


def test_slow_clients_are_sent_away_while_others_are_served(server, monkeypatch):
    monkeypatch.setattr(guard, "RECEIPT", 1.0)
    connections = [server.connect() for _ in range(100)]
    try:
        for number, connection in enumerate(connections):
            connection.sendall((b"", b"POST /api", head("GET", "/", Host="localhost")[:-2])[number % 3])
        assert ask(server, text=STORY).status == 200
        assert [read_all(connection) for connection in connections] == [b""] * 100
    finally:
        for connection in connections:
            connection.close()


def test_nothing_is_made_for_a_client_that_goes(writing):
    engine = writing.service
    body = json.dumps({"text": "the red hat", "max_new_tokens": 400}).encode()
    fields = {"Host": "localhost", "Content_Type": "application/json", "Content_Length": len(body)}
    with writing.connect() as connection:
        connection.sendall(head("POST", "/api/stream", **fields) + body)
        connection.recv(100)
    until = time.monotonic() + 20
    while (engine._asked or engine.waiting) and time.monotonic() < until:
        time.sleep(0.01)
    assert not engine._asked
    assert ask(writing, text="the red", max_new_tokens=2).status == 200


def mutated(draw):
    """A request that is damaged somewhere."""
    body = json.dumps({"text": STORY, "max_steps": 2, "exit": None, "model": 0}).encode()
    kind = draw.randrange(5)
    if kind == 0:
        place = draw.randrange(len(body))
        body = body[:place] + bytes([draw.randrange(256)]) * draw.randrange(4) + body[place + draw.randrange(3) :]
    elif kind == 1:
        value = draw.choice([None, -1, 1e999, "x", [], {}, [[]], True, 2**70, "\ud800", "1 a?", "1 a?\n" * 400])
        names = ("text", "set", "number", "max_steps", "exit", "model", "halting_threshold", "temperature", "limit")
        body = json.dumps({"text": STORY, draw.choice(names): value}).encode()
    elif kind == 2:
        body = draw.choice([b"", b"[]", b"null", b"[" * 100_000, b'{"a":1,"a":1}', b"\xff\xfe", b'{"text":NaN}'])
    elif kind == 3:
        body = bytes(draw.randrange(256) for _ in range(draw.randrange(60)))
    request = head("POST", draw.choice(POSTS), Host="localhost", Content_Type="application/json",
                   Content_Length=len(body), Connection="close")  # fmt: skip
    if kind == 4:
        place = draw.randrange(len(request))
        request = request[:place] + bytes(draw.randrange(256) for _ in range(3)) + request[place:]
    return request + body


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_malformed_request_ends_nothing(server, capfd, count):
    draw = random.Random(count)
    for _ in range(count):
        with server.connect() as connection:
            connection.sendall(mutated(draw))
            connection.shutdown(socket.SHUT_WR)
            answer = read_all(connection)
        if answer:  # a client that says that it sends no more may have no answer
            assert headers_of(answer)[0] in (200, 400, 404, 405, 408, 413, 415, 421), answer
    assert ask(server, text=STORY).status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_the_command_refuses_what_it_cannot_show(tmp_path, capsys):
    assert main(["explore", str(tmp_path / "none")]) == 2
    assert "no such run folder" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["explore", "reverse", "--no-browser", "--port", str(port)]) == 2
    assert f"--port {port}: Address already in use" in capsys.readouterr().err


def test_the_command_opens_the_page_in_the_browser(monkeypatch, capsys):
    opened = threading.Event()
    addresses = []
    monkeypatch.setattr(cli_explore, "run_server", lambda *_, **__: opened.wait(30))
    monkeypatch.setattr(webbrowser, "open", lambda address: (addresses.append(address), opened.set()))
    assert main(["explore", "reverse", "--compare", "copy", "--port", "0"]) == 0
    assert addresses[0] in capsys.readouterr().out
    assert addresses[0].startswith("http://127.0.0.1:")


def test_a_signal_ends_the_command():
    command = [sys.executable, "-m", "universal_transformer", "explore", "reverse", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline().split("http://127.0.0.1:")[1].split("/")[0])
        answer = Address(port, None).ask("POST", "/api/stream", {"text": "31415"})
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    *tokens, last = events(answer)
    assert [each["token"] for each in tokens] == [*"51413", "<end>"]
    assert last["trace"]["answer"] == "51413"
