"""A model folder gives back the model, or one line that says which file and which tensor is wrong."""

import json
import os
import stat
import subprocess
import sys
import time
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from configs import config_of
from small_models import small
from universal_transformer.errors import UserError
from universal_transformer.manifest import MANIFEST, encode_manifest, entry_of
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.universal import Classifier, EncoderDecoder, LanguageModel
from universal_transformer.nn.recurrence import depth_loop
from universal_transformer.registry import build, load_pretrained

TOKENS = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]])
MODELS = {
    "encoder-decoder": {},
    "two vocabularies": {"target_vocabulary_size": 12, "num_target_spaces": 2},
    "untied output": {"tie_output": False, "output_bias": False},
    "halting": {"halting": True, "norm": "pre", "plain_layers_before": 1},
    "untied blocks": {"tied": False, "transition": "separable_convolution", "attention_bias": True},
    "end coordinates": {"end_coordinates": True},
    "sink and parts": {"source_sink": True, "separator_id": 4},
    "learned": {
        "position_coordinates": "learned",
        "step_coordinates": "learned",
        "combine_coordinates": "concatenate",
    },
    "language model": {"architecture": "language_model", "halting": True},
    "classifier": {"architecture": "classifier", "num_classes": 3},
    "tagger": {"architecture": "tagger", "num_classes": 3, "halting": True},
    "facts": {"architecture": "classifier", "num_classes": 3, "inputs": "facts", "max_fact_words": 2},
}


def single(**fields):
    """As :func:`small`, in float32, which is what is saved."""
    return small(**fields).float()


@torch.no_grad()
def logits(model):
    if model.config.inputs.kind == "facts":
        return model(TOKENS.view(2, 2, 2)).logits
    return model(*[TOKENS] * (2 if isinstance(model, EncoderDecoder) else 1)).logits


@pytest.mark.claim("US 27")
@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS.keys())
def test_a_saved_model_comes_back_bit_for_bit(fields, tmp_path):
    model = single(**fields)
    model.save_pretrained(tmp_path / "new" / "folder")
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        "config.json",
        "model.safetensors",
    }
    back = load_pretrained(tmp_path / "new" / "folder")
    assert type(back) is type(model)
    assert back.config == model.config
    assert not back.training
    assert torch.equal(logits(back), logits(model))
    assert back.tensors().keys() == model.tensors().keys()
    assert back.num_parameters() == model.num_parameters()
    again = type(model).from_pretrained(str(tmp_path / "new" / "folder"))
    assert torch.equal(logits(again), logits(model))


