import hashlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data.tokenizer import END, KINDS, SPECIAL, UNKNOWN, Tokenizer
from universal_transformer.data.tokenizer_files import load_file
from universal_transformer.errors import UserError

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Zwei junge weiße Männer sind im Freien; ihr Hund bellt.",
    "<end> of the <pad>, <start> of an <unknown> \u201cday\u201d … don't!",
    "tabs\tand  two blanks, 12,345.67 €, 𝄞 and \u2028",
]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def make(kind, **changes):
    return Tokenizer.train(TEXTS, **({"kind": kind, "vocabulary_size": 300} | changes))


TOKENIZERS = {kind: make(kind) for kind in KINDS}


@given(ANY_TEXT)
def test_byte_pairs_lose_nothing(text):
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text(st.sampled_from(sorted(set("".join(TEXTS)))), max_size=60))
def test_known_characters_lose_nothing(text):
    tokenizer = TOKENIZERS["character"]
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


@given(
    st.lists(st.sampled_from(["The", "dog.", "Männer", "don't!", "“day”"]), max_size=9), st.sampled_from([" ", "  "])
)
def test_known_tokens_between_blanks_come_back_with_one_blank_between(words, blank):
    tokenizer = TOKENIZERS["whitespace"]
    assert tokenizer.decode(tokenizer.encode(blank.join(words))) == " ".join(words)


GLUED = "I_JUMP don't (twice), x_y: 'a-b' \"c\"!"
PARTS = [
    " I",
    "_",
    "JUMP",
    " don",
    "'",
    "t",
    " (",
    "twice",
    ")",
    ",",
    " x",
    "y",
    ":",
    " '",
    "a",
    "-",
    "b",
    ' "',
    "c",
    "!",
]


@given(st.lists(st.sampled_from([*PARTS, " ", "  "]), max_size=12).map("".join))
def test_known_words_lose_nothing(text):
    tokenizer = Tokenizer.train([GLUED], kind="word", vocabulary_size=300)
    ids = tokenizer.encode(text)
    if UNKNOWN not in ids:  # two parts can be one word together
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", [GLUED, "I_JUMP", "don't", " I  don't ", "(twice)(twice)"])
def test_a_text_of_words_is_restored(text):
    tokenizer = Tokenizer.train([GLUED, "I (twice)(twice)"], kind="word", vocabulary_size=300)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unknown(text) == ()


def test_a_first_word_is_the_token_that_it_is_elsewhere():
    tokenizer = Tokenizer.train(["walk twice and walk"], kind="word", vocabulary_size=300)
    assert tokenizer.encode("walk twice")[0] == tokenizer.encode("twice walk")[1]


@pytest.mark.parametrize(
    ("kind", "text", "unknown"),
    [
        ("character", "The ŷ ŷ", ("ŷ",)),
        ("whitespace", "The zebra. dog. zebra.", ("zebra.",)),
        ("word", "The zebra, dog; zebra", ("zebra",)),
        ("bpe", "The zebra", ()),
    ],
)
def test_unknown_words_are_named_as_the_user_wrote_them(kind, text, unknown):
    assert TOKENIZERS[kind].unknown(text) == unknown


def test_pieces_show_their_blanks():
    tokenizer = TOKENIZERS["word"]
    assert [tokenizer.piece(index) for index in (*tokenizer.encode("the dog."), END)] == ["▁the", "▁dog", ".", "<end>"]


@given(ANY_TEXT | st.lists(st.sampled_from([*SPECIAL, " ", "a"])).map("".join), st.sampled_from(KINDS))
def test_no_text_holds_special_ids(text, kind):
    ids = TOKENIZERS[kind].encode(text)
    assert all(UNKNOWN <= index < len(TOKENIZERS[kind]) for index in ids)
    if kind == "bpe":
        assert UNKNOWN not in ids


