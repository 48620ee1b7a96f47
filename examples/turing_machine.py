"""A Universal Transformer can be any Turing machine: this script compiles the table of a machine into its weights.

Why recurrence over depth gives universality: a Transformer of fixed depth makes a fixed number of steps for any input.
A block that is applied until every position has halted makes as many steps as the computation needs. Here a position is
a cell of the tape, a depth step is a step of the machine, and a position halts when the machine halts. Nothing is
trained and no part is left out: sinusoids encode positions, attention moves the machine's head from cell to cell, the
transition writes, every residual and LayerNorm is in place (post-norm), and the halting unit counts N.

The state of a position. Let u hold four groups of channels. In each of the first three, one channel is 1 and the others
are 0; the last has sines and cosines:

    cell      the content of the cell: a symbol, and the state of the machine if its head is here
    arrival   the state in which the head arrives, "none" at first
    flag      go, or stop: the next step is the last step of the machine
    wave      sine and cosine of the position, at a few frequencies

The state is (u, -u). Its mean is 0 and its length is constant, so that LayerNorm with the right scale is the identity
on all states that occur. A step has two blocks:

    move      attention head m (m = -1, 0, 1) attends to the cell from which a move by m leads here, and reads the state
              in which the machine arrives, if the rule of that cell moves by m. The transition is an AND for each
              possible content of the cell: "the rule here writes s" and "the arriving state is q" give the cell (q, s).
    listen    attention finds the machine's head. If its next step is the last, all positions stop after it.
"""

import random
from itertools import product
from typing import NamedTuple

import torch
from torch import nn

from universal_transformer.interop.tensor2tensor_parts import OfficialCoordinates, OfficialRecurrence
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.block import Block, PostNorm
from universal_transformer.nn.context import Context, Depth
from universal_transformer.nn.coordinates import SinusoidalPositions
from universal_transformer.nn.halting import ACT
from universal_transformer.nn.step_config import AttentionConfig, HaltingConfig, Sizes, StepConfig, TransitionConfig
from universal_transformer.nn.transition import FeedForward

HALT, EDGE, BLANK = ("halt", "#", "_")  # the edge ends the tape; a machine must not reach it
WAVES = 6  # frequencies that encode positions
SHARP = 60.0  # difference between the logit of the right cell and all others: exp(-60) is negligible


class Machine(NamedTuple):
    """A name and rules: (state, symbol) -> (symbol to write, move, next state).

    It starts in the first state of the table. Where there is no rule, it halts.
    """

    name: str
    table: dict[tuple[str, str], tuple[str, int, str]]

    @property
    def states(self):
        return [*dict.fromkeys(state for state, _ in self.table), HALT]

    @property
    def symbols(self):
        read, written = [symbol for _, symbol in self.table], [symbol for symbol, _, _ in self.table.values()]
        return [*dict.fromkeys([BLANK, *read, *written])]

    def rule(self, state, symbol):
        return self.table.get((state, symbol), (symbol, 0, HALT))

    def tape(self, text, *, margin):
        """Cells (state or None, symbol): ``text`` head on its first symbol, ``margin`` blanks on each side."""
        blanks = [(None, BLANK)] * margin
        cells = [(None, symbol) for symbol in text]
        cells[0] = (self.states[0], text[0])
        return [(None, EDGE), *blanks, *cells, *blanks, (None, EDGE)]

    def run(self, tape, *, limit):
        """The direct simulation: the tape when the machine halts or after ``limit`` steps, and the steps made."""
        tape = [*tape]
        for step in range(limit):
            place = next(place for place, (state, _) in enumerate(tape) if state is not None)
            state, symbol = tape[place]
            if state == HALT:
                return tape, step
            symbol, move, state = self.rule(state, symbol)
            tape[place] = (None, symbol)
            assert tape[place + move][1] != EDGE, f"{self.name} has left its tape"
            tape[place + move] = (state, tape[place + move][1])
        return tape, limit


