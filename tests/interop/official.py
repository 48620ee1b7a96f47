"""The official computation once more, one sequence, one position and one head at a time, in float64.

Written from the description of the official code (``tests/golden/README.md``), with its variables under their own
names and made when first asked for, as TensorFlow does. It knows nothing of our modules: the tests load the variables
it made into our models and compare.
"""

import math
from dataclasses import dataclass, field

import numpy as np

HPARAMS = {
    "hidden_size": 8,
    "filter_size": 12,
    "num_heads": 2,
    "recurrence_type": "basic",
    "num_rec_steps": 3,
    "act_type": "basic",
    "act_epsilon": 0.01,
    "act_max_steps": 4,
    "act_loss_weight": 0.01,
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
    "norm_epsilon": 1e-6,
    "transformer_ffn_type": "fc",
    "use_pad_remover": True,
    "num_inrecurrence_layers": 1,
    "mix_with_transformer": None,
    "num_mixedin_layers": 2,
    "add_position_timing_signal": True,
    "add_step_timing_signal": True,
    "step_timing_signal_type": "learned",
    "add_or_concat_timing_signal": "add",
    "position_start_index": None,
    "pos": None,
    "add_sru": False,
    "gates_inputs": "i",
    "couple_carry_transform_gates": True,
    "depth_embedding": True,
    "dwa_elements": True,
    "lstm_forget_bias": 1.0,
    "use_memory_as_final_state": False,
    "add_ffn_unit_to_the_transition_function": False,
    "use_target_space_embedding": True,
    "shared_embedding_and_softmax_weights": True,
    "shared_embedding": False,
    "symbol_modality_num_shards": 1,
    "multiply_embedding_mode": "sqrt_depth",
}


class Store:
    """Variables by name. One that is asked for and not there is drawn, as float32 numbers."""

    def __init__(self, *, seed=0, values=None):
        self.random, self.values = np.random.default_rng(seed), dict(values or {})

    def get(self, name, *shape):
        if name not in self.values:
            drawn = self.random.standard_normal(shape)
            if name.endswith("layer_norm_scale"):
                drawn = 1 + 0.2 * drawn
            elif name.endswith("bias"):
                drawn = 0.3 * drawn - (1.0 if "pondering" in name else 0.0)
            elif "pondering" in name:
                drawn = drawn * 0.5
            elif name.endswith("kernel"):
                drawn = drawn * max(shape[0] * shape[-2] if len(shape) == 4 else shape[0], 1) ** -0.5
            else:
                drawn = drawn * 0.5
            self.values[name] = drawn.astype(np.float32).astype(np.float64)
        assert self.values[name].shape == shape, name
        return self.values[name]


@dataclass
class Ran:
    """The last states of one sequence; N and R by position (one number each for global halting)."""

    states: np.ndarray
    steps: list = field(default_factory=list)
    remainders: list = field(default_factory=list)
    margin: float = 1.0  # how near a decision came to the threshold


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def timing(position, channels):
    count = channels // 2
    rates = [10000 ** (-i / max(count - 1, 1)) for i in range(count)]
    return np.array([math.sin(position * r) for r in rates] + [math.cos(position * r) for r in rates])


