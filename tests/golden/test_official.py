"""The official numbers, replayed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from golden.check import check, main

OWN = Path(__file__).parents[1] / "fixtures" / "tensor2tensor"
SHARED = Path(__file__).parents[3] / "shared" / "golden" / "tensor2tensor"


def cases(folder):
    return sorted(folder.glob("*.json"))


def assert_agrees(path):
    result = check(path)
    assert result.status == "ok", result.text


@pytest.mark.parametrize("path", cases(OWN), ids=lambda path: path.stem)
def test_official_numbers(path):
    assert_agrees(path)


@pytest.mark.skipif(not cases(SHARED), reason="the other official cases are not beside the project")
@pytest.mark.parametrize("path", cases(SHARED), ids=lambda path: path.stem)
def test_further_official_numbers(path):
    assert_agrees(path)


@pytest.fixture
def folder(tmp_path):
    """A folder with one halting case of its own, to be spoilt."""
    for path in OWN.glob("k_encdec_act.*"):
        shutil.copy(path, tmp_path)
    return tmp_path


def spoil(path, name, change):
    """Change one array of an npz file."""
    arrays = dict(np.load(path))
    assert name in arrays
    arrays[name] = change(arrays[name])
    np.savez(path, **arrays)


def unsupport(folder):
    """Copy a case, which asks for an attention that our models have not."""
    for path in OWN.glob("i_gru.*"):
        shutil.copy(path, folder)
    case = folder / "i_gru.json"
    about = json.loads(case.read_text())
    about["hparams"]["self_attention_type"] = "local_unmasked"
    case.write_text(json.dumps(about))


def test_every_case_has_its_line_and_the_unsupported_their_reason(tmp_path, capsys):
    shutil.copytree(OWN, tmp_path, dirs_exist_ok=True)
    unsupport(tmp_path)
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == [path.stem for path in cases(OWN)]
    [reason] = [line for line in lines if line.startswith("unsupported")]
    assert "i_gru" in reason
    assert "self_attention_type='local_unmasked'" in reason
    assert lines[-1] == "4 agree, 0 differ, 1 not supported"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("out/decoder_output", lambda x: x + 2e-4),
        ("out/decoder_ponder_times", lambda x: np.where(x == x.max(), x - 1, x)),
        ("out/encoder_remainders", lambda x: x * 0.99),
        ("out/act_loss", lambda x: x + np.float32(1e-3)),
        ("out/body_output", lambda x: x[:, :-1]),
        ("out/encoder_output", lambda x: x * np.nan),
        ("trace/encoder/halting_p", lambda x: x + 1e-3),
        (
            "var/universal_transformer/body/encoder/layer_prepostprocess/layer_norm/layer_norm_bias",
            lambda x: x + 1e-2,
        ),
    ],
    ids=lambda value: value.rsplit("/", 1)[-1] if isinstance(value, str) else "",
)
def test_a_difference_is_found(folder, capsys, name, change):
    spoil(folder / "k_encdec_act.npz", name, change)
    assert main([str(folder)]) == 1
    assert capsys.readouterr().out.startswith("DIFFERS")


def test_a_different_gradient_is_found(folder, capsys):
    name = "grad/universal_transformer/body/encoder/universal_transformer_act/layer_embedding"
    spoil(folder / "k_encdec_act.grads.npz", name, lambda x: x * 1.01)
    assert main([str(folder)]) == 1
    assert "layer_embedding" in capsys.readouterr().out


def test_a_missing_variable_is_a_difference(folder, capsys):
    arrays = dict(np.load(folder / "k_encdec_act.npz"))
    del arrays["var/universal_transformer/body/target_space_embedding/kernel"]
    np.savez(folder / "k_encdec_act.npz", **arrays)
    assert main([str(folder)]) == 1
    assert "target_space_embedding/kernel" in capsys.readouterr().out


def test_nothing_checked_is_an_error(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path / "absent")]) == 1
    assert capsys.readouterr().err.count("no case files") == 2
    unsupport(tmp_path)
    assert main([str(tmp_path)]) == 1
    assert "nothing was checked" in capsys.readouterr().err


def test_half_a_case_is_an_error(folder, capsys):
    shutil.copy(folder / "k_encdec_act.npz", folder / "alone.npz")
    assert main([str(folder)]) == 1
    assert "alone.npz has no alone.json" in capsys.readouterr().out
    (folder / "alone.npz").unlink()
    (folder / "k_encdec_act.npz").write_bytes(b"not numbers")
    assert main([str(folder)]) == 1
    assert "cannot be replayed" in capsys.readouterr().out
