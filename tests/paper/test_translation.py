"""Corpora of sentence pairs in several files, and pairs that may not be trained on."""

import pytest

from paper.runs import PlannedRun, Runner
from paper.table7 import TABLE7
from paper.tasks.translation import CORPORA, TranslationData
from universal_transformer.errors import UserError
from universal_transformer.typed import replaced

NEWS = CORPORA["wmt-news"]


def news(folder):
    """Four pairs a year; three of 2008 share a source or a target with the validation or the test."""
    root = folder / NEWS.folder
    root.mkdir()
    for part in (*NEWS.train, NEWS.validation, *NEWS.tests):
        for language in NEWS.languages:
            lines = [f"{part} {language} number {number} .\n" for number in range(4)]
            (root / f"{part}.{language}").write_text("".join(lines))
    for language, lines in {
        "eng": ["Newstest2014  ENG number 2 .", "own source", "newstest2013 eng number 0 .", "own text"],
        "deu": ["own target", "newstest2013 deu Number 3 .", "newstest2014 deu number 1 .", "own text"],
    }.items():
        (root / f"news-test2008.{language}").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_no_pair_with_a_text_of_the_validation_or_the_test_is_trained_on(tmp_path):
    task = TranslationData(corpus="wmt-news", vocabulary_size=300, data_dir=str(news(tmp_path))).load()
    sources = [task.codec.source.render(example.source) for example in task.train]
    targets = [task.codec.render(example.target) for example in task.train]
    others = [part for part in NEWS.train if part != "news-test2008"]
    for texts, language in ((sources, "eng"), (targets, "deu")):
        assert texts == ["own text", *(f"{part} {language} number {n} ." for part in others for n in range(4))]
    assert [task.codec.render(example.target) for example in task.test["newstest2014"]] == [
        f"newstest2014 deu number {n} ." for n in range(4)
    ]
    assert len(task.validation) == 4
    total = 4 * len(NEWS.train)
    assert any(f"3 of {total} pairs left out: their source or target is also" in note for note in task.notes)


def test_the_rows_of_newstest_are_written_by_the_search_of_the_paper(tmp_path):
    small = {
        "data.data_dir": str(news(tmp_path)),
        "data.vocabulary_size": 300,
        "model.sizes.width": 16,
        "model.sizes.filter_width": 16,
        "training.max_updates": 1,
    }
    config = replaced(TABLE7.rows["wmt-news/ut"](), small)
    runner = Runner(table=TABLE7, runs=tmp_path / "runs", say=print, quiet=True)
    result = runner.make(PlannedRun("wmt-news/ut", config), task=config.data.load())
    assert "free-running output, 4 beams, length penalty 0.6" in result.notes
    assert set(result.figures["newstest2014"]) >= {"bleu", "chrf"}


def test_missing_files_are_named_with_their_folder(tmp_path):
    with pytest.raises(UserError, match=r"wmt_news_ende.news-test2008\.eng: no such file .*OPUS-MT-testsets"):
        TranslationData(corpus="wmt-news", data_dir=str(tmp_path)).load()


@pytest.mark.slow
def test_published_counts(shared_data):
    """SOURCE.txt: 27,656 news pairs without 2013 and 2014, and 17,565 of Tatoeba."""
    if not (shared_data / NEWS.folder).is_dir():
        pytest.skip(f"no WMT news test sets in {shared_data}")
    task = TranslationData(corpus="wmt-news").load()
    assert any(f"3 of {27_656 + 17_565:,} pairs left out" in note for note in task.notes)
    assert (len(task.validation), len(task.test["newstest2014"])) == (3000, 3003)
