"""``python -m benchmarks.serving``: ``ut serve`` under clients, compared with a fixed depth and another server.

A language model with random weights, whose halting is calibrated to a mean number of steps, is served twice: with its
halting, and at the fixed depth of all steps. With ``--peer PYTHON``, an interpreter with transformers and its
server, ``transformers serve`` serves a GPT-2 of the same width, filter width, heads, vocabulary and number of layers.
Each client sends its next request when it has the answer to the last one. The servers take turns.

Every figure is the median over turns: new tokens per second of all clients, and the median and the 95th percentile
of the seconds of a request. One client is also compared with `generate` in a process without a server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.continuous import PROMPT, random_language_model
from benchmarks.random_models import BenchmarkSizes
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.decoding import DecodingOptions, generate
from universal_transformer.files import write_json
from universal_transformer.models.universal import LanguageModel
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.recipes import RECIPES
from universal_transformer.runs.folder import CONFIG
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.tokenized import RunningText
from universal_transformer.typed import replaced

SIZES = BenchmarkSizes(width=256, heads=4, filter_width=1024, batch=32, length=32, max_steps=8)
QUICK = BenchmarkSizes(width=16, heads=2, filter_width=32, batch=4, length=4, max_steps=4)
SHARE = 0.3
"""Mean steps over the largest number of steps."""
PEER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
folder, size, width, filter_width, heads, layers = sys.argv[1], *map(int, sys.argv[2:])
rules = Tokenizer(models.WordLevel({f"w{place}": place for place in range(size)}, unk_token="w3"))
rules.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="w3").save_pretrained(folder)
GPT2LMHeadModel(GPT2Config(vocab_size=size, n_positions=512, n_embd=width, n_inner=filter_width, n_head=heads,
    n_layer=layers, bos_token_id=1, eos_token_id=None, pad_token_id=0)).save_pretrained(folder)
"""


@dataclass(frozen=True)
class Served:
    """A server: its port, the name of its model, and fields that each request has for it alone."""

    port: int
    model: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Load:
    """What clients measured in one turn."""

    tokens_per_second: float
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def slowest(self) -> float:
        """The 95th percentile."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(0.95 * len(self.seconds)))]


def ask(served: Served, prompt: Sequence[int], *, tokens: int) -> int:
    """Let a server continue a prompt; the number of new tokens."""
    body = {"model": served.model, "prompt": " ".join(f"w{token}" for token in prompt), "max_tokens": tokens}
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=600)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body | served.fields), headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        usage: dict[str, int] = json.loads(content)["usage"]
        return usage["completion_tokens"]
    finally:
        connection.close()


def load(served: Served, prompts: Sequence[Sequence[int]], *, clients: int, seconds: float, tokens: int) -> Load:
    """Keep ``clients`` requests open for some time; a request that is open at the end is finished and counted."""
    times: list[float] = []
    made: list[int] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        turn = number
        while (begun := time.perf_counter()) < end or turn == number:
            made.append(ask(served, prompts[turn % len(prompts)], tokens=tokens))
            times.append(time.perf_counter() - begun)
            turn += clients

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Load(sum(made) / (time.perf_counter() - begun), tuple(times))


def alone(model: LanguageModel, prompts: Sequence[Sequence[int]], *, seconds: float, tokens: int) -> Load:
    """Continue one prompt after the other without a server."""
    times: list[float] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or not times:
        before = time.perf_counter()
        generate(model, [list(prompts[len(times) % len(prompts)])], DecodingOptions(max_new_tokens=tokens))
        times.append(time.perf_counter() - before)
    return Load(len(times) * tokens / (time.perf_counter() - begun), tuple(times))


def save_run(folder: Path, model: LanguageModel) -> None:
    """Write a model as a run whose tokens are words."""
    text = " ".join(f"w{token}" for token in range(4, model.config.vocabulary.size))
    tokenizer = Tokenizer.train([text], kind="whitespace", vocabulary_size=model.config.vocabulary.size)
    side = RunningText(tokenizer, block_length=256)
    config = replaced(model.config, side.source_fields)
    recipe = replaced(RECIPES["text"](), {"model": config, "training.minutes": 1.0})
    folder.mkdir()
    write_json(folder / CONFIG, recipe.to_dict())
    model.save_pretrained(folder / "model")
    Codec.shared(side).save(folder / "model")


def fixed(model: LanguageModel) -> LanguageModel:
    """The same weights at the fixed depth of all steps."""
    other = LanguageModel(replace(model.config, halting=HaltingConfig(side="none")))
    other.load_state_dict({name: value for name, value in model.state_dict().items() if ".halting." not in name})
    return other.eval()


@contextmanager
def process(command: Sequence[str], *, ready: Callable[[subprocess.Popen[str]], int]) -> Iterator[int]:
    """A server in a process of its own; its port."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
    try:
        yield ready(running)
    finally:
        running.terminate()
        running.wait(60)