class Channels:
    """The order of the channels in u, and matrices that read and write them by name."""

    def __init__(self, machine):
        self.cells = [(None, EDGE), *product([None, *machine.states], machine.symbols)]
        arrivals = [None, *machine.states]
        names = [
            *(("cell", cell) for cell in self.cells),
            *(("arrival", state) for state in arrivals),
            *(("flag", flag) for flag in ("go", "stop")),
        ]
        self.content = len(names)
        names += [("wave", (k, part)) for k in range(WAVES) for part in ("sine", "cosine")]
        self.half = len(names) + -len(names) % 3  # three heads of attention share the width
        self.width = 2 * self.half
        self.place = {name: place for place, name in enumerate(names)}
        self.frequency = [10_000 ** (-2 * k / self.width) for k in range(WAVES)]

    def read(self, *parts):
        """The row that sums ``weight * channel`` over parts ((kind, value), weight)."""
        row = torch.zeros(self.width)
        for name, weight in parts:
            row[self.place[name]] += weight
        return row

    def write(self, *parts):
        """The column that adds weights to channels of u, and subtracts them from -u."""
        column = self.read(*parts)
        column[self.half :] = -column[: self.half]
        return column

    def start(self, cell):
        """The state of a position before the first step: its cell, go, and waves of the right length."""
        waves = [(("wave", (k, "cosine")), 1.0) for k in range(WAVES)]
        return self.write((("cell", cell), 1), (("arrival", None), 1), (("flag", "go"), 1), *waves)


@torch.no_grad()
def compile_machine(machine, *, longest):
    """The machine as a recurrence over depth, for tapes of up to ``longest`` cells."""
    channels = Channels(machine)
    listen = _listen(machine, channels)
    halting = ACT(channels.width, HaltingConfig(bias=0.0))
    halting.weight[0] = channels.read((("flag", "stop"), 100.0), (("flag", "go"), -100.0))
    recurrence = OfficialRecurrence(
        _coordinates(channels),
        [_move(machine, channels, longest=longest), listen],
        before=[listen],  # finds a machine that halts after one step
        depth=Depth(halting, max_steps=1),
        blocks_per_step=2,
    )
    return recurrence.eval(), channels


def _coordinates(channels):
    """``X = W [H; π]``: the waves of H are replaced by some of the paper's sinusoids, everything else stays."""
    weight = torch.zeros(channels.width, 2 * channels.width)
    for place in range(channels.content):
        weight[place, place] = weight[place + channels.half, place + channels.half] = 1.0
    for k in range(WAVES):
        for part, column in (("sine", 2 * k), ("cosine", 2 * k + 1)):
            weight[:, channels.width + column] = channels.write((("wave", (k, part)), 1.0))
    join = nn.Linear(2 * channels.width, channels.width, bias=False)
    join.weight.copy_(weight)
    return OfficialCoordinates(SinusoidalPositions(channels.width), None, every_step=True, join=join, shifted=False)


def _block(channels, *, num_heads, filter_width):
    """A block of the library with all weights 0. Its norms keep the length that all states have."""
    sizes = Sizes(width=channels.width, num_heads=num_heads, filter_width=filter_width)
    block = Block(
        SelfAttention(sizes, AttentionConfig()),
        FeedForward(sizes, TransitionConfig()),
        norm=lambda: PostNorm(channels.width, StepConfig()),
    )
    for parameter in block.parameters():
        parameter.zero_()
    for sublayer in (block.after_attention, block.after_transition):
        variance = (3 + WAVES) / channels.half  # one cell, one arrival, one flag, and sin² + cos² for each wave
        sublayer.norm.weight.fill_((variance + sublayer.norm.eps) ** 0.5)
    return block


def _move(machine, channels, *, longest):
    """Attention: the state that arrives here. Transition: the new content of the cell."""
    cells, width = channels.cells, channels.width
    known = [cell for cell in cells if cell[1] != EDGE]
    block = _block(channels, num_heads=3, filter_width=2 * len(cells) + 2 * channels.content)
    query, key, value = block.attention.query_key_value.weight.split(width)
    size = width // 3
    for head, move in enumerate((-1, 0, 1)):
        first = head * size
        sharpness = SHARP * size**0.5 / _gap(channels.frequency, longest)
        for k, frequency in enumerate(channels.frequency):
            sine, cosine = ("wave", (k, "sine")), ("wave", (k, "cosine"))
            angle = torch.tensor(-move * frequency)  # rotates to the waves of the cell at distance -move
            query[first + 2 * k] = sharpness * channels.read((sine, angle.cos()), (cosine, angle.sin()))
            query[first + 2 * k + 1] = sharpness * channels.read((cosine, angle.cos()), (sine, -angle.sin()))
            key[first + 2 * k], key[first + 2 * k + 1] = channels.read((sine, 1)), channels.read((cosine, 1))
        for row, state in enumerate(machine.states, start=first):
            moving = [(q, s) for q, s in known if q and machine.rule(q, s)[1:] == (move, state)]
            value[row] = channels.read(*((("cell", cell), 1.0) for cell in moving))
            block.attention.output.weight[:, row] = channels.write((("arrival", state), 1.0), (("arrival", None), -1.0))
    _write_cells(machine, channels, block.transition)
    return block


