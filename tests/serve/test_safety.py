"""What a server on this machine is held to, over sockets (what must hold of the local page: hosts, origins, sizes)."""

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from universal_transformer.cli import main

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
from small_server import Address, read_all, serving, writer
from universal_transformer.serve import guard

ROUTES = (
    ("POST", "/v1/completions"),
    ("POST", "/predict"),
    *(("GET", f"/{x}") for x in ("v1/models", "health", "metrics")),
)
HOSTS = (
    *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:8000", "127.0.0.2", "0.0.0.1"),
    *("10.0.0.1", "[::2]", "[::ffff:127.0.0.1]", "::1", "localhost:80:80", "127.0.0.1@evil.example", "localhost/"),
    *("localhost#", "", " ", "*", "null", "a" * 300, "localhost,evil.example", "2130706433", "0x7f000001", "127.1"),
    *("LOCALHOST.", "localhost..", "loc\u0430lhost", "127.0.0.1:", "127.0.0.1:99999999", "tiny", "localhost evil"),
)
SCRIPTS = (
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "</pre><svg/onload=alert(1)>",
    "\u2028;//",
    "]]>",
)


@pytest.fixture(scope="module")
def server():
    with serving(writer(), rows=2, capacity=60, queue=8, longest=50) as address:
        yield address


def head(method, path, **headers):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


def posted(size, **headers):
    """The head of a request for a completion with a body of so many bytes."""
    fields = {"Host": "localhost", "Content_Type": "application/json", "Content_Length": size, **headers}
    return head("POST", "/v1/completions", **fields)


def status(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer.split(b" ", 2)[1])


def safe(answer):
    """Whether an answer has every header of the guard, permits no page of another server, and is no page itself."""
    lines = answer.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")[1:]
    found = dict(line.split(": ", 1) for line in lines)
    assert not any(name.startswith("access-control") for name in found)
    assert "html" not in found.get("content-type", "")
    return all(found.get(name) == value for name, value in guard.HEADERS.items())


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_other_hosts_are_refused_at_every_route(server, method, path):
    assert len(HOSTS) == 30
    for host in HOSTS:
        answer = server.raw(head(method, path, Host=host, Connection="close"))
        assert status(answer) in (400, 421), host
        assert safe(answer)
    two = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n".encode()
    for data in (two, f"{method} {path} HTTP/1.0\r\n\r\n".encode()):
        assert status(server.raw(data)) in (400, 421)
    for host in ("localhost", "127.0.0.1:8000", "[::1]:80"):
        if method == "GET":
            answer = server.raw(head(method, path, Host=host, Connection="close"))
            assert status(answer) == 200
            assert safe(answer)


@pytest.mark.parametrize("path", ["/v1/completions", "/predict"])
def test_pages_of_other_servers_are_refused(server, path):
    own = f"http://127.0.0.1:{server.port}"
    body = json.dumps({"prompt": "a", "max_tokens": 1} if path == "/v1/completions" else {"inputs": ["a"]})
    for origin in ("http://evil.example", "null", "https://127.0.0.1", f"{own}.evil.example", "file://"):
        assert server.ask("POST", path, body, {"Origin": origin}).status == 403
    for site in ("cross-site", "same-site", "?"):
        assert server.ask("POST", path, body, {"Sec-Fetch-Site": site}).status == 403
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""):
        assert server.ask("POST", path, body, {"Content-Type": kind}).status == 415
    preflight = server.ask("OPTIONS", path, headers={"Origin": own, "Access-Control-Request-Method": "POST"})
    assert preflight.status == 405
    assert not [name for name in preflight.headers if name.lower().startswith("access-control")]
    assert server.ask("POST", path, body, {"Origin": own, "Sec-Fetch-Site": "same-origin"}).status == 200