def test_a_shared_embedding_is_stored_once_and_stays_shared(tmp_path):
    single().save_pretrained(tmp_path)
    back = EncoderDecoder.from_pretrained(tmp_path)
    assert back.target.embedding.weight is back.source.input.weight
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.shape == (9, 8) for tensor in stored.values()) == 1
    single(target_vocabulary_size=9).save_pretrained(tmp_path)
    back = EncoderDecoder.from_pretrained(tmp_path)
    assert back.target.embedding.weight is not back.source.input.weight


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_are_taken(kind, tmp_path):
    single().save_pretrained(tmp_path)
    # copies: the tensors are views of the file, into which earlier versions of safetensors write
    stored = {name: tensor.clone() for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    save_file({name: tensor.to(kind) for name, tensor in stored.items()}, tmp_path / "model.safetensors")
    back = EncoderDecoder.from_pretrained(tmp_path)
    for name, tensor in back.tensors().items():
        assert torch.equal(tensor.float(), stored[name].to(kind).float())
        assert tensor.dtype == (torch.float32 if kind == torch.float16 else kind)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_a_model_of_another_precision_comes_back_as_it_was(kind, tmp_path):
    model = small(halting=True).to(kind)
    model.save_pretrained(tmp_path)
    back = EncoderDecoder.from_pretrained(tmp_path)
    assert {tensor.dtype for tensor in back.tensors().values()} == {kind}
    assert torch.equal(logits(back), logits(model))


def quantised(model):
    """A linear map with whole numbers, which a file of weights cannot hold as they are used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8, inplace=True)


def adapted(model):
    """A low-rank adapter, as of LoRA."""
    linear = next(part for part in model.modules() if isinstance(part, nn.Linear))
    linear.register_parameter("adapter", nn.Parameter(torch.zeros(2, linear.in_features)))


def parametrised(model):
    nn.utils.parametrizations.weight_norm(next(part for part in model.modules() if isinstance(part, nn.Linear)))


def untied(model):
    model.target.embedding.weight = nn.Parameter(model.target.embedding.weight.detach().clone())


def infinite(model):
    model.target.embedding.weight.data[0, 0] = torch.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (quantised, "not saved: missing tensors for this configuration: .*take quantisation, parametrisations and"),
        (adapted, "not saved: unexpected tensors for this configuration: .*adapter; take quantisation"),
        (parametrised, "not saved: missing tensors for this configuration: .*weight; take quantisation"),
        (untied, r"not saved: unexpected tensors for this configuration: target\.embedding\.weight; take"),
        (infinite, r"not saved: tensor .*weight holds values that are not finite"),
    ],
)
def test_a_model_that_would_not_come_back_is_not_saved(change, message, tmp_path):
    """Without the refusal a file is written that cannot be loaded, or lacks weights."""
    model = single()
    change(model)
    with pytest.raises(UserError, match=message) as found:
        model.save_pretrained(tmp_path / "model")
    assert "\n" not in str(found.value)
    assert not (tmp_path / "model").exists()


def test_saving_again_leaves_no_trace_of_the_first(tmp_path):
    single().save_pretrained(tmp_path)
    second = single(width=4)
    second.save_pretrained(tmp_path)
    assert torch.equal(logits(load_pretrained(tmp_path)), logits(second))


NORM = "source.recurrence.blocks.0.after_attention.norm.weight"


def spoilt(tmp_path, change):
    """The folder of a good model whose tensors went through ``change``."""
    single().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NORM), f"missing tensors for this configuration: {NORM}$"),
        (lambda t: t.update(extra=torch.ones(1)), "unexpected tensors for this configuration: extra$"),
        (lambda t: t.update({NORM: torch.ones(9)}), rf"tensor {NORM} has shape \[9\], .*asks for \[8\]"),
        (lambda t: t.update({NORM: torch.ones(8, 1)}), rf"tensor {NORM} has shape \[8, 1\]"),
        (lambda t: t.update({NORM: torch.ones(8).long()}), f"tensor {NORM} holds torch.int64, floating"),
        (lambda t: t[NORM].fill_(float("nan")), f"tensor {NORM} holds values that are not finite"),
        (lambda t: t[NORM][3:4].fill_(float("inf")), f"tensor {NORM} holds values that are not finite"),
        (lambda t: t.update({NORM: torch.ones(8).to(torch.float8_e4m3fn)}), f"tensor {NORM} holds torch.float8_e4m3fn"),
        (
            lambda t: t.update({NORM: torch.full((8,), 1e300, dtype=torch.float64)}),
            f"tensor {NORM} holds values that are not finite",
        ),
        (lambda t: t.clear(), "missing tensors for this configuration: .* and [0-9]+ more$"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(change, message, tmp_path):
    with pytest.raises(UserError, match=message) as refused:
        load_pretrained(spoilt(tmp_path, change))
    assert str(tmp_path / "model.safetensors") in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 100, b"\x10" + b"\0" * 7 + b"{}"])
def test_a_file_of_weights_that_is_none_is_refused(content, tmp_path):
    single().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match="not a readable safetensors file"):
        load_pretrained(tmp_path)


def test_a_file_that_breaks_off_is_refused(tmp_path):
    single().save_pretrained(tmp_path)
    content = (tmp_path / "model.safetensors").read_bytes()
    for length in (7, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "model.safetensors").write_bytes(content[:length])
        with pytest.raises(UserError, match="not a readable safetensors file"):
            load_pretrained(tmp_path)


def test_a_folder_that_is_none_says_what_it_should_hold(tmp_path):
    with pytest.raises(UserError, match=r"config.json: no such file; a model folder holds"):
        load_pretrained(tmp_path / "nowhere")
    single().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model.safetensors: no such file; a model folder holds"):
        load_pretrained(tmp_path)
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(UserError, match=r"model.safetensors: not a readable"):
        load_pretrained(tmp_path)


def written(**fields):
    return json.dumps({**ModelConfig().to_dict(), **fields}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe{}", "looks like UTF-16"),
        (b'{"width": 8, "width": 16}', "stands twice"),
        (b'{"dropout": NaN}', "'NaN' in JSON"),
        (b'{"halting_bias": -Infinity}', "'-Infinity' in JSON"),
        (b'{"halting_bias": 1e999}', "'1e999' in JSON"),
        (b'{"architecture": ' + b"[" * 985 + b"]" * 985 + b"}", "nested"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"width": 1' + b"0" * 5000 + b"}", "a number of too many digits"),
        (b" " * 1_000_001, "more than 1,000,000 bytes"),
        (b"[]", "expected a JSON object"),
        (b"3", "expected a JSON object"),
        (b"{}", "kind: expected one of universal_transformer, tensor2tensor, lstm, neural_gpu, found None"),
        (b'{"kind": "universal_transformer"}', "missing: architecture, attention"),
        (written(widht=8), "unknown: widht"),
        (written(sizes={"width": "8", "filter_width": 8, "num_heads": 2}), "sizes.width: .*number, .*found '8'"),
        (written(sizes={"width": 128, "filter_width": 8, "num_heads": 3}), "num_heads=3: must divide width=128"),
        (written(), "vocabulary.size=None"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_configuration_that_is_none_is_refused(content, message, tmp_path):
    single().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=message) as refused:
        load_pretrained(tmp_path)
    assert "\n" not in str(refused.value)


HUGE = {
    "width": {"sizes": {"width": 8192, "filter_width": 12, "num_heads": 2}},
    "width 1e9": {"sizes": {"width": 10**9, "filter_width": 10**9, "num_heads": 10**9}},
    "largest width": {"sizes": {"width": 2**31 - 2, "filter_width": 2**31 - 1, "num_heads": 1}},
    "filter width": {"sizes": {"width": 8, "filter_width": 2**31 - 1, "num_heads": 2}},
    "vocabulary": {"vocabulary": {"size": 2**31 - 1}},
    "classes of a target": {"vocabulary": {"size": 9, "target_size": 2**31 - 1}},
    "blocks": {"step": {"blocks": 10**6}},
    "untied steps": {"step": {"tied": False}, "depth": {"max_steps": 10**9}},
    "untied steps of the decoder": {"step": {"tied": False}, "depth": {"decoder_max_steps": 2**31 - 1}},
    "untied blocks": {"step": {"tied": False, "blocks": 2**31 - 1}, "depth": {"max_steps": 2**31 - 1}},
    "plain layers": {"tensor2tensor": {"plain_layers_before": 2**31 - 1}},
    "positions": {"coordinates": {"position": "learned", "max_positions": 2**31 - 1}},
    "learned steps": {"coordinates": {"step": "learned"}, "depth": {"max_steps": 2**31 - 1}},
    "target spaces": {"tensor2tensor": {"num_target_spaces": 2**31 - 1}},
}


@pytest.mark.parametrize("huge", HUGE.values(), ids=HUGE)
def test_no_memory_is_claimed_for_sizes_that_the_file_does_not_have(huge, tmp_path, monkeypatch):
    single().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, **{name: {**fields.get(name, {}), **part} for name, part in huge.items()}}))
    devices = []

    def build_and_record(model, config):
        devices.append(torch.empty(0).device.type)
        original(model, config)

    original = EncoderDecoder.__init__
    monkeypatch.setattr(EncoderDecoder, "__init__", build_and_record)
    started = time.monotonic()
    with pytest.raises(UserError) as refused:
        load_pretrained(tmp_path)
    assert set(devices) <= {"meta"}
    assert time.monotonic() - started < 5
    assert "\n" not in str(refused.value)


def test_a_deep_untied_model_is_loaded(tmp_path):
    model = single(tied=False, max_steps=51, width=4, filter_width=4)
    model.save_pretrained(tmp_path)
    assert load_pretrained(tmp_path).config == model.config


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_what_has_no_end_is_refused_before_it_is_read(file, tmp_path):
    single().save_pretrained(tmp_path)
    path = tmp_path / file
    for kind, place in (("a FIFO", os.mkfifo), ("a device", lambda path: path.symlink_to("/dev/zero"))):
        path.unlink()
        place(path)
        with pytest.raises(UserError, match=f"{file}: {kind}; expected a file"):
            load_pretrained(tmp_path)


def test_a_huge_header_is_refused_before_it_is_read(tmp_path):
    single().save_pretrained(tmp_path)
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.write((2**26).to_bytes(8, "little"))
        file.truncate(2**27)
    with pytest.raises(UserError, match="its header is longer than 16,777,216 bytes"):
        load_pretrained(tmp_path)


def test_a_place_that_cannot_be_a_folder_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(UserError, match=r"expected the name of a folder$"):
            single().save_pretrained(place)
    with pytest.raises(UserError, match="File name too long; a model folder holds"):
        load_pretrained("x" * 5000)


def test_a_run_folder_stands_for_the_model_in_it(tmp_path):
    model = single()
    model.save_pretrained(tmp_path / "run" / "model")
    (tmp_path / "run" / "config.json").write_text('{"recipe": "copy"}')
    for back in (load_pretrained(tmp_path / "run"), EncoderDecoder.from_pretrained(str(tmp_path / "run"))):
        assert torch.equal(logits(back), logits(model))
    (tmp_path / "run" / "model" / "model.safetensors").unlink()
    for load in (load_pretrained, EncoderDecoder.from_pretrained):
        with pytest.raises(UserError, match=r"model\.safetensors: no such file") as refused:
            load(tmp_path / "run")
        assert str(refused.value).endswith(f"; looked in {tmp_path}/run and {tmp_path}/run/model")


def with_manifest(folder):
    single().save_pretrained(folder)
    entries = {path.name: entry_of(path.read_bytes()) for path in folder.iterdir()}
    (folder / MANIFEST).write_bytes(encode_manifest(entries))


@pytest.mark.parametrize(("file", "place"), [("config.json", 2), ("model.safetensors", -9)])
def test_a_file_that_differs_from_the_manifest_is_refused(file, place, tmp_path):
    with_manifest(tmp_path)
    load_pretrained(tmp_path)
    content = bytearray((tmp_path / file).read_bytes())
    content[place] = 9  # a tab, which JSON takes in place of a blank
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=f"{file}: its SHA-256 is not the one in manifest.json: damaged, or changed"):
        load_pretrained(tmp_path)


def test_saving_over_a_model_with_a_manifest_leaves_a_model_that_can_be_loaded(tmp_path):
    with_manifest(tmp_path)
    second = single(width=4)
    second.save_pretrained(tmp_path)
    assert torch.equal(logits(load_pretrained(tmp_path)), logits(second))


def test_files_of_a_model_have_the_usual_mode(tmp_path):
    before = os.umask(0o027)
    try:
        single().save_pretrained(tmp_path)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o640}


def test_weights_that_do_not_fit_the_disk_leave_the_earlier_ones(tmp_path, monkeypatch):
    model = single()
    model.save_pretrained(tmp_path)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        single(width=4).save_pretrained(tmp_path)
    monkeypatch.undo()
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    assert torch.equal(logits(load_pretrained(tmp_path)), logits(model))


def test_loading_does_not_import_the_compiler(tmp_path):
    """It takes more than a second, which every ``ut predict`` would wait for."""
    for name, fields in MODELS.items():
        single(**fields).save_pretrained(tmp_path / name)
    code = (
        "import sys; from universal_transformer import load_pretrained;"
        "[load_pretrained(folder) for folder in sys.argv[1:]];"
        "print('torch._dynamo' in sys.modules)"
    )
    folders = map(str, tmp_path.iterdir())
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_class_loads_its_own_architecture_only(tmp_path):
    single().save_pretrained(tmp_path)
    for other in (LanguageModel, Classifier):
        with pytest.raises(UserError, match=f'architecture="encoder_decoder": {other.__name__} needs'):
            other.from_pretrained(tmp_path)


def test_a_configuration_that_asks_for_other_shapes_is_refused_by_tensor(tmp_path):
    single().save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, "sizes": {**fields["sizes"], "filter_width": 13}}))
    with pytest.raises(UserError, match=r"transition.inner.* has shape \[12.*asks for \[13"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "vocabulary.size=None"),
        ({"architecture": "language_model"}, "vocabulary.size=None"),
        ({"architecture": "classifier", "vocabulary_size": 9}, "vocabulary.num_classes=None"),
        ({"architecture": "tagger", "vocabulary_size": 9}, "vocabulary.num_classes=None: a tagger"),
        ({"architecture": "classifier", "num_classes": 2}, "vocabulary.size=None"),
        (
            {"architecture": "classifier", "num_classes": 2, "vocabulary_size": 9, "inputs": "facts"},
            "vocabulary.max_fact_words=None",
        ),
    ],
)
def test_sizes_that_come_from_the_data_are_asked_for(fields, message):
    with pytest.raises(UserError, match=message):
        build(config_of(**fields))


def test_the_execution_of_halting_can_be_changed_and_changes_nothing():
    model = single(halting=True)
    found = []
    for choice in ("auto", "masked"):
        model.use_halting_execution(choice)
        assert (model.source.recurrence.loop is depth_loop) == (choice == "masked")
        found.append(logits(model))
    torch.testing.assert_close(found[0], found[1])
    with pytest.raises(UserError, match="halting_execution='flex': allowed: auto, masked"):
        model.use_halting_execution("flex")