def _write_cells(machine, channels, transition):
    """The written symbol and the arriving state give the new content; the old content is subtracted.

    ReLU(4 v - 6) - ReLU(4 v - 7) is 1 where both terms of v are 1, and 0 where one or none is: an AND that removes
    rounding errors. The old content is subtracted by ReLU(x) - ReLU(-x) = x. So no error lasts longer than a step.
    """
    inner, outer = transition.inner, transition.outer
    for unit, (state, symbol) in enumerate(channels.cells):
        written = [
            (("cell", (q, s)), 1.0) for q, s in channels.cells if (s if q is None else machine.rule(q, s)[0]) == symbol
        ]
        arriving = written if symbol == EDGE else [(("arrival", state), 1.0)]
        for row, shift in ((2 * unit, 6.0), (2 * unit + 1, 7.0)):
            inner.weight[row] = 4 * channels.read(*written, *arriving)
            inner.bias[row] = -shift
        outer.weight[:, 2 * unit] = channels.write((("cell", (state, symbol)), 1.0))
        outer.weight[:, 2 * unit + 1] = channels.write((("cell", (state, symbol)), -1.0))
    for row, name in enumerate([*channels.place][: channels.content], start=len(channels.cells)):
        inner.weight[2 * row], inner.weight[2 * row + 1] = channels.read((name, 1)), channels.read((name, -1))
        outer.weight[:, 2 * row], outer.weight[:, 2 * row + 1] = (
            channels.write((name, -1)),
            channels.write((name, 1)),
        )
    outer.bias.copy_(channels.write((("arrival", None), 1.0), (("flag", "go"), 1.0)))


def _listen(machine, channels):
    """Every position finds the cell with the machine's head if its next step is the last (or over), otherwise nothing.

    Where no key matches, all weights are equal and all values 0. The transition of this block does nothing.
    """
    block = _block(channels, num_heads=1, filter_width=1)
    query, key, value = block.attention.query_key_value.weight.split(channels.width)
    last = [(("cell", (q, s)), 1.0) for q, s in channels.cells if q is not None and machine.rule(q, s)[2] == HALT]
    query[0] = SHARP * channels.width**0.5 * channels.read((("flag", "go"), 1.0), (("flag", "stop"), 1.0))
    key[0] = value[0] = channels.read(*last)
    block.attention.output.weight[:, 0] = channels.write((("flag", "stop"), 1.0), (("flag", "go"), -1.0))
    return block


def _gap(frequency, longest):
    """The difference between the logit of a position with itself and with any other, before scaling."""
    distance = torch.arange(1.0, longest)
    return float(sum(1 - torch.cos(w * distance) for w in frequency).min())


@torch.no_grad()
def run_transformer(recurrence, channels, tapes, *, limit):
    """Run the transformer on tapes of equal length: the tapes at the end, and N of each position."""
    number = {cell: place for place, cell in enumerate(channels.cells)}
    table = torch.stack([channels.start(cell) for cell in channels.cells])
    states = table[torch.tensor([[number[cell] for cell in tape] for tape in tapes])]
    encoding = recurrence.coordinates.position(torch.arange(states.shape[1])[None])
    states, trace = recurrence(states, Context(depth=recurrence.depth(max_steps=limit), encoding=encoding))
    found = states[..., : len(channels.cells)].argmax(dim=-1)
    return [[channels.cells[cell] for cell in row] for row in found.tolist()], trace.steps.int()


def compare(machine, tapes, *, limit):
    """Compile, run both ways, and check that every cell and every number of steps is the same."""
    recurrence, channels = compile_machine(machine, longest=len(tapes[0]))
    found, steps = run_transformer(recurrence, channels, tapes, limit=limit)
    expected = [machine.run(tape, limit=limit) for tape in tapes]
    assert found == [tape for tape, _ in expected], f"{machine.name}: tapes differ"
    made = torch.tensor([made for _, made in expected])
    assert (steps == made[:, None]).all(), f"{machine.name}: numbers of steps differ"
    return channels.width, made


