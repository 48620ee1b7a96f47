"""``ut push``: a trained model, with its card, on the hub of Hugging Face."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from universal_transformer import __version__
from universal_transformer.cli.output import note
from universal_transformer.cli.parser import OptionForm, Place
from universal_transformer.cli.shared_options import Folder, OfRun
from universal_transformer.errors import UserError
from universal_transformer.files import new_folder, quoted, show, show_path, write_json, write_text
from universal_transformer.manifest import MANIFEST, MODEL, read_manifest
from universal_transformer.pretrained_models import CARD, PAGE

if TYPE_CHECKING:
    from universal_transformer.evaluation.report import Report
    from universal_transformer.pretrained_models.card import Figures
    from universal_transformer.runs.opened import Run


@dataclass(frozen=True, kw_only=True)
class Push(OfRun):
    """Upload a trained model to the hub of Hugging Face, with a card that states its figures.

    A copy from there is the folder of a run: ut predict and load take it, and ut evaluate where the data are no files
    of yours, or with --data.test FILE. Data and checkpoints are not uploaded, and the configuration names your files
    without their folders.
    """

    repository: Annotated[str, OptionForm("USER/NAME", place=Place.WORD)]
    """Where it is uploaded to; made if it is not there."""
    private: bool = False
    """Make it private."""
    license: Annotated[str, OptionForm("ID")] = ""
    """Licence of the weights, as the hub names it, such as cc-by-4.0 (default: that of a pretrained model; of a run
    none)."""
    dry_run: Folder = ""
    """Write what would be uploaded into this new folder, and upload nothing."""

    def __call__(self) -> int:
        """Gather the files, and write or upload them."""
        if self.repository.count("/") != 1 or not all(self.repository.split("/")):
            raise UserError(f"{show(self.repository)}: expected USER/NAME, the name of a repository on the hub")
        target = Path(self.dry_run)
        if self.dry_run and (target.exists() or target.is_symlink()):
            raise UserError(f"--dry-run {show_path(target)}: there already; name a new folder")
        from universal_transformer.runs.opened import open_run

        run = open_run(Path(self.run))
        if self.dry_run:
            target.parent.mkdir(parents=True, exist_ok=True)
            with new_folder(target) as staging:
                self._gather(run, staging)
            print(f"written to {target}; nothing is uploaded")
            return 0
        with TemporaryDirectory() as name:
            self._gather(run, Path(name))
            print(f"uploaded to {self._upload(Path(name))}")
        return 0

    def _gather(self, run: Run, staging: Path) -> None:
        """Write the card and what `open_run` needs, of ``model/`` the files that its manifest lists."""
        from universal_transformer.evaluation.calibration import CALIBRATION
        from universal_transformer.runs.folder import CONFIG
        from universal_transformer.tasks.task import with_bare_files

        started = run.config.warm_start
        bare = started and dataclasses.replace(started, run=Path(started.run).name)
        config = dataclasses.replace(run.config, data=with_bare_files(run.config.data), warm_start=bare)
        write_json(staging / CONFIG, config.to_dict())
        (staging / MODEL).mkdir()
        names = [f"{MODEL}/{name}" for name in (MANIFEST, *read_manifest(run.folder / MODEL))]
        for name in (*names, *[CALIBRATION] * (run.folder / CALIBRATION).is_file()):
            shutil.copyfile(run.folder / name, staging / name)
        write_text(staging / "README.md", _card(run, name=self.repository.partition("/")[2], license_id=self.license))

    def _upload(self, folder: Path) -> str:
        """Make the repository, unless it is there, and commit the files; return its address."""
        import huggingface_hub

        if huggingface_hub.get_token() is None:
            raise UserError("no token of the hub: set HF_TOKEN, or run hf auth login")
        api = huggingface_hub.HfApi(library_name="universal_transformer", library_version=__version__)
        try:
            address = api.create_repo(self.repository, private=self.private or None, exist_ok=True)
            public = self.private and not api.model_info(self.repository).private  # the hub leaves an old one as it is
            if not public:
                api.upload_folder(repo_id=self.repository, folder_path=folder, commit_message="Upload a model")
        except Exception as error:  # of many libraries: network, rights, names
            reason = show(" ".join(str(error).split()), limit=200)
            raise UserError(f"{self.repository}: not uploaded ({reason})") from error
        if public:
            raise UserError(f"{self.repository}: there already, and public; leave --private out, or name a new one")
        return str(address)


def _report_name(run: Run) -> str:
    """The file that ``ut evaluate RUN`` writes: with a calibration, of the depth at which the model predicts."""
    from universal_transformer.cli.evaluate import Evaluate

    plain = Evaluate(run=str(run.folder))
    inference, _ = plain.inference(run)
    return plain.file_name(calibrated=inference != plain.decoding())


def _card(run: Run, *, name: str, license_id: str) -> str:
    """A header for the hub, the figures in it as ``model-index``; below it the page of a pretrained model, or of a run
    its scores.
    """
    from huggingface_hub import EvalResult, ModelCardData

    from universal_transformer.evaluation.metrics import scores
    from universal_transformer.evaluation.report import Report
    from universal_transformer.pretrained_models.card import HEADER, LICENSE, read_card

    figures: Figures = {}
    if (run.folder / CARD).is_file():
        figures, license_id = read_card(run.folder).figures, license_id or LICENSE
        page = (run.folder / PAGE).read_text(encoding="utf-8").removeprefix(HEADER)
    else:
        path = run.folder / _report_name(run)
        report = Report.load(path) if path.is_file() else None
        figures, page = report.figures if report else {}, _page(run, report, name=name)
    if not figures:
        note(f"the card has no figures: ut evaluate {quoted(run.folder)} measures them")
    task, titles, recipe = run.model.pipeline if run.codec.vocabulary else "", scores(), run.config.recipe
    results = [
        EvalResult(
            task_type=task or "other",
            dataset_type=recipe,
            dataset_name=f"{recipe}: {group or 'all'}",
            dataset_config=group,  # otherwise the groups are taken for one
            metric_type=score,
            metric_value=value,
            metric_name=titles[score].title if score in titles else score.replace("_", " "),
        )
        for group, found in figures.items()
        for score, value in found.items()
        if score != "count"
    ]
    tags = ["universal-transformer", *["adaptive-computation-time"] * run.model.config.halts]
    header = ModelCardData(
        model_name=name,
        license=license_id or None,
        library_name="universal_transformer",
        pipeline_tag=task or None,
        tags=tags,
        eval_results=results or None,
    )
    return f"---\n{header.to_yaml()}\n---\n\n{page}"


def _page(run: Run, report: Report | None, *, name: str) -> str:
    """What the card of a run says to people."""
    lines = [
        f"# {name}",
        "",
        f"{type(run.model).__name__} with {run.model.num_parameters():,} parameters, trained with the recipe "
        f"`{run.config.recipe}` of universal-transformer {__version__}.",
        "",
        f"Use: download this folder, then `ut predict {name}`, or `universal_transformer.load({name!r})` in Python.",
    ]
    if report:
        head, *rows = report.score_table()
        lines += ["", "## Results", ""]
        lines += [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
        lines += ["", *(f"- {text}" for text in (*report.warnings, *report.notes))]
    return "\n".join(lines).rstrip() + "\n"