@given(st.lists(ANY_TEXT, max_size=5), st.sampled_from(KINDS))
def test_many_texts_are_encoded_as_each(texts, kind):
    assert TOKENIZERS[kind].encode_many(texts) == [TOKENIZERS[kind].encode(text) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lower_case", [False, True])
def test_saved_and_loaded_it_is_the_same(tmp_path, kind, lower_case):
    tokenizer = make(kind, lower_case=lower_case)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_file(tmp_path / "tokenizer.json")
    assert len(loaded) == len(tokenizer)
    assert loaded.by_character == (kind == "character" and not lower_case)
    for text in TEXTS:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    assert loaded == tokenizer
    assert hash(loaded) == hash(tokenizer)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    if lower_case:
        assert loaded.encode("THE DOG") == loaded.encode("the dog")


def test_tokenizers_that_differ_are_not_equal():
    kinds = [make(kind, lower_case=lower_case) for kind in KINDS for lower_case in (False, True)]
    more = Tokenizer.train([*TEXTS, "zebra"], kind="word", vocabulary_size=400)
    assert all((one == other) is (one is other) for one in [*kinds, more] for other in [*kinds, more])


def test_training_is_a_function_of_the_text(tmp_path):
    code = (
        "import sys; from pathlib import Path; from universal_transformer.data.tokenizer import *\n"
        "for kind in KINDS:\n"
        "    texts = [f'{a}{b} {b}{a}, {a}' for a in 'abcdefgh' for b in 'xyzäß']\n"
        "    tokenizer = Tokenizer.train(texts, kind=kind, vocabulary_size=290)\n"
        "    tokenizer.save(Path(sys.argv[1]) / f'{kind}.json')\n"
    )
    digests = set()
    for seed in ("0", "1", "2"):
        environment = {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": str(1 + int(seed))}
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment)
        whole = b"".join((tmp_path / f"{kind}.json").read_bytes() for kind in KINDS)
        digests.add(hashlib.sha256(whole).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_and_special_ids(kind):
    tokenizer = make(kind, vocabulary_size=262)
    assert len(tokenizer) <= 262
    assert [tokenizer.label(index) for index in range(4)] == list(SPECIAL)
    assert tokenizer.decode([1, *tokenizer.encode("dog"), END, 0, 0]) == tokenizer.decode(tokenizer.encode("dog"))
    assert all(tokenizer.label(index) for index in range(len(tokenizer)))


@pytest.mark.parametrize("call", ["encode", "spans", "unknown", "encode_many"])
def test_half_a_surrogate_is_a_user_error(call):
    with pytest.raises(UserError, match="surrogate"):
        getattr(TOKENIZERS["bpe"], call)(["a", "\ud800"] if call == "encode_many" else "\ud800")


def put(*path):
    """A mutation that sets the last but one of `path` to the last."""

    def change(fields):
        *keys, last, value = path
        for key in keys:
            fields = fields[key]
        fields[last] = value

    return change


def drop_byte(fields):
    vocabulary = fields["model"]["vocab"]
    vocabulary["neverseen"] = vocabulary.pop("Ġ")


HOSTILE = {
    "huge padding": put("padding", {"strategy": {"Fixed": 10**12}, "pad_id": 0, "pad_token": "x"}),
    "truncation": put("truncation", {"max_length": 1, "strategy": "LongestFirst", "stride": 0}),
    "added tokens": put("added_tokens", [{"id": 2, "content": "e", "special": True}]),
    "bad regular expression": put("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a*)*b" * 999}}),
    "unknown component": put("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "a number for a switch": put("pre_tokenizer", "use_regex", 1),
    "no decoder type": put("decoder", {}),
    "dropout": put("model", "dropout", 0.5),
    "model of another type": put("model", "type", "Unigram"),
    "no model": put("model", None),
    "another section": put("extra", 1),
    "no vocabulary": put("model", "vocab", {}),
    "vocabulary list": put("model", "vocab", ["a"]),
    "text id": put("model", "vocab", "a", "70"),
    "true id": put("model", "vocab", "a", True),
    "negative id": put("model", "vocab", "a", -1),
    "huge id": put("model", "vocab", "a", 2**40),
    "repeated id": put("model", "vocab", "a", 9),
    "moved special": put("model", "vocab", "<pad>", 7),
    "surrogate": put("model", "vocab", "\ud800", 70),
    "missing byte": drop_byte,
    "merge of unknown tokens": put("model", "merges", 0, ["qq", "qq"]),
    "merge of three": put("model", "merges", 0, ["a", "b", "c"]),
    "merge of numbers": put("model", "merges", 0, [1, 2]),
    "old merge": put("model", "merges", 0, "a b"),
    "merges no list": put("model", "merges", "a b"),
    "special merge": put("model", "merges", 0, ["<pad>", ""]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tokenizer_is_refused_in_one_line(tmp_path, name):
    path = tmp_path / "tokenizer.json"
    TOKENIZERS["bpe"].save(path)
    fields = json.loads(path.read_text())
    HOSTILE[name](fields)
    path.write_text(json.dumps(fields))
    with pytest.raises(UserError, match=r"tokenizer\.json: ") as caught:
        load_file(path)
    assert len(str(caught.value).splitlines()) == 1


def test_repeated_keys_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    TOKENIZERS["word"].save(path)
    path.write_text(path.read_text().replace('"padding": null', '"padding": null, "padding": null'))
    with pytest.raises(UserError, match="'padding' stands twice"):
        load_file(path)


@given(st.sampled_from(KINDS), st.data())
def test_no_damage_aborts_the_process(tmp_path_factory, kind, data):
    path = tmp_path_factory.mktemp("damaged") / "tokenizer.json"
    TOKENIZERS[kind].save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(len(content) // 2, 2 * len(content)))]))
    message = ""
    try:
        loaded = load_file(path)
        loaded.decode(loaded.encode(TEXTS[0]))
    except UserError as error:
        message = str(error)
    assert message == "" or message.isprintable()


@pytest.mark.parametrize("kind", ["character", "whitespace", "word"])
def test_tokens_that_are_always_known_come_after_those_of_the_text(kind):
    plain = Tokenizer.train(["a b b"], kind=kind, vocabulary_size=6)
    more = Tokenizer.train(["a b b"], kind=kind, vocabulary_size=6, always="b ! b !")
    assert more.tokens()[: len(plain)] == plain.tokens()
    assert more.unknown("b !") == ()
    assert more.decode(more.encode("b !")) == "b !"
