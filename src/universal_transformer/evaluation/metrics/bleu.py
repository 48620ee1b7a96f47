"""BLEU and chrF of translations, computed by sacreBLEU on the lines as they were written."""

from collections.abc import Sequence
from typing import Any

from universal_transformer.data.example import Example
from universal_transformer.errors import UserError, optional
from universal_transformer.evaluation.metrics.written import EXACT_MATCH, WrittenText, exact_match
from universal_transformer.evaluation.scores import Score, ScoreSums
from universal_transformer.files import show
from universal_transformer.tasks.task import BleuTokenizer


class Bleu(WrittenText):
    """sacreBLEU, chrF and exact matches. The score of one example is its chrF: BLEU is a score of a whole corpus."""

    shown = (Score("bleu", "BLEU", 2, "high"), Score("chrf", "chrF", 2, "high"), EXACT_MATCH)
    decisive = "bleu"

    def check_packages(self) -> None:
        bleu_scorer(self.task.bleu_tokenizer)

    def of_text(self, text: str, example: Example) -> ScoreSums:
        reference = self.reference(example)
        return ScoreSums(sums=exact_match(text, reference), texts=[(text, reference)])

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        corpus, _ = corpus_scores(sums.texts, tokenizer=self.task.bleu_tokenizer)
        return corpus | {"exact_match": sums.mean("exact")}

    def signatures(self) -> dict[str, str]:
        return corpus_scores([("", "")], tokenizer=self.task.bleu_tokenizer)[1]

    def example_score(self, sums: ScoreSums) -> float:
        ((hypothesis, reference),) = sums.texts
        return min(1.0, load_sacrebleu().CHRF().sentence_score(hypothesis, [reference]).score / 100)


def load_sacrebleu() -> Any:
    return optional("sacrebleu", needed="scoring by BLEU needs sacreBLEU", extra="metrics")


def bleu_scorer(tokenizer: BleuTokenizer) -> Any:
    """Return sacreBLEU's BLEU; UserError, in one line, for a tokenizer whose packages or model are missing."""
    sacrebleu = load_sacrebleu()
    try:
        # force: without it sacreBLEU prints advice about an option of its own where texts end in " ."
        return sacrebleu.BLEU(tokenize=tokenizer, force=True)
    except (RuntimeError, ImportError) as error:
        extra = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}.get(tokenizer, "sentencepiece")
        raise UserError(f"bleu_tokenizer={tokenizer}: a package is missing: run pip install '{extra}'") from error
    except OSError as error:
        raise UserError(
            f"bleu_tokenizer={tokenizer}: sacreBLEU could not download the model of this tokenizer "
            f"({show(str(error))}); allowed without network: 13a, intl, zh, ja-mecab, ko-mecab, char, none"
        ) from error


def corpus_scores(
    texts: Sequence[tuple[str, str]], *, tokenizer: BleuTokenizer = "13a"
) -> tuple[dict[str, float], dict[str, str]]:
    """BLEU and chrF of (hypothesis, reference) pairs, with sacreBLEU's signatures."""
    hypotheses, references = [pair[0] for pair in texts], [[pair[1] for pair in texts]]
    scores, signatures = {}, {}
    for name, scorer in (("bleu", bleu_scorer(tokenizer)), ("chrf", load_sacrebleu().CHRF())):
        scores[name] = float(scorer.corpus_score(hypotheses, references).score)
        signatures[name] = str(scorer.get_signature())
    return scores, signatures