@dataclass
class Side:
    """The encoder or the decoder on one sequence. ``padding`` has one truth a position, or is None."""

    store: Store
    hparams: dict
    name: str  # "encoder" or "decoder"
    padding: list | None = None
    memory: np.ndarray | None = None
    memory_padding: list | None = None

    @property
    def scope(self):
        return f"{self.name}/universal_transformer_{self.hparams['recurrence_type']}"

    @property
    def steps(self):
        return self.hparams["act_max_steps" if self.hparams["recurrence_type"] == "act" else "num_rec_steps"]

    def dense(self, scope, x, size, *, bias=True):
        y = x @ self.store.get(f"{scope}/kernel", x.shape[-1], size)
        return y + self.store.get(f"{scope}/bias", size) if bias else y

    def norm(self, scope, x):
        scale = self.store.get(f"{scope}/layer_norm/layer_norm_scale", x.shape[-1])
        shift = self.store.get(f"{scope}/layer_norm/layer_norm_bias", x.shape[-1])
        rows = []
        for row in x:
            variance = sum((row - row.mean()) ** 2) / len(row)
            rows.append((row - row.mean()) / math.sqrt(variance + self.hparams["norm_epsilon"]) * scale + shift)
        return np.array(rows)

    def before(self, scope, x):
        if "n" in self.hparams["layer_preprocess_sequence"].replace("none", ""):
            return self.norm(f"{scope}/layer_prepostprocess", x)
        return x

    def after(self, scope, x, y):
        if "n" in self.hparams["layer_postprocess_sequence"]:
            return self.norm(f"{scope}/layer_postprocess", x + y)
        return x + y

    def attention(self, scope, asking, asked, sees):
        """``sees(i, j)``: whether position ``i`` looks at position ``j``."""
        width, heads = self.hparams["hidden_size"], self.hparams["num_heads"]
        scope, size = f"{scope}/multihead_attention", width // heads
        q = self.dense(f"{scope}/q", asking, width, bias=False)
        k = self.dense(f"{scope}/k", asked, width, bias=False)
        v = self.dense(f"{scope}/v", asked, width, bias=False)
        combined = np.zeros_like(q)
        for i in range(len(asking)):
            keys = [j for j in range(len(asked)) if sees(i, j)]
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                weights = np.array([math.exp(q[i, part] * size**-0.5 @ k[j, part]) for j in keys])
                combined[i, part] = sum(w * v[j, part] for w, j in zip(weights / weights.sum(), keys, strict=True))
        return self.dense(f"{scope}/output_transform", combined, width, bias=False)

    def attend(self, scope, x):
        real = [True] * len(x) if self.padding is None else [not blank for blank in self.padding]
        own = f"{scope}/self_attention"
        if self.name == "encoder":
            n = self.before(own, x)
            return self.after(own, x, self.attention(own, n, n, lambda _, j: real[j]))
        n = self.before(own, x)
        x = self.after(own, x, self.attention(own, n, n, lambda i, j: j <= i))
        if self.memory is None:
            return x
        cross, shown = f"{scope}/encdec_attention", [not blank for blank in self.memory_padding]
        return self.after(cross, x, self.attention(cross, self.before(cross, x), self.memory, lambda _, j: shown[j]))

    def separable(self, scope, x, size, *, taps):
        channels = x.shape[-1]
        depth = self.store.get(f"{scope}/depthwise_kernel", taps, 1, channels, 1)
        point = self.store.get(f"{scope}/pointwise_kernel", 1, 1, channels, size)
        if self.name == "encoder" and self.padding is not None:
            x = np.array([0 * row if blank else row for row, blank in zip(x, self.padding, strict=True)])
        first = taps // 2 if self.name == "encoder" else taps - 1
        rows = []
        for i in range(len(x)):
            near = [(tap, i + tap - first) for tap in range(taps)]
            total = sum((x[j] * depth[tap, 0, :, 0] for tap, j in near if 0 <= j < len(x)), np.zeros(channels))
            rows.append(total @ point[0, 0])
        return np.array(rows) + self.store.get(f"{scope}/bias", size)

    def transition(self, scope, x):
        scope = f"{scope}/ffn"
        n = self.before(scope, x)
        width, inner = self.hparams["hidden_size"], self.hparams["filter_size"]
        if self.hparams["transformer_ffn_type"] == "sepconv":
            inside = f"{scope}/sepconv_relu_sepconv"
            hidden = np.maximum(self.separable(f"{inside}/conv1_single", n, inner, taps=3), 0)
            y = self.separable(f"{inside}/conv2_single", hidden, width, taps=5)
        else:
            hidden = np.maximum(self.dense(f"{scope}/conv1", n, inner), 0)
            y = self.dense(f"{scope}/conv2", hidden, width)
            if self.name == "encoder" and self.hparams["use_pad_remover"] and self.padding is not None:
                y = np.array([0 * row if blank else row for row, blank in zip(y, self.padding, strict=True)])
        return self.after(scope, x, y)

    def layer(self, scope, x):
        return self.transition(scope, self.attend(scope, x))

    def step_input(self, x, step):
        hparams, width = self.hparams, self.hparams["hidden_size"]
        joins = hparams["add_or_concat_timing_signal"] == "concat"
        if hparams["add_position_timing_signal"]:
            first = 0
            if hparams["position_start_index"] == "step":
                first = int(len(x) * step / self.steps)
            signal = np.array([timing(first + i, width) for i in range(len(x))])
            x = np.concatenate([x, signal], axis=-1) if joins else x + signal
        if hparams["add_step_timing_signal"]:
            channels = x.shape[-1]
            if hparams["step_timing_signal_type"] == "learned":
                table = self.store.get(f"{self.scope}/layer_embedding", self.steps, 1, 1, channels)
                moment = table[step, 0, 0] * math.sqrt(channels)
            else:
                moment = timing(step, channels)
            x = np.concatenate([x, np.tile(moment, (len(x), 1))], axis=-1) if joins else x + moment
        if joins and hparams["add_position_timing_signal"]:
            x = self.dense(f"{self.scope}/dense", x, width, bias=False)
        return self.sru(x) if hparams["add_sru"] else x

    def sru(self, x):
        width = self.hparams["hidden_size"]
        for index in range(2):
            parts = self.dense(f"{self.scope}/sru/kernel_{index}", x, 3 * width)
            cell, rows = np.zeros(width), []
            for row, part in zip(x, parts, strict=True):
                new, forget, reset = part[:width], sigmoid(part[width : 2 * width]), sigmoid(part[2 * width :])
                cell = forget * cell + (1 - forget) * new
                rows.append(reset * cell + (1 - reset) * row)
            x = np.array(rows)
        return x

    def gate(self, name, *inputs, function):
        """A dense layer of several inputs, 0 at what the pad remover removes."""
        y = function(self.dense(f"{self.scope}/{name}", np.concatenate(inputs, axis=-1), self.hparams["hidden_size"]))
        if self.name == "encoder" and self.hparams["use_pad_remover"] and self.padding is not None:
            y = np.array([0 * row if blank else row for row, blank in zip(y, self.padding, strict=True)])
        return y

    def numbered(self, number, x):
        """The norm of this number that has no scope of its own."""
        if "n" not in self.hparams["layer_preprocess_sequence"].replace("none", ""):
            return x
        return self.norm(f"{self.scope}/layer_prepostprocess{f'_{number}' if number else ''}", x)

    def attended(self, x):
        """What gru and lstm read."""
        x = self.attend(self.scope, x)
        if self.hparams["add_ffn_unit_to_the_transition_function"]:
            x = self.transition(self.scope, x)
        return self.numbered(0, x)

    def gated(self, first):
        """highway and skip."""
        state, hparams = first, self.hparams
        for step in range(self.steps):
            made = self.block(self.step_input(state, step))
            read = {"s": state, "t": made, "i": first}
            read = [read[letter] for letter in "sti" if letter in hparams["gates_inputs"]]
            read = [self.numbered(number, x) for number, x in enumerate(read)]
            gate = self.gate("transform", *read, function=sigmoid)
            carry = 1 - gate
            if not hparams["couple_carry_transform_gates"]:
                read = [self.numbered(len(read) + number, x) for number, x in enumerate(read)]
                carry = self.gate("carry", *read, function=sigmoid)
            state = (state if hparams["recurrence_type"] == "highway" else first) * carry + made * gate
        return state, first

    def dwa(self, first):
        width, memory = self.hparams["hidden_size"], [first]
        for step in range(self.steps):
            state = np.zeros_like(first)
            for slot in range(step):
                read = memory[slot]
                if self.hparams["depth_embedding"]:
                    table = self.store.get(f"{self.scope}/depth_embedding", self.steps + 1, 1, 1, width)
                    read = read + table[slot, 0, 0] * math.sqrt(width)
                weights = np.exp(self.dense(f"{self.scope}/dense", read, width if self.hparams["dwa_elements"] else 1))
                state = state + read * weights / weights.sum(axis=-1, keepdims=True)
            self.dense(f"{self.scope}/dense", first, width if self.hparams["dwa_elements"] else 1)  # its variables
            if self.hparams["depth_embedding"]:
                self.store.get(f"{self.scope}/depth_embedding", self.steps + 1, 1, 1, width)
            memory.append(self.block(self.step_input(state, step)))
        return memory[-1], first

    def gru(self, state):
        first = state
        for step in range(self.steps):
            read = self.attended(self.step_input(state, step))
            update, reset = (self.gate(f"gru/{name}", read, state, function=sigmoid) for name in ("update", "reset"))
            candidate = self.gate("gru/candidate", read, reset * state, function=np.tanh)
            state = self.numbered(1, (1 - update) * read + update * candidate)
        return state, first

    def lstm(self, state):
        cell = np.zeros_like(state)
        for step in range(self.steps):
            read = self.attended(self.step_input(state, step))
            enters, leaves = (self.gate(f"lstm/{name}", read, state, function=sigmoid) for name in ("input", "output"))
            forgets = sigmoid(
                self.gate("lstm/forget", read, state, function=lambda y: y) + self.hparams["lstm_forget_bias"]
            )
            cell = cell * forgets + enters * self.gate("lstm/input_modulation", read, state, function=np.tanh)
            state = self.numbered(1, np.tanh(cell) * leaves)
        return state, cell

    def block(self, x):
        for index in range(self.hparams["num_inrecurrence_layers"]):
            x = self.layer(f"{self.scope}/rec_layer_{index}", x)
        return x

    def plain(self, name, x):
        if name not in (self.hparams["mix_with_transformer"] or ""):
            return x
        if self.hparams["add_position_timing_signal"]:
            x = np.array([row + timing(i, x.shape[-1]) for i, row in enumerate(x)])
        for index in range(self.hparams["num_mixedin_layers"]):
            x = self.layer(f"{self.scope}/{name}_layer_{index}", x)
        return x

    def halt(self, x):
        """Section "ACT" of the description. Global halting has one decision for the whole sequence."""
        together = self.hparams["act_type"] == "global"
        count = 1 if together else len(x)
        limit = 1 - self.hparams["act_epsilon"]
        h, remainders, steps = [0.0] * count, [0.0] * count, [0] * count
        output, margin, step = np.zeros_like(x), 1.0, 0
        while any(h[i] < limit and steps[i] < self.hparams["act_max_steps"] for i in range(count)):
            x = self.step_input(x, step)
            unit = f"{self.scope}/sigmoid_activation_for_pondering/dense"
            p = 1 / (1 + np.exp(-self.dense(unit, x, 1)[:, 0]))
            p = [p.mean()] if together else list(p)
            weights = []
            for i in range(count):
                if h[i] >= 1:
                    weights.append(0.0)
                    continue
                steps[i] += 1
                margin = min(margin, abs(h[i] + p[i] - limit))
                if h[i] + p[i] > limit:
                    remainders[i] = 1 - h[i]
                    weights.append(1 - h[i])
                    h[i] = 1.0
                else:
                    weights.append(p[i])
                    h[i] += p[i]
            x = self.block(x)
            for i in range(len(x)):
                w = weights[0 if together else i]
                kept = 1 if self.hparams["act_type"] == "accumulated" else 1 - w
                output[i] = w * x[i] + kept * output[i]
            step += 1
        return Ran(output, steps, remainders, margin)

    def run(self, x):
        x = self.plain("before_ut", x)
        others = {"highway": self.gated, "skip": self.gated, "dwa": self.dwa, "gru": self.gru, "lstm": self.lstm}
        if self.hparams["recurrence_type"] == "act":
            ran = self.halt(x)
        elif self.hparams["recurrence_type"] in others:
            last, memory = others[self.hparams["recurrence_type"]](x)
            ran = Ran(memory if self.hparams["use_memory_as_final_state"] else last)
        else:
            for step in range(self.steps):
                x = self.step_input(x, step)
                x = self.block(x)
            ran = Ran(x)
        ran.states = self.before(self.name, self.plain("after_ut", ran.states))
        return ran


