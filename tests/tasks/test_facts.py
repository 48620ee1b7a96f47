import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data.example import NO_CLASS
from universal_transformer.data.story_lines import Question, parse, words
from universal_transformer.errors import UserError
from universal_transformer.tasks import Codec
from universal_transformer.tasks.facts import encode_question, fact_codec
from universal_transformer.tasks.sides.fact_list import UNKNOWN_WORD

STORY = [
    "1 Ada went to the mill.",
    "2 Ben went to the barn.",
    "3 Where is Ada? \tmill\t1",
    "4 Ada took the rope.",
    "5 What has Ada?\trope, saw\t4 1",
    "1 Ben left.",
    "2 Where is Ben?\tbarn\t",
]
WORD = st.text(alphabet="abcdefgh", min_size=1, max_size=4)
SENTENCE = st.lists(WORD, min_size=1, max_size=6).map(" ".join)


def numbered(lines):
    return list(enumerate(lines, start=1))


def questions(lines=STORY, *, answers=True):
    return list(parse(numbered(lines), name="f.txt", answers=answers))


def test_a_question_sees_all_earlier_statements_of_its_story_and_no_questions():
    first, second, third = questions()
    assert first == Question(
        where="f.txt:3",
        story=0,
        facts=("Ada went to the mill.", "Ben went to the barn."),
        text="Where is Ada?",
        answer="mill",
        supports=(0,),
    )
    assert second.facts == (*first.facts, "Ada took the rope.")
    assert (second.answer, second.supports, second.story) == ("rope,saw", (2, 0), 0)
    assert (third.facts, third.supports, third.story) == (("Ben left.",), (), 1)


@given(
    stories=st.lists(
        st.lists(st.tuples(SENTENCE, st.sampled_from(["", "q", "r"])), min_size=1, max_size=8),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_in_the_format_is_read_back(stories):
    lines, expected = [], []
    for number, story in enumerate(stories):
        facts, ids = [], []
        for identifier, (sentence, answer) in enumerate(story, start=1):
            if answer:
                lines.append(f"{identifier} {sentence}?\t{answer}\t{' '.join(map(str, ids[::-1]))}")
                expected.append((number, tuple(facts), answer, tuple(range(len(ids)))[::-1]))
            else:
                lines.append(f"{identifier} {sentence}.")
                ids.append(identifier)
                facts.append(f"{sentence}.")
    if not expected:
        with pytest.raises(UserError, match=r"^f.txt: no question in the file"):
            questions(lines)
        return
    found = [(question.story, question.facts, question.answer, question.supports) for question in questions(lines)]
    assert found == expected


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1 Ada left.", "3 Where?\tmill\t1"], r"^f.txt:2: expected ID 1 or 2, found 3$"),
        (["2 Ada left."], r"^f.txt:1: expected ID 1, found 2$"),
        (["Ada left."], r"^f.txt:1: expected 'ID statement' or .*, found 'Ada left.'$"),
        (["1"], r"^f.txt:1: expected 'ID statement' or .*, found '1'$"),
        (["1 ..."], r"^f.txt:1: expected words after the ID, found '...'$"),
        (["1 Ada left.", "2 Where?\tmill"], r"^f.txt:2: question without supporting IDs; "),
        (["1 Ada left.", "2 Where?\tmill\t1\tx"], r"^f.txt:2: .*found 4 columns$"),
        (["1 Ada left.", "2 Where?"], r"^f.txt:2: question without an answer"),
        (["1 Ada left.", "2 Where?\t\t1"], r"^f.txt:2: question without an answer"),
        pytest.param([f"{'1' * 5000} Ada left."], r"^f.txt:1: ID .* has 5000 digits; at most 9", id="digits"),
        pytest.param(["1 Ada left.", f"2 Where?\tmill\t{'1' * 5000}"], r"^f.txt:2: supporting ID '1+", id="support"),
        (["1 Ada left.", "2 Where?\tmill\t9"], r"^f.txt:2: supporting ID '9' names no earlier statement"),
        (["1 Ada left.", "2 Where?\tmill\tx"], r"^f.txt:2: supporting ID 'x' names no"),
        (["1 A b?\tx\t", "2 Where?\tmill\t1"], r"^f.txt:2: supporting ID '1' names no"),
        (["1 Ada left.", "1 Ben left.", "2 Where?\tmill\t2"], r"^f.txt:3: supporting ID '2' names no"),
        ([], r"^f.txt: no question in the file"),
        (["1 Ada left."], r"^f.txt: no question in the file"),
    ],
)
def test_a_broken_line_is_named(lines, message):
    with pytest.raises(UserError, match=message) as raised:
        questions(lines)
    assert "\n" not in str(raised.value)


def test_empty_lines_between_stories_are_skipped():
    assert len(questions([*STORY[:5], "", *STORY[5:], " "])) == 3