INCREMENT = Machine(
    "binary increment",
    {
        **{("right", bit): (bit, 1, "right") for bit in "01"},
        ("right", BLANK): (BLANK, -1, "carry"),
        ("carry", "1"): ("0", -1, "carry"),
        ("carry", "0"): ("1", 0, HALT),
        ("carry", BLANK): ("1", 0, HALT),
    },
)
ADDITION = Machine(
    "unary addition",
    {
        ("first", "1"): ("1", 1, "first"),
        ("first", "+"): ("1", 1, "second"),
        ("second", "1"): ("1", 1, "second"),
        ("second", BLANK): (BLANK, -1, "erase"),
        ("erase", "1"): (BLANK, 0, HALT),
    },
)
COUNTER = Machine(  # counts upwards until the number needs one more digit
    "binary counter",
    {
        **{("right", bit): (bit, 1, "right") for bit in "01"},
        ("right", BLANK): (BLANK, -1, "carry"),
        ("carry", "1"): ("0", -1, "carry"),
        ("carry", "0"): ("1", 1, "right"),
    },
)
BUSY_BEAVER = Machine(
    "busy beaver 3",
    {
        ("A", BLANK): ("1", 1, "B"),
        ("A", "1"): ("1", 1, HALT),
        ("B", BLANK): (BLANK, 1, "C"),
        ("B", "1"): ("1", 1, "B"),
        ("C", BLANK): ("1", -1, "C"),
        ("C", "1"): ("1", -1, "A"),
    },
)
PALINDROME = Machine(
    "palindrome checker",
    {
        **{("first", letter): (BLANK, 1, f"to end {letter}") for letter in "ab"},
        ("first", BLANK): ("Y", 0, HALT),
        **{(f"to end {a}", b): (b, 1, f"to end {a}") for a in "ab" for b in "ab"},
        **{(f"to end {a}", BLANK): (BLANK, -1, f"match {a}") for a in "ab"},
        **{(f"match {a}", a): (BLANK, -1, "back") for a in "ab"},
        **{(f"match {a}", b): ("N", 0, HALT) for a, b in ("ab", "ba")},
        **{(f"match {a}", BLANK): ("Y", 0, HALT) for a in "ab"},
        **{("back", letter): (letter, -1, "back") for letter in "ab"},
        ("back", BLANK): (BLANK, 1, "first"),
    },
)


def random_machine(draw, *, states=4, symbols=3):
    """A random table; one rule in six halts."""
    names, alphabet = [f"q{number}" for number in range(states)], f"{BLANK}ab"[:symbols]
    return Machine(
        "random machine",
        {
            key: (
                draw.choice(alphabet),
                draw.choice((-1, 0, 1)),
                HALT if draw.random() < 1 / 6 else draw.choice(names),
            )
            for key in product(names, alphabet)
        },
    )


def random_text(draw, machine):
    """An input that the machine expects, or any text for a random machine, followed by blanks."""
    length = draw.randint(1, 8)
    if machine is ADDITION:
        left = draw.randint(0, length - 1)
        text = "1" * left + "+" + "1" * (length - 1 - left)
    elif machine is PALINDROME:
        text = "".join(draw.choices("ab", k=length))
        text = text[: length // 2] + text[::-1][length // 2 :] if draw.random() < 0.5 else text
    elif machine in (INCREMENT, COUNTER):
        text = "".join(draw.choices("01", k=length))
    else:
        text = "".join(draw.choices(machine.symbols, k=length))
    return text.ljust(8, BLANK)


def show(cells):
    """A tape as text. The machine's head is shown as (state)symbol."""
    return "".join(symbol if state is None else f"({state}){symbol}" for state, symbol in cells)


def main():
    draw = random.Random(0)
    print("The 3-state busy beaver on a blank tape, as the transformer computes it, by number of depth steps:")
    tape = BUSY_BEAVER.tape([BLANK], margin=5)
    recurrence, channels = compile_machine(BUSY_BEAVER, longest=len(tape))
    for depth in range(1, 15):
        ((cells,), steps) = run_transformer(recurrence, channels, [tape], limit=depth)
        print(f"{depth:3}  {show(cells)}")
    (_, steps) = run_transformer(recurrence, channels, [tape], limit=100)
    print(f"With at most 100 steps it halts by itself. N of its positions: {steps[0].tolist()}\n")

    print("machine             tapes  width  steps made  every cell of every tape and every N the same")
    for machine, tapes, margin, limit in (
        (INCREMENT, 1000, 1, 40),
        (ADDITION, 1000, 1, 40),
        (BUSY_BEAVER, 1000, 20, 20),
        (PALINDROME, 1000, 1, 60),
        (COUNTER, 10, 1, 2000),
        *((random_machine(draw), 100, 20, 20) for _ in range(10)),
    ):
        inputs = [machine.tape(random_text(draw, machine), margin=margin) for _ in range(tapes)]
        width, made = compare(machine, inputs, limit=limit)
        steps = f"{int(made.min())} to {int(made.max())}"
        print(f"{machine.name:19} {tapes:5}  {width:5}  {steps:>10}  yes")


if __name__ == "__main__":
    main()
