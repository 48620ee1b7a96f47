"""The documentation site: its pages are gathered with all that they link to, and read nothing from other hosts."""

import importlib
from pathlib import Path

import yaml

import gather_site

ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages_of(nav):
    for entry in nav:
        for value in entry.values():
            yield from pages_of(value) if isinstance(value, list) else [value]


def test_every_link_of_a_page_leads_to_a_file_of_the_site(tmp_path):
    gathered = gather_site.gather(tmp_path)
    pages = [page for page in gathered if page.suffix == ".md"]
    assert Path("notebook/README.md") in pages
    for page in pages:
        for link in gather_site.LINK.findall((tmp_path / page).read_text(encoding="utf-8")):
            assert (tmp_path / page.parent / link).is_file(), f"{page}: {link}"


def test_only_footnotes_of_results_are_changed(tmp_path):
    for page in gather_site.gather(tmp_path):
        ours, theirs = (ROOT / page).read_bytes(), (tmp_path / page).read_bytes()
        if page.parts[0] == "results":
            theirs = theirs.replace(rb"\[", b"[").replace(rb"\]", b"]")
        assert ours == theirs, page


def test_every_page_of_the_site_is_there(tmp_path):
    gather_site.gather(tmp_path)
    gather_site.write_packages(tmp_path)
    gather_site.add_models(tmp_path, [])
    assert all((tmp_path / page).is_file() for page in pages_of(CONFIG["nav"]))
    documented = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert documented <= {Path(page).name for page in pages_of(CONFIG["nav"])}
    for name in gather_site.PACKAGES:
        assert importlib.import_module(f"universal_transformer.{name}").__doc__


def test_nothing_is_read_from_another_host():
    assert CONFIG["theme"]["font"] is False
    fences = [
        extension["pymdownx.superfences"]
        for extension in CONFIG["markdown_extensions"]
        if "pymdownx.superfences" in extension
    ]
    assert fences == [{"custom_fences": []}]  # one for mermaid would load its script


def test_pages_of_models_are_linked_where_they_are_there(tmp_path):
    made, missing, site = tmp_path / "web" / "demo", tmp_path / "web" / "sudoku", tmp_path / "site"
    for folder in (made, site):
        folder.mkdir(parents=True)
    (made / "index.html").write_text("<!doctype html>", encoding="utf-8")
    gather_site.add_models(site, [made, missing])
    links = gather_site.LINK.findall((site / "models.md").read_text(encoding="utf-8"))
    assert links == ["web/demo/index.html"]
    assert (site / links[0]).is_file()
    gather_site.add_models(site, [])
    assert not gather_site.LINK.findall((site / "models.md").read_text(encoding="utf-8"))
