"""The replay, on cases of every kind that the naive code of ``interop/official.py`` wrote in the official format."""

import json

import numpy as np
import pytest

from golden.check import main
from interop import official

ACT = {"recurrence_type": "act"}
KINDS = {
    "encoder": "encoder",
    "decoder": "deconly",
    "encoder_model": "encmodel",
    "encoder_decoder": "encdec",
    "full": "full",
    "language_model": "full",
}


def write_case(folder, kind, changes, *, seed):
    """One case as the official code would have written it; False when a halting decision is too near to call."""
    hparams = official.HPARAMS | changes
    data = official.batch(kind, hparams["hidden_size"], seed=seed)
    store, final, sides = official.run_official(kind, hparams, data, seed=seed)
    if min(run.margin for side in sides for run in side) < 1e-3:
        return False
    arrays = {f"var/universal_transformer/{name}": value for name, value in store.values.items()}
    arrays |= {f"in/{name}": data[name][..., None, :] for name in ("inputs", "targets") if data[name].ndim == 3}
    if kind in ("encoder", "decoder"):
        arrays |= {"in/encoder_input": data["inputs"], "in/decoder_input": data["targets"]}
        arrays["in/padding"] = data["padding"].astype(np.float32)
    if data["inputs"].ndim == 2:
        arrays |= {f"in/{name}": data[name][..., None, None] for name in ("inputs", "targets")}
        arrays["out/logits"] = final[:, :, None, None]
        lines = final - np.log(np.exp(final).sum(axis=-1, keepdims=True))
        chosen = np.take_along_axis(lines, data["targets"][..., None], axis=-1)[..., 0]
        arrays["out/loss_training"] = -chosen[data["targets"] != 0].mean()
    elif kind.startswith("encoder_"):
        arrays["out/body_output"] = final[:, :, None]
    arrays["in/target_space_id"] = np.array(official.SPACE)
    cost = 0.0
    names = ["decoder"] if kind in ("decoder", "language_model") else ["encoder", "decoder"][: len(sides)]
    for name, side in zip(names, sides, strict=True):
        arrays[f"out/{name}_output"] = np.array([run.states for run in side])
        if hparams["recurrence_type"] == "act":
            steps, rest = (np.array([getattr(run, part) for run in side]) for part in ("steps", "remainders"))
            together = hparams["act_type"] == "global"
            arrays[f"out/{name}_ponder_times"] = steps[:, 0] if together else steps
            arrays[f"out/{name}_remainders"] = rest[:, 0] if together else rest
            cost += hparams["act_loss_weight"] * (steps + rest).mean()
    if hparams["recurrence_type"] == "act":
        arrays["out/loss_act_loss" if data["inputs"].ndim == 2 else "out/act_loss"] = np.array(cost)
    kept = {name: value if value.dtype.kind == "i" else value.astype(np.float32) for name, value in arrays.items()}
    np.savez(folder / f"{kind}.npz", **kept)
    (folder / f"{kind}.json").write_text(json.dumps({"kind": KINDS[kind], "hparams": hparams}))
    return True


@pytest.mark.parametrize(
    "changes",
    [
        ACT,
        ACT | {"act_type": "global", "act_epsilon": 0.3},
        ACT | {"add_or_concat_timing_signal": "concat", "num_inrecurrence_layers": 2},
        ACT | {"transformer_ffn_type": "sepconv", "mix_with_transformer": "after_ut"},
        {"add_position_timing_signal": False, "pos": "timing", "use_target_space_embedding": False},
        {"shared_embedding_and_softmax_weights": False, "symbol_modality_num_shards": 2},
    ],
    ids=lambda changes: ",".join(f"{name}={value}" for name, value in changes.items()),
)
def test_every_kind_is_replayed(tmp_path, capsys, changes):
    for kind in KINDS:
        assert any(write_case(tmp_path, kind, changes, seed=seed) for seed in range(9))
    status = main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert f"{len(KINDS)} agree, 0 differ, 0 not supported" in printed
    assert "not compared" not in printed
