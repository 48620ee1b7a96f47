"""Gather the pages of the documentation site: those of the repository, and one of each public package for its API.

    python tools/gather_site.py FOLDER [PAGES …]

Every file that a page links to is copied too, at its place in the repository, so that a link leads where it does there.
PAGES are folders of `ut export --format web`, those that there are become part of the site.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PACKAGES = ("nn", "models", "rules", "decoding", "training", "evaluation")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
FOOTNOTE = re.compile(r"(?<= )\[(\d+)\](?!\()")
"""A number in brackets in a table of results. To the generator of the site it is a link."""


def gather(target: Path) -> set[Path]:
    """Copy the pages and what they link to, also from each other; return their paths in `target`."""
    waiting = [*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").glob("*.md"))]
    found = set(waiting)
    while waiting:
        file = waiting.pop()
        copy = target / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".md":
            shutil.copyfile(file, copy)
            continue
        text = file.read_text(encoding="utf-8")
        results = file.is_relative_to(ROOT / "results")
        copy.write_text(FOOTNOTE.sub(r"\\[\1\\]", text) if results else text, encoding="utf-8")
        for link in LINK.findall(text):
            linked = (file.parent / link).resolve()
            assert linked.is_file(), f"{file.relative_to(ROOT)}: {link} is no file: a site has no page of a folder"
            if linked not in found:
                found.add(linked)
                waiting.append(linked)
    return {file.relative_to(ROOT) for file in found}


def write_packages(target: Path) -> None:
    """Write a page for each of `PACKAGES`, which mkdocstrings fills."""
    (target / "api").mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        module = f"universal_transformer.{name}"
        (target / "api" / f"{name}.md").write_text(f"# {module}\n\n::: {module}\n", encoding="utf-8")


def add_models(target: Path, folders: list[Path]) -> None:
    """Copy the pages of models, and write a page with a link to each."""
    links = []
    for folder in folders:
        if (folder / "index.html").is_file():
            shutil.copytree(folder, target / "web" / folder.name)
            links.append(f"- [{folder.name}](web/{folder.name}/index.html)\n")
    made = (
        "".join(links)
        or "This copy of the site was made without them: `ut export RUN --format web` makes such a page.\n"
    )
    text = f"# In your browser\n\nModels that answer here, without Python, and show each step:\n\n{made}"
    (target / "models.md").write_text(text, encoding="utf-8")


def main() -> None:
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    print(f"{target}: {len(gather(target))} files and {len(PACKAGES)} pages of packages")
    write_packages(target)
    add_models(target, [Path(name) for name in sys.argv[2:]])


if __name__ == "__main__":
    main()