def printed_port(running: subprocess.Popen[str]) -> int:
    """The port that ``ut serve`` prints."""
    assert running.stdout is not None
    return int(running.stdout.readline().split("://")[1].split("/")[0].split(":")[1])


def answering(port: int) -> Callable[[subprocess.Popen[str]], int]:
    """Wait until a server answers at a port."""

    def wait(running: subprocess.Popen[str]) -> int:
        while running.poll() is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                connection.request("GET", "/health")
                connection.getresponse().read()
                return port
            except OSError:
                time.sleep(0.5)
            finally:
                connection.close()
        raise RuntimeError("the other server has ended")

    return wait


def main() -> int:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=1, help="of torch, in each server")
    parser.add_argument("--peer", default="", help="a Python with transformers and its server")
    parser.add_argument("--peer-port", type=int, default=8765)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, which only show that it runs")
    given = parser.parse_args()
    sizes = QUICK if given.quick else SIZES
    torch.set_num_threads(given.threads)
    model, prompts = random_language_model(sizes, share=SHARE)
    prompts = [prompt[1:] for prompt in prompts]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, servers = Path(name), dict[str, Served]()
        environment = ["env", f"OMP_NUM_THREADS={given.threads}"]
        for label, served in (("halting", model), ("fixed depth", fixed(model))):
            run = folder / label.replace(" ", "-")
            save_run(run, served)
            command = [*environment, sys.executable, "-m", "universal_transformer", "serve", str(run), "--port", "0"]
            port = stack.enter_context(process([*command, "--capacity", "128"], ready=printed_port))
            servers[label] = Served(port, run.name, {})
        if given.peer:
            peer = folder / "peer"
            numbers = (model.config.vocabulary.size, sizes.width, sizes.filter_width, sizes.heads, sizes.max_steps)
            subprocess.run([given.peer, "-c", PEER, str(peer), *map(str, numbers)], check=True)  # noqa: S603
            command = [
                *environment,
                given.peer,
                "-c",
                "from transformers.cli.transformers import main; main()",
                "serve",
            ]
            port = given.peer_port
            command += [str(peer), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
            stack.enter_context(process(command, ready=answering(port)))
            servers["transformers serve"] = Served(port, str(peer), {"temperature": 0})
        loads: dict[tuple[str, int], list[Load]] = {}
        for turn in range(given.turns + 1):  # the first one warms up
            for clients in given.clients:
                for label, server in servers.items():
                    seconds = given.seconds if turn else min(1.0, given.seconds)
                    found = load(server, prompts, clients=clients, seconds=seconds, tokens=sizes.length)
                    loads.setdefault((label, clients), []).append(found)
            found = alone(model, prompts, seconds=given.seconds, tokens=sizes.length)
            loads.setdefault(("generate, no server", 1), []).append(found)
    tokens = f"{PROMPT - 1} + {sizes.length} tokens a request"
    print(f"width {sizes.width}, {sizes.max_steps} steps, {tokens}, random weights\n")
    print("| | clients | tokens/s | median, s | 95 %, s |\n|---|---|---|---|---|")
    for (label, clients), turns in sorted(loads.items(), key=lambda item: (item[0][1], item[0][0])):
        rates = [turn.tokens_per_second for turn in turns[1:]]
        middle, late = (statistics.median(map(each, turns[1:])) for each in (lambda t: t.median, lambda t: t.slowest))
        print(f"| {label} | {clients} | {statistics.median(rates):,.0f} | {middle:.2f} | {late:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
