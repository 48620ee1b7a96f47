"""The published files on subject-verb agreement, and the two forms of an English verb in the present tense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from universal_transformer.errors import UserError
from universal_transformer.files import read_lines, show, show_path

SINGULAR, PLURAL = "VBZ", "VBP"
_OTHER = {SINGULAR: PLURAL, PLURAL: SINGULAR}
TAGS = frozenset(
    (
        *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNP", "NNPS", "NNS"),
        *("PDT", "POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "TO", "UH"),
        *("VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT", "WP", "WP$", "WRB"),
    )
)
"""Part-of-speech tags, which replace rare words."""
END_MARK = "<eos>"
MAX_DIGITS = 9
_DIGITS = f"at most {MAX_DIGITS} digits"

_IRREGULAR = {"are": "is", "have": "has", "do": "does", "were": "was", "am": "is", "go": "goes"}
_SINGULARS = {singular: plural for plural, singular in reversed(_IRREGULAR.items())}
_IE = frozenset(("dies", "lies", "ties", "vies", "underlies", "belies", "unties"))
_KEEP_E = ("ches", "shes", "sses", "xes", "zzes")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or one up to its verb, and the two forms of the verb."""

    words: tuple[str, ...]
    verb: int
    """Index of the verb."""
    right: str
    wrong: str
    attractors: int | None = None
    """Nouns of the other number before the verb; None if it is not known, -1 for nouns of both numbers."""
    whole: bool = True
    """Whether the words continue after the verb, to the end of the sentence."""

    @property
    def group(self) -> str:
        if self.attractors is None:
            return ""
        if self.attractors < 0:
            return "mixed"
        return f"{self.attractors} attractor{'s' * (self.attractors != 1)}"

    def as_tag(self) -> Sentence:
        """Return the sentence up to its verb, with the tag in the verb's place."""
        tag = SINGULAR if is_singular(self.right, self.wrong) else PLURAL
        return replace(self, words=(*self.words[: self.verb], tag), right=tag, wrong=_OTHER[tag], whole=False)


def is_singular(form: str, other: str) -> bool:
    """Whether `form` is the singular one of two forms of a verb."""
    return plural_of(form) == other or (singular_of(form) != other and form.endswith("s"))


def plural_of(verb: str) -> str:
    """Return the plural form of a verb in the third person singular: "goes" -> "go", "tries" -> "try"."""
    if verb in _SINGULARS:
        return _SINGULARS[verb]
    if verb in _IE:
        return verb[:-1]
    if verb.endswith("ies") and len(verb) > 4:
        return verb[:-3] + "y"
    if verb.endswith(_KEEP_E) or verb.endswith("oes"):
        return verb[:-2]
    return verb.removesuffix("s")