@pytest.mark.parametrize("text", SCRIPTS)
def test_a_text_is_answered_as_json(server, text):
    for body in (
        {"prompt": text, "max_tokens": 2},
        {"prompt": "a", text: 1},
        {"prompt": "a", "stop": 5, "model": text},
    ):
        answer = server.complete(**body)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json
    assert server.predict(text).status == 200
    assert server.predict("a", exit=text).status == 400
    for method in ("GET", "POST", "BREW"):
        data = head(method, "/" + text.replace(" ", "%20"), Host="localhost", Connection="close")
        assert safe(server.raw(data.decode().encode("utf-8")))


def test_a_body_may_have_one_mebibyte(server):
    large = b"x" * (4 * guard.MOST_BYTES)
    assert server.ask("POST", "/predict", large).status == 413
    declared = head("POST", "/predict", Host="localhost", Content_Type="application/json", Content_Length=10**12)
    assert status(server.raw(declared)) == 413
    chunked = head("POST", "/predict", Host="localhost", Content_Type="application/json", Transfer_Encoding="chunked")
    with server.connect() as connection:
        connection.sendall(chunked)
        assert sent_away(connection, b"10000\r\n" + b"x" * 65536 + b"\r\n", pause=0.0)
    fitting = json.dumps({"inputs": ["a" * 40]}) + " " * 10**6
    assert server.ask("POST", "/predict", fitting).status == 200
    (found,) = server.predict(" ".join(["the"] * 45)).json["predictions"]
    assert "a prompt of 45 tokens; this run takes at most 39" in found["error"]
    assert server.complete(prompt=[5] * 55).status == 413
    assert server.predict(*["a"] * 257).status == 400


def test_slow_clients_are_sent_away_while_others_are_served(server, monkeypatch):
    monkeypatch.setattr(guard, "RECEIPT", 1.0)
    with_body = head("POST", "/predict", Host="localhost", Content_Type="application/json", Content_Length=100)
    begins = (b"", b"POST /pre", head("GET", "/health", Host="localhost")[:-2], with_body, with_body + b'{"in')
    begun = time.monotonic()
    connections = [server.connect() for _ in range(100)]
    try:
        for number, connection in enumerate(connections):
            connection.sendall(begins[number % 5])
        answered = time.monotonic()
        assert server.complete(prompt="a", max_tokens=2).status == 200
        assert time.monotonic() - answered < 10.0  # 2 s on a machine that does nothing else
        for number, connection in enumerate(connections):
            answer = read_all(connection)
            assert (status(answer) if answer else None) == (408 if number % 5 > 2 else None)
        assert time.monotonic() - begun < 20.0
    finally:
        for connection in connections:
            connection.close()


def sent_away(connection, data, *, pause):
    """Whether a server closes a connection on which the same bytes arrive again and again."""
    try:
        for _ in range(400):
            connection.sendall(data)
            time.sleep(pause)
    except OSError:
        return True
    return False


def test_a_client_that_trickles_is_sent_away(server, monkeypatch):
    monkeypatch.setattr(guard, "RECEIPT", 0.5)
    with server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        assert sent_away(connection, b"X: y\r\n", pause=0.05)


@pytest.mark.parametrize("path", ["/v1/completions", "/predict"])
def test_as_many_wait_as_may_and_the_others_are_told(path, monkeypatch):
    body = {"prompt": "a", "max_tokens": 2} if path == "/v1/completions" else {"inputs": ["a"]}
    with serving(writer(), rows=1, capacity=60, queue=8) as server:
        engine, gate = server.service.engine, threading.Event()
        turn = engine._turn
        monkeypatch.setattr(engine, "_turn", lambda: gate.wait(30) and turn())
        found = []
        threads = [threading.Thread(target=lambda: found.append(server.ask("POST", path, body))) for _ in range(64)]
        for thread in threads:
            thread.start()
        while len(found) < 56:
            time.sleep(0.01)
        assert engine.waiting == 8
        gate.set()
        for thread in threads:
            thread.join()
        assert Counter(answer.status for answer in found) == {200: 8, 503: 56}
        assert all(answer.headers["Retry-After"] == "1" for answer in found if answer.status == 503)
        assert server.ask("POST", path, body).status == 200