def added_at_the_input(hparams, x):
    if hparams["add_position_timing_signal"] or hparams["pos"] != "timing":
        return x
    return np.array([row + timing(i, x.shape[-1]) for i, row in enumerate(x)])


def encode(store, hparams, inputs, *, space):
    padding = [not row.any() for row in inputs]
    x = inputs
    if hparams["use_target_space_embedding"]:
        x = x + store.get("target_space_embedding/kernel", 32, inputs.shape[-1])[space]
    return Side(store, hparams, "encoder", padding).run(added_at_the_input(hparams, x)), padding


def decode(store, hparams, targets, *, memory=None, memory_padding=None):
    shifted = np.concatenate([np.zeros_like(targets[:1]), targets[:-1]])
    side = Side(store, hparams, "decoder", None, memory, memory_padding)
    return side.run(added_at_the_input(hparams, shifted))


def table(store, hparams, name, size):
    shards, width = hparams["symbol_modality_num_shards"], hparams["hidden_size"]
    parts = []
    for shard in range(shards):
        rows = size // shards + (1 if shard < size % shards else 0)
        parts.append(store.get(f"symbol_modality_{size}_{width}/{name}/weights_{shard}", rows, width))
    return np.concatenate(parts)


def embed(hparams, weights, ids):
    scale = math.sqrt(hparams["hidden_size"]) if hparams["multiply_embedding_mode"] == "sqrt_depth" else 1.0
    return np.array([weights[i] * scale * (i != 0) for i in ids])


