"""Tokenizers that were learned elsewhere."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, load_file, make_tokenizer, saved_tokenizer
from universal_transformer.errors import UserError

TEXTS = ["the quick brown fox jumps over the lazy dog", "don't I_JUMP (twice)?", "the end of the day"] * 5


def hugging_face(kind):
    """Return the tokenizer.json of a small tokenizer of one of the usual families."""
    unknown = "[UNK]"
    special = [unknown, "[CLS]"]
    if kind == "BPE":
        library = Library(models.BPE())
        library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    elif kind == "WordPiece":
        library = Library(models.WordPiece(unk_token=unknown))
        library.normalizer, library.decoder = normalizers.BertNormalizer(), decoders.WordPiece()
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    else:
        library = Library(models.Unigram())
        library.pre_tokenizer, library.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token=unknown, show_progress=False)
    library.train_from_iterator(TEXTS, trainer)
    if kind == "WordPiece":
        library.post_processor = processors.TemplateProcessing("[CLS] $A", None, [("[CLS]", 1)])
    return library.to_str()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    for kind in ("BPE", "WordPiece", "Unigram"):
        (folder / f"{kind}.json").write_text(hugging_face(kind))
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
    )
    (folder / "pieces.model").write_bytes(model.getvalue())
    return folder


NAMES = ("BPE.json", "WordPiece.json", "Unigram.json", "pieces.model")


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_file_and_a_run_has_a_copy(files, tmp_path, name):
    tokenizer = load_file(files / name)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = saved_tokenizer(tmp_path, "tokenizer")
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    assert again != load_file(files / next(other for other in NAMES if other != name))
    assert Tokenizer.train(TEXTS, kind="word", vocabulary_size=30) != tokenizer
    for text in TEXTS[:3]:
        ids = tokenizer.encode(text)
        assert not set(special_ids(tokenizer)) & set(ids)
        assert max(ids) < len(tokenizer)
        assert again.encode(text) == ids
        assert tokenizer.decode([tokenizer.start_id, *ids, tokenizer.end_id, tokenizer.padding_id]) == again.decode(ids)
        assert tokenizer.unknown(text) == ()
        assert all(tokenizer.piece(index) for index in ids)
        if name != "WordPiece.json":  # which is lossy by itself
            assert tokenizer.decode(ids) == text
    assert tokenizer.encode_many(TEXTS[:3]) == [tokenizer.encode(text) for text in TEXTS[:3]]
    library = Library.from_file(str(files / name)) if name.endswith(".json") else None
    if library is not None:
        found = library.encode(TEXTS[0], add_special_tokens=False).ids
        assert tokenizer.encode(TEXTS[0]) == found


@pytest.mark.parametrize("name", ["WordPiece.json", "Unigram.json"])
def test_a_vocabulary_without_the_unknown_token_is_refused(files, tmp_path, name):
    fields = json.loads((files / name).read_text())
    fields["model"]["unk_token" if name == "WordPiece.json" else "unk_id"] = None if name == "Unigram.json" else "[NO]"
    (tmp_path / name).write_text(json.dumps(fields))
    with pytest.raises(
        UserError, match=rf"{name}: a \w+ model whose unknown token is .*; expected one of its vocabulary"
    ):
        load_file(tmp_path / name)


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_unknown_token_is_that_of_the_file(files, name):
    tokenizer = load_file(files / name)
    ids = tokenizer.encode("the Ж dog")
    assert ids.count(tokenizer.unknown_id) == 1
    assert tokenizer.unknown("the Ж dog") == ("Ж",)
    assert tokenizer.piece(tokenizer.unknown_id) in ("[UNK]", "<unk>")
    assert tokenizer.decode(ids) != tokenizer.decode([index for index in ids if index != tokenizer.unknown_id])


NAMED = {"padding_id": "[PAD]", "start_id": "[CLS]", "end_id": "[SEP]", "unknown_id": "[UNK]"}


@given(
    st.sets(st.sampled_from(list(NAMED))), st.lists(st.sampled_from([*NAMED.values(), "<pad>", "<end>", "dog", " "]))
)
def test_a_file_gets_the_special_tokens_that_it_has_not(tmp_path_factory, given_roles, words):
    vocabulary = {token: index for index, token in enumerate(["dog", *(NAMED[role] for role in sorted(given_roles))])}
    library = Library(models.BPE(vocab=vocabulary, merges=[]))
    path = tmp_path_factory.mktemp("special") / "tokenizer.json"
    path.write_text(library.to_str())
    tokenizer = load_file(path)
    ids = special_ids(tokenizer)
    assert len({*ids}) == 4
    assert len(tokenizer) == len(vocabulary) + 4 - len(given_roles)
    for role, name in NAMED.items():
        assert (tokenizer.piece(getattr(tokenizer, role)) == name) == (role in given_roles)
    assert not {*ids} & {*tokenizer.encode("".join(words))}, "no text pads or ends a sequence"


def special_ids(tokenizer):
    return [tokenizer.padding_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.sampled_from(NAMES))
def test_any_text_is_encoded_and_decoded(files, text, name):
    tokenizer = load_file(files / name)
    assert isinstance(tokenizer.decode(tokenizer.encode(text)), str)
    assert isinstance(tokenizer.unknown(text), tuple)


def changed(*path):
    *keys, last, value = path

    def change(fields):
        for key in keys:
            fields = fields[key]
        fields[last] = value

    return change


DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
UNCHANGED = {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}

HOSTILE = {
    "a bomb of a normalizer": changed("normalizer", {"type": "Sequence", "normalizers": [DOUBLING] * 40}),
    "a bomb of a decoder": changed("decoder", {"type": "Sequence", "decoders": [DOUBLING] * 40}),
    "a bomb of one component": changed("decoder", {**DOUBLING, "content": "a" * 1000}),
    "an empty pattern": changed("normalizer", {**DOUBLING, "pattern": {"String": ""}}),
    "a long addition": changed("normalizer", {"type": "Prepend", "prepend": "a" * 10**6}),
    "a thousand components": changed("normalizer", {"type": "Sequence", "normalizers": [UNCHANGED] * 1000}),
    "a token of a megabyte": lambda fields: fields["model"]["vocab"].update({"a" * 2**20: 999}),
    "padding": changed("padding", {"strategy": {"Fixed": 10**12}, "pad_id": 0, "pad_token": "x"}),
    "truncation": changed("truncation", {"max_length": 1, "strategy": "LongestFirst", "stride": 0}),
    "regular expression": changed("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a*)*b" * 99}}),
    "hidden expression": changed(
        "normalizer",
        {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}]},
    ),
    "unknown component": changed("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "a component that is no object": changed("decoder", 3),
    "a list that is none": changed("decoder", {"type": "Sequence", "decoders": 3}),
    "dropout": changed("model", "dropout", 0.5),
    "another model": changed("model", "type", "Perceptron"),
    "no model": changed("model", None),
    "no vocabulary": changed("model", "vocab", {}),
    "text for an id": changed("model", "vocab", {"a": "b"}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line(files, tmp_path, name):
    fields = json.loads((files / "BPE.json").read_text())
    HOSTILE[name](fields)
    (tmp_path / "bad.json").write_text(json.dumps(fields))
    with pytest.raises(UserError, match=r"bad\.json") as caught:
        load_file(tmp_path / "bad.json")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["a.json", "a.model"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"{}", b"[1]", b"\x0a\x05abc", bytes(range(256))])
def test_a_file_of_something_else_is_refused_in_one_line(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name.replace(".", r"\.")) as caught:
        load_file(tmp_path / name)
    assert str(caught.value).isprintable()


@given(st.sampled_from(["WordPiece.json", "pieces.model"]), st.data())
def test_no_damage_aborts_the_process(files, tmp_path_factory, name, data):
    content = bytearray((files / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(bytes(content[: data.draw(st.integers(len(content) // 2, 2 * len(content)))]))
    message = ""
    try:
        tokenizer = load_file(path)
        tokenizer.decode(tokenizer.encode(TEXTS[0]))
    except UserError as error:
        message = str(error)
    assert message == "" or message.isprintable()


def test_what_is_neither_a_kind_nor_a_file_is_refused_with_what_is_allowed(files):
    for choice in ("character", "whitespace", "word", "bpe", "any.json", "any.model"):
        check_choice(choice, 300, lower_case=False)
    for kind, size in (("bpe", 259), ("word", 4), ("word", 2_000_000)):
        with pytest.raises(UserError, match=r"--data\.vocabulary-size .*: expected"):
            check_choice(kind, size, lower_case=False)
    with pytest.raises(UserError, match=r"'wrod': expected one of character, .* \(did you mean word\?\), or a file"):
        check_choice("wrod", 300, lower_case=False)
    with pytest.raises(UserError, match=r"--data\.lower-case: the tokenizer file a\.json decides"):
        check_choice("a.json", 300, lower_case=True)
    file = make_tokenizer(str(files / "BPE.json"), [], vocabulary_size=9, lower_case=False)
    assert len(file) == 304, "300 of the file and the special ones"