def test_no_path_gives_anything_else(server):
    draw = random.Random(0)
    parts = ["..", "%2e%2e", "etc", "passwd", "v1", "completions", "predict", "health", "%00", "\\", "//", "~", "?a=b"]
    parts += ["%2f", ".", "static", "index.html", ";", "%c0%ae", "C:", "metrics", "&"]
    with server.connect() as connection:
        for _ in range(500):
            path = "/" + "/".join(draw.choices(parts, k=draw.randint(1, 5)))
            if path.partition("?")[0] in {route for _, route in ROUTES}:
                continue
            connection.sendall(head("GET", path, Host="localhost"))
            answer = b""
            while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert status(answer) == 404, path
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"] == "Not Found"


def mutated(draw):
    """A request that is damaged somewhere."""
    body = json.dumps({"prompt": "the red", "max_tokens": 3, "temperature": 0.5, "n": 2, "stop": ["x"]}).encode()
    kind = draw.randrange(5)
    if kind == 0:
        place = draw.randrange(len(body))
        body = body[:place] + bytes([draw.randrange(256)]) * draw.randrange(4) + body[place + draw.randrange(3) :]
    elif kind == 1:
        value = draw.choice([None, -1, 1e999, "x", [], {}, [[]], [["a"]], True, 2**70, "\ud800", ["a", 1], [[1], "a"]])
        names = ("prompt", "max_tokens", "temperature", "n", "stop", "stream", "logprobs", "seed", "exit", "top_k")
        body = json.dumps({"prompt": "a", "max_tokens": 2, draw.choice(names): value}).encode()
    elif kind == 2:
        body = draw.choice(
            [b"", b"[]", b"null", b"[" * 100_000, b'{"a":1,"a":1}', b"\xff\xfe", b"NaN", b'{"prompt":NaN}']
        )
    elif kind == 3:
        body = bytes(draw.randrange(256) for _ in range(draw.randrange(60)))
    request = posted(len(body), Connection="close")
    if kind == 4:
        place = draw.randrange(len(request))
        request = request[:place] + bytes(draw.randrange(256) for _ in range(3)) + request[place:]
    return request + body


def test_a_malformed_request_ends_nothing(server, capfd):
    draw = random.Random(1)
    failures = server.service.engine.counts.failures
    for _ in range(150):
        with server.connect() as connection:
            connection.sendall(mutated(draw))
            connection.shutdown(socket.SHUT_WR)
            answer = read_all(connection)
        if answer:  # a client that says that it sends no more may have no answer
            assert status(answer) in (200, 400, 404, 405, 408, 413, 415, 421), answer
    assert server.service.engine.counts.failures == failures
    assert server.complete(prompt="the red", max_tokens=3).status == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("stream", [False, True])
def test_the_row_of_a_client_that_goes_is_free(server, stream, monkeypatch):
    engine = server.service.engine
    turn = engine._turn
    monkeypatch.setattr(engine, "_turn", lambda: (time.sleep(0.05), turn()))
    body = json.dumps({"prompt": "a", "max_tokens": 58, "stream": stream, "temperature": 1.0, "seed": 4}).encode()
    with server.connect() as connection:
        connection.sendall(posted(len(body)) + body)
        while not engine.running:
            time.sleep(0.01)
    until = time.monotonic() + 20
    while engine.running and time.monotonic() < until:
        time.sleep(0.01)
    assert not engine.running
    (before, after) = (engine.counts.tokens, server.complete(prompt="a", max_tokens=1))
    assert after.status == 200
    assert engine.counts.tokens <= before + 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_of_the_model_fails_those_that_run_and_no_others(server, stream, monkeypatch, capfd):
    engine, broken = server.service.engine, iter([True])

    def step(batch=engine.batch, step=engine.batch.step):
        if next(broken, False):
            raise RuntimeError("a fault")
        return step()

    monkeypatch.setattr(engine.batch, "step", step)
    answer = server.complete(prompt="a", max_tokens=20, stream=stream)
    if stream:
        assert b'data: {"error"' in answer.body
        assert b"[DONE]" not in answer.body
    else:
        assert answer.status == 500
    assert b"a fault" not in answer.body
    assert "RuntimeError: a fault" in capfd.readouterr().err
    assert server.complete(prompt="a", max_tokens=5).status == 200