def score(store, hparams, inputs, targets, *, sizes, space):
    """The whole model on one pair of id sequences (``inputs`` None: no encoder): logits and the sides that ran."""
    tied = hparams["shared_embedding_and_softmax_weights"]
    shared = tied or hparams["shared_embedding"]
    sides, memory, blank = [], None, None
    if inputs is not None:
        source = table(store, hparams, "shared" if shared else "input_emb", sizes[0])
        encoded, blank = encode(store, hparams, embed(hparams, source, inputs), space=space)
        memory = encoded.states
        sides.append(encoded)
    target = table(store, hparams, "shared" if shared else "target_emb", sizes[1])
    sides.append(decode(store, hparams, embed(hparams, target, targets), memory=memory, memory_padding=blank))
    output = target if tied else table(store, hparams, "softmax", sizes[1])
    return sides[-1].states @ output.T, sides


KINDS = ("encoder", "decoder", "encoder_model", "encoder_decoder", "full", "language_model")
SOURCE, TARGET, SPACE = 5, 4, 3


def batch(kind, width, *, seed):
    """Two sequences a side, the second padded: ids, or states whose padding rows are zero (or not, if prepared)."""
    random = np.random.default_rng(seed)
    ids = kind in ("full", "language_model")
    made = {}
    for name, length, real in (("inputs", SOURCE, (5, 3)), ("targets", TARGET, (2, 4))):
        if ids:
            value = random.integers(1, 7, (2, length))
        else:
            value = random.standard_normal((2, length, width)).astype(np.float32).astype(np.float64)
        if kind not in ("encoder", "decoder"):
            for row, end in enumerate(real):
                value[row, end:] = 0
        made[name] = value
    made["padding"] = np.array([[j >= end for j in range(SOURCE)] for end in (5, 3)])
    return made


def run_official(kind, hp, data, *, seed=0, values=None, sizes=(7, 7)):
    """What the naive code makes of a batch: its variables, final outputs, and each side's runs."""
    store = Store(seed=seed, values=values)
    finals, sides = [], []
    for row in range(2):
        inputs, targets = data["inputs"][row], data["targets"][row]
        match kind:
            case "encoder":
                ran = [Side(store, hp, "encoder", list(data["padding"][row])).run(inputs)]
            case "decoder":
                ran = [Side(store, hp, "decoder").run(targets)]
            case "encoder_model":
                ran = [encode(store, hp, inputs, space=SPACE)[0]]
            case "encoder_decoder":
                encoded, blank = encode(store, hp, inputs, space=SPACE)
                decoded = decode(store, hp, targets, memory=encoded.states, memory_padding=blank)
                ran = [encoded, decoded]
            case _:
                logits, ran = score(store, hp, inputs if kind == "full" else None, targets, sizes=sizes, space=SPACE)
        finals.append(logits if kind in ("full", "language_model") else ran[-1].states)
        sides.append(ran)
    return store, np.array(finals), [list(side) for side in zip(*sides, strict=True)]