def singular_of(verb: str) -> str:
    """Return the third person singular of a verb in its plural form: "go" -> "goes", "try" -> "tries"."""
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.endswith(("ch", "sh", "ss", "x", "zz", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


def read_prefixes(path: Path, *, attractors: int | None = None) -> Iterator[Sentence]:
    """Read Linzen's simplified format, ``VBZ<TAB>words before the verb``."""
    for number, line in read_lines(path):
        tag, tab, text = line.partition("\t")
        if tag not in (SINGULAR, PLURAL) or not tab or not text.split():
            raise UserError(
                f"{show_path(path)}:{number}: found {show(line)}; expected {SINGULAR} or {PLURAL}, a tab, words"
            )
        words = tuple(text.split())
        yield Sentence((*words, tag), len(words), tag, _OTHER[tag], attractors, whole=False)


def read_sample(path: Path) -> Iterator[Sentence]:
    """Read the course's format: sentence, subject's index, verb's index, tag, verb, other form; a head line first."""
    columns = ("sentence", "subj_idx", "verb_idx", "verb_pos", "verb", "inflected_verb")
    for where, fields in _rows(path, columns):
        words = tuple(fields["sentence"].split())
        verb = _index(fields["verb_idx"], words, where=where)
        right, wrong = fields["verb"], fields["inflected_verb"]
        if words[verb] in (SINGULAR, PLURAL):  # a rare verb
            right, wrong = words[verb], _OTHER[words[verb]]
        yield Sentence(words, verb, right, wrong)


def read_forms(text: Path, gold: Path) -> Iterator[Sentence]:
    """Read sentences, and from `gold` ``index of the verb<TAB>right form<TAB>wrong form<TAB>attractors`` of each."""
    name = show_path(gold)
    for sentence, line in zip_longest(read_lines(text), read_lines(gold)):
        if sentence is None or line is None:
            raise UserError(f"{name}: not as many lines as {show_path(text)}; expected one for each sentence")
        words = tuple(sentence[1].removesuffix(END_MARK).split())
        fields = line[1].split("\t")
        where = f"{name}:{line[0]}"
        if len(fields) != 4 or not _is_number(fields[3]):
            raise UserError(
                f"{where}: found {show(line[1])}; expected index, right form, wrong form, attractors "
                f"({_DIGITS}) with tabs between"
            )
        verb = _index(fields[0], words, where=where)
        yield Sentence(words, verb, fields[1].lower(), fields[2].lower(), int(fields[3]))


def read_dependencies(path: Path) -> Iterator[Sentence]:
    """Read the official file: a head line, then columns; "sentence" has tags for rare words, indices begin at 1."""
    columns = ("sentence", "verb_pos", "verb_index", "n_intervening", "n_diff_intervening")
    for where, fields in _rows(path, columns):
        words = tuple(fields["sentence"].split())
        if not _is_number(fields["verb_index"]):
            raise UserError(
                f"{where}: verb_index {show(fields['verb_index'])}; expected a number from 1 on ({_DIGITS})"
            )
        verb = _index(str(int(fields["verb_index"]) - 1), words, where=where)
        right, tag = words[verb], fields["verb_pos"]
        if tag not in (SINGULAR, PLURAL):
            raise UserError(f"{where}: verb_pos {show(tag)}; expected {SINGULAR} or {PLURAL}")
        inflect = plural_of if tag == SINGULAR else singular_of
        wrong = _OTHER[right] if right in _OTHER else inflect(right)
        nouns, attractors = fields["n_intervening"], fields["n_diff_intervening"]
        if not (_is_number(nouns) and _is_number(attractors)):
            raise UserError(
                f"{where}: n_intervening {show(nouns)}, n_diff_intervening {show(attractors)}; "
                f"expected numbers ({_DIGITS})"
            )
        yield Sentence(words, verb, right, wrong, int(attractors) if nouns == attractors else -1)


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (place, the columns asked for) of a tab-separated file with a head line."""
    head: list[str] | None = None
    for number, line in read_lines(path):
        where = f"{show_path(path)}:{number}"
        fields = [_unquoted(part) for part in line.split("\t")]
        if head is None:
            head = fields
            if missing := [column for column in columns if column not in head]:
                raise UserError(
                    f"{where}: no column {', '.join(missing)}; expected a head line that names {', '.join(columns)}"
                )
            continue
        if len(fields) != len(head):
            raise UserError(f"{where}: {len(fields)} columns; expected {len(head)} as in the head line")
        found = dict(zip(head, fields, strict=True))
        yield where, {column: found[column] for column in columns}


def _unquoted(text: str) -> str:
    """Remove the quoting that a spreadsheet program adds to a field with a quotation mark."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


def _is_number(text: str) -> bool:
    """Whether `text` is a whole number of few digits: Python refuses to read thousands of them."""
    return text.isdecimal() and len(text) <= MAX_DIGITS


def _index(text: str, words: Sequence[str], *, where: str) -> int:
    if not _is_number(text) or not 0 <= int(text) < len(words):
        raise UserError(f"{where}: the verb's index is {show(text)}; expected one of the {len(words)} words")
    return int(text)