def test_a_request_has_its_time(monkeypatch):
    with serving(writer(), rows=1, capacity=60, seconds=0.3) as server:
        engine, gate = server.service.engine, threading.Event()
        turn = engine._turn
        monkeypatch.setattr(engine, "_turn", lambda: gate.wait(30) and turn())
        assert server.complete(prompt="a", max_tokens=2).status == 504
        assert server.predict("a").status == 504
        assert b'data: {"error"' in server.complete(prompt="a", max_tokens=2, stream=True).body
        gate.set()
        assert server.complete(prompt="a", max_tokens=1).status == 200


def test_an_address_that_is_taken_is_refused(server, capsys):
    assert main(["serve", "reverse", "--port", str(server.port)]) == 2
    assert f"--port {server.port}: Address already in use" in capsys.readouterr().err
    assert main(["serve", "reverse", "--host", "host.invalid"]) == 2
    assert "--host host.invalid" in capsys.readouterr().err


@contextmanager
def started(*options):
    """`ut serve` in a process of its own, and where it is."""
    command = [sys.executable, "-m", "universal_transformer", "serve", "reverse", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline().split("http://127.0.0.1:")[1].split("/")[0])
        yield process, Address(port, None)
    finally:
        process.kill()
        process.communicate()


def test_a_signal_to_end_lets_what_runs_finish():
    with started("--capacity", "300") as (process, address):
        source = "31415926535897932384" * 8
        body = json.dumps({"prompt": source, "stream": True}).encode()
        with address.connect(60) as connection:
            connection.sendall(posted(len(body)) + body)
            answer = connection.recv(1000)
            process.send_signal(signal.SIGTERM)
            answer += read_all(connection)
        events = [line.removeprefix("data: ") for line in answer.decode().splitlines() if line.startswith("data: {")]
        choices = [json.loads(event)["choices"][0] for event in events]
        assert "".join(choice["text"] for choice in choices) == source[::-1]
        assert "data: [DONE]" in answer.decode()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_minute_of_32_clients_beside_1000_malformed_requests():
    """No error, and no more memory after a minute than after ten seconds, but for 64 MB."""

    def client(number):
        draw = random.Random(number)
        while time.monotonic() < end:
            source = "".join(draw.choices("0123456789", k=draw.randint(1, 60)))
            stream = bool(number % 2)
            answer = address.complete(prompt=source, stream=stream)
            assert answer.status == 200, answer.body
            choices = [c for e in answer.events for c in e["choices"]] if stream else answer.json["choices"]
            right.append("".join(choice["text"] for choice in choices) == source[::-1])

    def memory():
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as lines:
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    with started() as (process, address):
        end, right, draw, sizes = time.monotonic() + 60, [], random.Random(2), []
        with ThreadPoolExecutor(32) as pool:
            clients = [pool.submit(client, number) for number in range(32)]
            time.sleep(10)
            sizes.append(memory())
            for _ in range(1000):
                with address.connect() as connection:
                    connection.sendall(mutated(draw))
                    connection.shutdown(socket.SHUT_WR)
                    read_all(connection)
            for each in clients:
                each.result()
        sizes.append(memory())
        counted = dict(line.rsplit(" ", 1) for line in address.get("/metrics").body.decode().splitlines())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    print(f"{len(right)} answers, {sum(right)} right, {counted}, {sizes[0]:.0f} and {sizes[1]:.0f} MB")
    assert sum(right) > 0.99 * len(right) > 0
    assert counted["ut_failures_total"] == "0"
    assert counted["ut_running"] == counted["ut_waiting"] == "0"
    assert not [name for name in counted if 'status="5' in name]
    assert sizes[1] < sizes[0] + 64