def test_for_prediction_answers_and_supports_may_be_missing():
    lines = ["1 Ada left.", "2 Where is Ada?", "3 Who left?\tada", "4 Who?\tada\t1"]
    found = questions(lines, answers=False)
    assert [question.answer for question in found] == [None, "ada", "ada"]
    assert [question.supports for question in found] == [(), (), (0,)]
    assert all(question.facts == ("Ada left.",) for question in found)


def test_words_are_lower_case_and_bare():
    assert words("  Where is  Ada's Hat ? ") == ["where", "is", "ada's", "hat"]
    assert words("Yes, she left.") == ["yes", "she", "left"]


def test_each_fact_is_one_position_and_the_question_is_last():
    codec = fact_codec(questions())
    example = encode_question(codec, questions()[1], group="g")
    assert codec.words(example) == [
        "ada went to the mill",
        "ben went to the barn",
        "ada took the rope",
        "what has ada",
    ]
    assert codec.render(example.target) == "rope,saw"
    assert (example.supports, example.group) == ((2, 0), "g")
    assert codec.source.max_fact_words == 5
    assert min(word for fact in example.source for word in fact) >= 2
    assert codec.model_fields["vocabulary.size"] == 2 + len(codec.source.vocabulary)
    assert codec.model_fields["vocabulary.num_classes"] == 3


@pytest.mark.parametrize("recent_first", [False, True])
@pytest.mark.parametrize("max_facts", [0, 1, 2, 9])
def test_order_and_number_of_facts_keep_the_supports_on_the_same_sentences(recent_first, max_facts):
    plain = fact_codec(questions())
    codec = fact_codec(questions(), recent_first=recent_first, max_facts=max_facts)
    for question in questions():
        kept = list(question.facts)[-max_facts:] if max_facts else list(question.facts)
        if recent_first:
            kept.reverse()
        example = encode_question(codec, question)
        assert codec.words(example) == [" ".join(words(text)) for text in [*kept, question.text]]
        supporting = {codec.words(example)[index] for index in example.supports}
        wanted = {plain.words(encode_question(plain, question))[index] for index in question.supports}
        assert supporting == wanted & set(codec.words(example)[:-1])


def test_words_and_answers_never_seen_are_no_error():
    codec = fact_codec(questions())
    (question,) = questions(["1 Zoe went to the mill.", "2 Where is Zoe?\tmoon\t1"])
    example = encode_question(codec, question)
    assert example.target == NO_CLASS
    assert codec.render(NO_CLASS) == "<unknown>"
    assert example.source[0][0] == UNKNOWN_WORD
    assert codec.words(example)[0] == "<unknown> went to the mill"


def test_words_never_seen_are_named_as_they_were_written():
    codec = fact_codec(questions())
    lines = ["1 Zoe went to the mill.", "2 Zoe went to the Cellar.", "3 Where is Zoe?", "1 Ada went to the mill."]
    found = codec.read(numbered([*lines, "2 Where is Ada?"]), name="f.txt")
    assert [example.unknown for example in found] == [("Zoe", "Cellar"), ()]


def test_a_longer_fact_than_the_model_can_take_is_named():
    codec = fact_codec(questions())
    lines = numbered(["1 Ada went to the very old mill.", "2 Where is Ada?"])
    with pytest.raises(UserError, match=r"^f.txt:2: 'Ada went .* has 7 words; a fact has at most 5, as in"):
        list(codec.read(lines, name="f.txt"))


def test_reading_gives_one_example_a_question_without_its_answer():
    codec = fact_codec(questions())
    examples = list(codec.read(numbered(STORY), name="f.txt"))
    assert [example.target for example in examples] == [NO_CLASS] * 3
    assert [example.source for example in examples] == [
        encode_question(codec, question).source for question in questions()
    ]


@pytest.mark.parametrize("recent_first", [False, True])
def test_a_saved_codec_comes_back_the_same(tmp_path, recent_first):
    codec = fact_codec(questions(), recent_first=recent_first, max_facts=3)
    assert isinstance(codec, Codec)
    codec.save(tmp_path)
    assert Codec.load(tmp_path) == Codec.load(tmp_path) == codec


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "codec.json: missing: source, target"),
        ("[", "codec.json: not valid JSON"),
        ('{"source": {"kind": "songs"}, "target": null}', "source: unknown kind 'songs'; known are text"),
        (
            '{"source": {"kind": "facts", "words": []}, "target": null}',
            r"codec.json: source: unknown: words; fields: kind",
        ),
        (
            '{"source": {"kind": "facts", "vocabulary": 5, "max_fact_words": 1, "max_facts": 0, '
            '"recent_first": false}, "target": null}',
            "codec.json: source.vocabulary: expected one or more values",
        ),
    ],
)
def test_a_broken_codec_is_refused(tmp_path, content, message):
    (tmp_path / "codec.json").write_text(content)
    with pytest.raises(UserError, match=message):
        Codec.load(tmp_path)


def test_a_missing_codec_is_named(tmp_path):
    with pytest.raises(UserError, match=r"codec.json: no such file"):
        Codec.load(tmp_path)
