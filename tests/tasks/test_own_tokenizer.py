"""A tokenizer file whose first ids are words, and whose special ids stand elsewhere."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from configs import config_of
from small_pictures import write_captions
from universal_transformer.data.batch import collate
from universal_transformer.data.example import target_size
from universal_transformer.registry import build
from universal_transformer.tasks.captions import CaptionsData
from universal_transformer.tasks.labelled import LabelledData
from universal_transformer.tasks.pairs import PairsData
from universal_transformer.tasks.pictures import PicturesData
from universal_transformer.tasks.text import TextData
from universal_transformer.training.objective import objective

WORDS = ["dog", "cat", "the", "runs", "[SEP]", "sleeps", "[UNK]", "[PAD]", "."]
PAIRS = [("the dog runs", "the cat"), ("dog", "the dog sleeps ."), ("cat sleeps", "cat"), ("the", "runs runs")]


@pytest.fixture
def file(tmp_path):
    library = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token=WORDS[6]))
    library.pre_tokenizer, library.decoder = pre_tokenizers.WhitespaceSplit(), decoders.Metaspace()
    (tmp_path / "tokenizer.json").write_text(library.to_str())
    return str(tmp_path / "tokenizer.json")


def data_of(task, folder, file):
    path = folder / "data.tsv"
    texts = {"labelled": [(source, str(len(target) % 2)) for source, target in PAIRS]}.get(task, PAIRS)
    path.write_text("".join(f"{source}\t{target}\n" for source, target in texts))
    named = {"train": str(path), "validation": str(path), "tokenizer": file}
    match task:
        case "pairs":
            return PairsData(**named)
        case "labelled":
            return LabelledData(**named)
        case "text":
            path.write_text("".join(f"{source}\n" for source, _ in PAIRS))
            return TextData(**named, test=str(path), block_length=5)
    pictures = write_captions(folder, count=len(PAIRS))
    pictures.write_text("".join(f"{place}.png\t{source}\n" for place, (source, _) in enumerate(PAIRS)))
    named = {"train": str(pictures), "validation": str(pictures), "tokenizer": file}
    return CaptionsData(**named) if task == "captions" else PicturesData(**named, side=2, levels=4)


@pytest.mark.parametrize("task", ["pairs", "labelled", "text", "captions", "pictures"])
def test_padding_with_its_id_changes_no_loss(tmp_path, file, task):
    found = data_of(task, tmp_path, file).load()
    torch.manual_seed(0)
    model = build(found.configure(config_of(width=8, num_heads=2, filter_width=16, max_steps=2, dropout=0.0))).eval()
    examples = list(found.train)
    assert len({(len(example.source), target_size(example)) for example in examples}) > 1, "some are padded"

    def loss_of(rows):
        batch = collate(rows, indices=range(len(rows)))
        return objective(model, batch, label_smoothing=0.0, ponder_weight=0.0), batch.num_tokens

    with torch.no_grad():
        together, count = loss_of(examples)
        alone = [loss_of([example]) for example in examples]
    assert count == sum(tokens for _, tokens in alone)
    assert float(together.cross_entropy) * count == pytest.approx(
        sum(float(loss.cross_entropy) * tokens for loss, tokens in alone), rel=1e-5
    )


@pytest.mark.parametrize("task", ["pairs", "text"])
def test_ids_are_those_of_the_file_and_answers_its_words(tmp_path, file, task):
    found = data_of(task, tmp_path, file).load()
    fields = found.codec.model_fields
    assert (fields["vocabulary.padding_id"], fields["vocabulary.end_id"]) == (
        WORDS.index("[PAD]"),
        WORDS.index("[SEP]"),
    )
    (example,) = found.codec.read([(1, "the zebra runs")], name="x")
    ids = (example.source or example.target)[:3]
    assert ids == tuple(map(WORDS.index, ("the", "[UNK]", "runs")))
    assert example.unknown == ("zebra",)
    dog = WORDS.index("dog")
    assert found.codec.render([dog, WORDS.index("[SEP]"), WORDS.index("[PAD]")]).strip() == "dog"
