"""The model once more, as slowly and as literally as it can be written: one position, one head, one channel at a time.

Nothing here knows of batches, padding or masks: a sequence is a list of its real positions, and the tests compare
that with rows of padded batches. Dropout is left out; steps and positions count from 1, as in the paper.
"""

import math
from dataclasses import dataclass, field

import torch


def coordinate(index, *, width, layout="interleaved"):
    """Channels of the sinusoid of ``index`` (counted from 0), channel by channel."""
    channels = torch.zeros(width, dtype=torch.float64)
    for j in range(width // 2):
        if layout == "interleaved":  # the paper: from 1, sine and cosine side by side
            angle = (index + 1) / 10000 ** (2 * j / width)
            channels[2 * j], channels[2 * j + 1] = math.sin(angle), math.cos(angle)
        else:  # tensor2tensor: from 0, all sines before all cosines
            angle = index / 10000 ** (j / max(width // 2 - 1, 1))
            channels[j], channels[width // 2 + j] = math.sin(angle), math.cos(angle)
    return channels


def normalised(x, norm):
    if isinstance(norm, torch.nn.RMSNorm):
        return x / torch.sqrt((x**2).mean() + norm.eps) * norm.weight
    centred = x - x.mean()
    return centred / torch.sqrt((centred**2).mean() + norm.eps) * norm.weight + norm.bias


def affine(x, linear):
    result = linear.weight @ x
    return result if linear.bias is None else result + linear.bias


def attention(query, keys, values, *, num_heads, scale="head"):
    """One query against lists of keys and values, head by head. A head of keys serves neighbouring heads of queries."""
    size = query.shape[0] // num_heads
    shared = query.shape[0] // keys[0].shape[0]
    divisor = math.sqrt({"head": size, "width": query.shape[0]}[scale])
    heads = []
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        of_keys = slice(head // shared * size, (head // shared + 1) * size)
        scores = [torch.exp(query[part] @ key[of_keys] / divisor) for key in keys]
        heads.append(sum(s / sum(scores) * value[of_keys] for s, value in zip(scores, values, strict=True)))
    return torch.cat(heads)


def self_attention(module, xs, i, *, causal, scale="head"):
    width = xs[0].shape[0]
    seen = xs[: i + 1] if causal else xs
    projected = [affine(x, module.query_key_value) for x in seen]
    keys, values = zip(*(p[width:].chunk(2) for p in projected), strict=True)
    query = affine(xs[i], module.query_key_value)[:width]
    return affine(attention(query, keys, values, num_heads=module.num_heads, scale=scale), module.output)


def cross_attention(module, xs, i, *, source, scale="head"):
    keys, values = zip(*(affine(s, module.key_value).chunk(2) for s in source), strict=True)
    looked = attention(affine(xs[i], module.query), keys, values, num_heads=module.num_heads, scale=scale)
    return affine(looked, module.output)


def separable(module, xs, i, *, before, after):
    """Depthwise over ``before + 1 + after`` neighbours, nothing outside the sequence, then pointwise."""
    total = torch.zeros_like(xs[0])
    for tap, j in enumerate(range(i - before, i + after + 1)):
        if 0 <= j < len(xs):
            total = total + module.depthwise.weight[:, 0, tap] * xs[j]
    return affine(total, module.pointwise)


def convolution(module, xs, i, *, causal):
    if hasattr(module, "only"):
        return separable(module.only, xs, i, before=2 if causal else 1, after=0 if causal else 1)
    hidden = [
        torch.relu(separable(module.first, xs, j, before=2 if causal else 1, after=0 if causal else 1))
        for j in range(len(xs))
    ]
    return separable(module.second, hidden, i, before=4 if causal else 2, after=0 if causal else 2)


def feed_forward(module, xs, i):
    return affine(torch.relu(affine(xs[i], module.inner)), module.outer)


def transition(module, xs, i, *, causal):
    if type(module).__name__ == "SwiGlu":
        gate, value = affine(xs[i], module.inner).chunk(2)
        return affine(gate / (1 + torch.exp(-gate)) * value, module.outer)
    if hasattr(module, "inner"):
        return feed_forward(module, xs, i)
    return convolution(module, xs, i, causal=causal)


def sublayer(module, xs, function, *, base=None):
    """Post: norm(x + f(x)), with DeepNorm norm(α x + f(x)); pre: x + f(norm(x)). ``base``: the x before the +."""
    base = xs if base is None else base
    if not module.closes:
        return [normalised(module.scale * x + function(xs, i), module.norm) for i, x in enumerate(base)]
    normed = [normalised(x, module.norm) for x in xs]
    return [x + function(normed, i) for i, x in enumerate(base)]


def block(module, xs, *, causal=False, source=None, base=None, memory=None):
    """``memory``: where the transition is added to what it read at the step before (A^{t-1}), that of each block."""
    first = xs if base is None else base
    xs = sublayer(
        module.after_attention,
        xs,
        lambda ys, i: self_attention(module.attention, ys, i, causal=causal),
        base=base,
    )
    if source is not None:
        xs = sublayer(
            module.after_cross_attention,
            xs,
            lambda ys, i: cross_attention(module.cross_attention, ys, i, source=source),
        )
    base = None
    if memory is not None:
        base, memory[module] = memory.get(module, first), xs
    return sublayer(
        module.after_transition, xs, lambda ys, i: transition(module.transition, ys, i, causal=causal), base=base
    )


@dataclass
class Run:
    """What the naive loop did with one sequence."""

    states: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    remainder: list = field(default_factory=list)
    margin: float = 1.0  # how near a decision came to the threshold


def step_blocks(recurrence, step):
    first = 0 if recurrence.tied else step * recurrence.blocks_per_step
    return list(recurrence.blocks)[first : first + recurrence.blocks_per_step]


def timed(recurrence, states, step):
    """``X = H + P^t`` with sinusoids for both parts."""
    width = states[0].shape[0]
    layout = recurrence.coordinates.position.layout
    moment = coordinate(step, width=width, layout=layout)
    return [x + coordinate(i, width=width, layout=layout) + moment for i, x in enumerate(states)]


def close(recurrence, states):
    if recurrence.closing_norm is None:
        return states
    return [normalised(x, recurrence.closing_norm) for x in states]


@torch.no_grad()
def fixed(recurrence, states, *, max_steps, source=None):
    states, memory = list(states), {} if recurrence.residual == "previous" else None
    for step in range(max_steps):
        base = None if recurrence.residual == "timed" else states
        states = timed(recurrence, states, step)
        for module in step_blocks(recurrence, step):
            states, base = (
                block(module, states, causal=recurrence.decoder, source=source, base=base, memory=memory),
                None,
            )
    return Run(close(recurrence, states), [max_steps] * len(states), [0.0] * len(states))


@torch.no_grad()
def halting(recurrence, states, *, max_steps, threshold, source=None):
    """Section 2.2 of the paper for one sequence, every position with its own h, R and N.

    With frozen states, a halted position enters the second and later blocks of a step with what entered them when it
    last ran (D14).
    """
    unit, count, entered = recurrence.halting, len(states), {}
    states, output = list(states), [torch.zeros_like(x) for x in states]
    memory = {} if recurrence.residual == "previous" else None
    h, running, run = [0.0] * count, [True] * count, Run(steps=[0] * count, remainder=[0.0] * count)
    for step in range(max_steps):
        if not any(running):
            break
        xs = timed(recurrence, states, step)
        p = [1 / (1 + math.exp(-float(unit.weight[0] @ x + unit.bias[0]))) for x in xs]
        if unit.config.scope == "sequence":
            p = [sum(p) / count] * count
        new = xs
        for number, module in enumerate(step_blocks(recurrence, step)):
            for i in range(count):
                if number == 0 or running[i] or unit.config.state == "evolving":
                    entered[number, i] = new[i]
            base = None if number or recurrence.residual == "timed" else states
            given = [entered[number, i] for i in range(count)]
            new = block(module, given, causal=recurrence.decoder, source=source, base=base, memory=memory)
        capped = unit.config.remainder_at_cap and step == max_steps - 1
        for i in range(count):
            if not running[i]:
                if unit.config.state == "evolving":
                    states[i] = new[i]
                continue
            run.margin = min(run.margin, abs(h[i] + p[i] - threshold))
            run.steps[i] += 1
            if h[i] + p[i] > threshold or capped:
                weight = run.remainder[i] = 1 - h[i]
                running[i] = False
            else:
                weight = p[i]
                h[i] += p[i]
                running[i] = h[i] < 1
            if unit.config.output == "mean":
                output[i] = output[i] + weight * new[i]
            elif unit.config.output == "interpolate":
                output[i] = weight * new[i] + (1 - weight) * output[i]
            else:
                output[i] = new[i]
            states[i] = new[i]
    run.states = close(recurrence, output)
    return run


def advance(probabilities, *, threshold, remainder_at_cap):
    """Halting of one position: ``(weights, N, R)`` for its ``p`` at every step up to the cap."""
    h, remainder, count, weights = 0.0, 0.0, 0, []
    for step, p in enumerate(probabilities):
        if h >= 1.0:
            weights.append(0.0)
            continue
        count += 1
        last = remainder_at_cap and step == len(probabilities) - 1
        if h + p > threshold or h + p >= 1.0 or last:
            remainder = 1.0 - h
            h = 1.0
            weights.append(remainder)
        else:
            h += p
            weights.append(p)
    return weights, count, remainder


def last_step(probabilities, *, quantile=None):
    """``p_t`` of one position from its ``λ_t``, and the step at which their sum reaches ``quantile``."""
    left, weights, total, steps = 1.0, [], 0.0, None
    for t, p in enumerate(probabilities):
        weights.append(left if t == len(probabilities) - 1 else left * p)
        total += left * p
        left *= 1 - p
        if steps is None and quantile is not None and (total >= quantile or t == len(probabilities) - 1):
            steps = t + 1
    return weights, steps


@torch.no_grad()
def pondering(recurrence, states, *, max_steps, quantile, min_steps=1, source=None):
    """PonderNet in inference for one sequence: a position stops where the sum of its ``p_t`` reaches the quantile."""
    unit, count = recurrence.halting, len(states)
    states, running, seen = list(states), [True] * count, [[] for _ in states]
    run = Run(steps=[0] * count, remainder=[0.0] * count)
    for step in range(max_steps):
        new = timed(recurrence, states, step)
        for module in step_blocks(recurrence, step):
            new = block(module, new, causal=recurrence.decoder, source=source)
        read = close(recurrence, new)
        for i in range(count):
            if not running[i]:
                continue
            states[i] = new[i]
            p = 0.0 if step < min_steps - 1 else 1 / (1 + math.exp(-float(unit.weight[0] @ read[i] + unit.bias[0])))
            before = 1 - math.prod(1 - q for q in seen[i])
            seen[i].append(p)
            total = 1 - math.prod(1 - q for q in seen[i])
            run.margin = min(run.margin, abs(total - quantile))
            run.steps[i] += 1
            if total >= quantile or step == max_steps - 1:
                running[i], run.remainder[i] = False, 1.0 - before
    run.states = close(recurrence, states)
    return run


@torch.no_grad()
def breaking(recurrence, states, *, max_steps, threshold, min_steps=1):
    """Stick-breaking for one sequence: queries from H, keys and values from the expected state s."""
    unit, count, module = recurrence.halting, len(states), recurrence.blocks[0]
    width = states[0].shape[0]
    states, shown, running = list(states), list(states), [True] * count
    mass, output = [0.0] * count, [torch.zeros_like(x) for x in states]
    run = Run(steps=[0] * count, remainder=[0.0] * count)
    for step in range(max_steps):
        asking, seen = timed(recurrence, states, step), timed(recurrence, shown, step)
        post = not module.after_attention.closes
        normed = (
            [asking, seen]
            if post
            else [[normalised(x, module.after_attention.norm) for x in s] for s in (asking, seen)]
        )
        projected = [affine(x, module.attention.query_key_value) for x in normed[1]]
        new = []
        for i in range(count):
            visible = projected[: i + 1] if recurrence.decoder else projected
            query = affine(normed[0][i], module.attention.query_key_value)[:width]
            keys, values = [p[width : 2 * width] for p in visible], [p[2 * width :] for p in visible]
            mixed = affine(
                attention(query, keys, values, num_heads=module.attention.num_heads), module.attention.output
            )
            x = asking[i] + mixed
            new.append(normalised(x, module.after_attention.norm) if post else x)
        new = sublayer(module.after_transition, new, lambda ys, i: feed_forward(module.transition, ys, i))
        for i, x in enumerate(close(recurrence, new)):
            if not running[i]:
                continue
            hidden = torch.nn.functional.gelu(affine(x, unit.inner))
            p = 1 / (1 + math.exp(-float(unit.weight[0] @ hidden + unit.bias[0])))
            p = 0.0 if step < min_steps - 1 else p
            rest = 1 - mass[i]
            states[i], shown[i] = new[i], output[i] + rest * new[i]
            run.steps[i] += 1
            run.margin = min(run.margin, abs(mass[i] + rest * p - threshold))
            if mass[i] + rest * p > threshold or step == max_steps - 1:
                running[i], run.remainder[i] = False, float(rest)
            else:
                output[i] = output[i] + rest * p * new[i]
                mass[i] += rest * p
    run.states = close(recurrence, shown)
    return run


def distribution(head, state):
    """Softmax of an affine head, class by class."""
    powers = [math.exp(float(z)) for z in affine(state, head)]
    return [power / sum(powers) for power in powers]


def length(*vectors):
    return math.sqrt(sum(float(x) ** 2 for vector in vectors for x in vector))


def exit_scores(kind, walks, *, head=None):
    """What a criterion compares with its threshold after each step, for positions that stop together: ``walks`` has one
    list of states ``H^1, H^2, …`` a position. None before the step from which the kind is defined."""
    scores = []
    for t in range(len(walks[0])):
        if kind == "state_change":
            changes = [walk[t] - walk[t - 1] for walk in walks]
            scores.append(length(*changes) / length(*(walk[t] for walk in walks)) if t else None)
        else:
            read = [distribution(head, sum(walk[s] for walk in walks) / len(walks)) for s in range(t + 1)]
            if kind == "confidence":
                scores.append(max(read[t]))
            else:
                pairs = zip(read[t - 1], read[t], strict=True)
                scores.append(sum(p * math.log(p / q) for p, q in pairs) if t else None)
    return scores


def exits_now(kind, scores, threshold):
    """Whether the step just made is the last one."""
    if kind == "confidence":
        return scores[-1] > threshold
    return scores[-1] is not None and scores[-1] < threshold


@torch.no_grad()
def exiting(recurrence, states, *, max_steps, kind, threshold, head=None, together=False, min_steps=1, source=None):
    """One sequence whose positions stop by a criterion, each alone or all ``together``; others see the last state."""
    count = len(states)
    states, walks, running = list(states), [[] for _ in states], [True] * count
    run = Run(steps=[0] * count, remainder=[0.0] * count)
    for step in range(max_steps):
        if not any(running):
            break
        new = timed(recurrence, states, step)
        for module in step_blocks(recurrence, step):
            new = block(module, new, causal=recurrence.decoder, source=source)
        for i in range(count):
            if running[i]:
                states[i] = new[i]
                run.steps[i] += 1
                walks[i].append(close(recurrence, [new[i]])[0])
        for group in [range(count)] if together else [[i] for i in range(count)]:
            if not running[group[0]]:
                continue
            scores = exit_scores(kind, [walks[i] for i in group], head=head)
            if scores[-1] is not None:
                run.margin = min(run.margin, abs(scores[-1] - threshold))
            if step == max_steps - 1 or (step >= min_steps - 1 and exits_now(kind, scores, threshold)):
                for i in group:
                    running[i] = False
    run.states = close(recurrence, states)
    return run
