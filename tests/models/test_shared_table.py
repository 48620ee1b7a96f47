"""Source and target may share a table, and no module stands at two places of a model."""

import torch
from torch.func import functional_call

from small_models import small
from universal_transformer.models.universal import EncoderDecoder

SOURCE, TARGET = torch.tensor([[3, 4, 5]]), torch.tensor([[6, 7, 2]])


def test_other_parameters_for_one_call_leave_the_model_as_it_was():
    model = small()
    before, saved = model(SOURCE, TARGET).logits, {name: each.clone() for name, each in model.state_dict().items()}
    given = {name: torch.randn_like(each) for name, each in model.named_parameters()}
    other = functional_call(model, given, (SOURCE, TARGET)).logits
    assert torch.equal(model(SOURCE, TARGET).logits, before)
    assert all(torch.equal(each, saved[name]) for name, each in model.state_dict().items())
    twin = small()
    twin.load_state_dict(given, strict=False)
    assert torch.equal(twin(SOURCE, TARGET).logits, other)
    assert not torch.equal(other, before)


def test_the_table_is_one_parameter_that_is_saved_once(tmp_path):
    model = small().float()
    assert model.target.embedding.weight is model.source.input.weight
    assert model.target.embedding is not model.source.input
    assert "source.input.weight" in model.tensors()
    assert "target.embedding.weight" not in model.tensors()
    model.save_pretrained(tmp_path)
    loaded = EncoderDecoder.from_pretrained(tmp_path)
    assert torch.equal(loaded(SOURCE, TARGET).logits, model(SOURCE, TARGET).logits)
    assert loaded.target.embedding.weight is loaded.source.input.weight
