import dataclasses
import gzip
import hashlib
import http.server
import io
import socket
import sys
import tarfile
import threading

import pytest

from universal_transformer.data import download
from universal_transformer.data.archive import read_members
from universal_transformer.data.download import FileState, check, data_folder, fetch, find, overall
from universal_transformer.data.sources import DATASETS, Dataset, File
from universal_transformer.errors import UserError

ONE, TWO = b"one\n", b"two\n" * 1000


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def tar(*members, prefix="top/"):
    """A .tar.gz; a member is (name, content) or a TarInfo."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, content = member
            info = tarfile.TarInfo(prefix + name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


@pytest.fixture
def site(monkeypatch):
    """A local web site: its pages by path, and its address as `site.address`."""

    class Site(dict):
        address = ""
        asked: list

    pages = Site()
    pages.asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            pages.asked.append(self.path)
            content = pages.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *arguments):
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        pages.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield pages
        server.shutdown()
        thread.join()


@pytest.fixture
def datasets(site, monkeypatch):
    """Two data sets on the local site: single files (one without a published hash), and an archive."""
    archive = tar(("en/one.txt", ONE), ("en/two.txt", TWO), ("other.txt", b"x"))
    site.update({"/one.txt": ONE, "/two.txt": TWO, "/a.tar.gz": archive})
    files = Dataset(
        about="files",
        licence="none",
        places=("files", "elsewhere"),
        files=(
            File(path="one.txt", sha256=sha256(ONE), url=f"{site.address}/one.txt"),
            File(path="deep/two.txt", sha256=None, url=f"{site.address}/two.txt"),
        ),
    )
    packed = Dataset(
        about="archive",
        licence="none",
        places=("packed/top", "top", "packed", "."),
        files=(File(path="en/one.txt", sha256=sha256(ONE)), File(path="en/two.txt", sha256=None)),
        archive=File(path="a.tar.gz", sha256=sha256(archive), url=f"{site.address}/a.tar.gz"),
        archive_prefix="top/",
    )
    unhashed = dataclasses.replace(packed, archive=dataclasses.replace(packed.archive, sha256=None))
    known = {"files": files, "packed": packed, "unhashed": unhashed}
    monkeypatch.setattr(download, "DATASETS", known)
    return known


def states(name, folder):
    return [file.state for file in check(name, folder)]


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_registry_is_sound():
    assert {"babi", "multi30k", "sva", "linzen", "novels", "fsdd", "mnist10k"} <= DATASETS.keys()
    for dataset in DATASETS.values():
        paths = [file.path for file in dataset.files]
        assert len(set(paths)) == len(paths) > 0
        for file in (*dataset.files, *filter(None, [dataset.archive])):
            assert file.url.startswith("https://") or (not file.url and dataset.archive)
            assert file.sha256 is None or (len(file.sha256) == 64 and int(file.sha256, 16) >= 0)
            assert not file.path.startswith("/")
            assert ".." not in file.path


def test_files_are_fetched_once(datasets, site, tmp_path):
    said = []
    assert states("files", tmp_path) == ["missing", "missing"]
    fetched = fetch("files", tmp_path, report=said.append)
    assert [file.state for file in fetched] == ["ok", "first seen"]
    assert fetched[1].path.read_bytes() == TWO
    assert any("no hash known" in line and sha256(TWO) in line for line in said)
    assert names(tmp_path / "files") == ["deep/two.txt", "first-seen.json", "one.txt"]
    assert (tmp_path / "files/one.txt").stat().st_mode & 0o777 == 0o666 & ~_umask(tmp_path)
    asked = len(site.asked)
    assert fetch("files", tmp_path) == fetched
    assert len(site.asked) == asked


def _umask(folder):
    (folder / "probe").touch()
    return 0o666 & ~((folder / "probe").stat().st_mode & 0o777)


def test_only_the_wanted_members_of_an_archive(datasets, tmp_path):
    fetch("packed", tmp_path)
    assert names(tmp_path) == [
        "packed/top/en/one.txt",
        "packed/top/en/two.txt",
        "packed/top/first-seen.json",
    ]
    assert states("packed", tmp_path) == ["ok", "first seen"]


def flipped(content, place):
    """The content with one bit changed."""
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


ALTERED = {
    "nothing": lambda content: content[:0],
    "its first byte": lambda content: content[:1],
    "its first two bytes": lambda content: content[:2],
    "its first half": lambda content: content[: len(content) // 2],
    "all but two bytes": lambda content: content[:-2],
    "all but its last byte": lambda content: content[:-1],
    "one byte more": lambda content: content + b"!",
    "a bit of its first byte": lambda content: flipped(content, 0),
    "a bit in the middle": lambda content: flipped(content, len(content) // 2),
    "a bit of its last byte": lambda content: flipped(content, -1),
}


@pytest.mark.parametrize("altered", ALTERED)
@pytest.mark.parametrize("page", ["/one.txt", "/a.tar.gz"])
def test_altered_downloads_leave_nothing(datasets, site, tmp_path, page, altered):
    content = site[page]
    site[page] = ALTERED[altered](content)
    assert site[page] != content
    name = "files" if page == "/one.txt" else "packed"
    with pytest.raises(UserError, match="nothing was kept") as caught:
        fetch(name, tmp_path)
    assert str(caught.value).isprintable()
    assert names(tmp_path) == []


def test_an_altered_member_of_an_archive_without_hash_is_refused(datasets, site, tmp_path):
    site["/a.tar.gz"] = tar(("en/one.txt", b"other\n"), ("en/two.txt", TWO))
    with pytest.raises(UserError, match=r"en/one\.txt: SHA-256 .* is expected"):
        fetch("unhashed", tmp_path)
    assert names(tmp_path) == []


def test_what_was_first_seen_is_expected_later(datasets, site, tmp_path):
    fetch("files", tmp_path)
    (tmp_path / "files/deep/two.txt").unlink()
    site["/two.txt"] = b"another\n"
    with pytest.raises(UserError, match="what came is not the file"):
        fetch("files", tmp_path)
    assert states("files", tmp_path) == ["ok", "missing"]


def test_a_changed_file_is_named_and_not_overwritten(datasets, tmp_path):
    fetch("files", tmp_path)
    (tmp_path / "files/one.txt").write_bytes(b"mine\n")
    assert states("files", tmp_path) == ["changed", "first seen"]
    with pytest.raises(UserError, match=r"one\.txt: differs from the published file; move it away"):
        fetch("files", tmp_path)
    assert (tmp_path / "files/one.txt").read_bytes() == b"mine\n"


def test_a_file_of_unknown_origin(datasets, tmp_path):
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    (tmp_path / "elsewhere/deep/two.txt").write_bytes(TWO)
    assert states("files", tmp_path) == ["missing", "unknown"]
    assert fetch("files", tmp_path)[0].path == tmp_path / "elsewhere/one.txt"


def test_a_source_that_is_not_there(datasets, site, tmp_path):
    site.clear()
    with pytest.raises(UserError, match=r"/one\.txt: cannot be downloaded .*404") as caught:
        fetch("files", tmp_path)
    assert str(caught.value).isprintable()
    with pytest.raises(UserError, match=r"a\.tar\.gz: cannot be downloaded .*404"):
        fetch("packed", tmp_path)


def test_without_the_extra(datasets, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(UserError, match=r"pip install 'universal-transformer\[fetch\]'"):
        fetch("files", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_without_the_extra_the_file_can_be_put_by_hand(datasets, site, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    place = tmp_path / "packed/top/a.tar.gz"
    with pytest.raises(UserError, match=f"without it, save {site.address}/a.tar.gz as {place}: run pip install"):
        fetch("packed", tmp_path)
    place.parent.mkdir(parents=True)
    place.write_bytes(site["/a.tar.gz"])
    assert [file.state for file in fetch("packed", tmp_path)] == ["ok", "first seen"]
    assert site.asked == []


def test_an_archive_that_was_put_by_hand_is_checked(datasets, site, tmp_path):
    place = tmp_path / "packed/top/a.tar.gz"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"another archive")
    with pytest.raises(UserError, match=r"a\.tar\.gz \(delete it\): SHA-256 .* is expected"):
        fetch("packed", tmp_path)
    assert names(tmp_path) == ["packed/top/a.tar.gz"]


@pytest.fixture
def no_network(monkeypatch):
    asked = []

    def unreachable(host, *_arguments, **_options):
        asked.append(host)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    return asked


def test_without_network_a_file_and_its_place_are_named(datasets, no_network, tmp_path):
    said = []
    url = datasets["files"].files[0].url
    with pytest.raises(UserError) as caught:
        fetch("files", tmp_path, report=said.append)
    assert str(caught.value) == (
        f"no network: 127.0.0.1 cannot be reached; download {url} by hand and save it as {tmp_path}/files/one.txt; "
        "`ut data check files` lists 1 more missing files with their addresses"
    )
    assert said == []
    assert len(no_network) == 1, "there is no retry"


def test_without_network_the_first_archive_and_its_place_are_named(datasets, no_network, tmp_path):
    url = datasets["packed"].archive.url
    with pytest.raises(UserError) as caught:
        fetch("packed", tmp_path)
    assert str(caught.value) == (
        f"no network: 127.0.0.1 cannot be reached; download {url} by hand and save it as "
        f"{tmp_path}/packed/top/a.tar.gz, then run: ut data fetch packed"
    )


@pytest.mark.parametrize(
    ("found", "whole"),
    [
        (["ok", "first seen"], "ok"),
        (["ok", "missing"], "incomplete"),
        (["missing", "unknown"], "incomplete"),
        (["missing", "missing"], "missing"),
        (["ok", "unknown"], "unknown"),
        (["missing", "changed", "ok"], "changed"),
    ],
)
def test_the_state_of_a_data_set_is_that_of_its_files(found, whole, tmp_path):
    assert overall([FileState(path=tmp_path, state=state) for state in found]) == whole


@pytest.mark.parametrize("place", ["packed/top", "top", "packed", "."])
def test_every_layout_is_found(datasets, tmp_path, place):
    (tmp_path / place / "en").mkdir(parents=True)
    (tmp_path / place / "en/two.txt").write_bytes(TWO)
    assert find("packed", tmp_path) == tmp_path / place
    assert find("packed", tmp_path, file="en/two.txt").read_bytes() == TWO
    with pytest.raises(UserError, match=r"en/one\.txt: no such file .*`ut data fetch packed`") as caught:
        find("packed", tmp_path, file="en/one.txt")
    assert str(tmp_path) in str(caught.value)


def test_the_error_of_a_missing_file_says_how_to_get_it(tmp_path):
    with pytest.raises(UserError, match=r"no such file in the data folder .*`ut data fetch babi`"):
        find("babi", tmp_path)
    with pytest.raises(UserError, match="no data set 'wmt'; known are babi, "):
        find("wmt", tmp_path)


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("UT_DATA", raising=False)
    assert str(data_folder()) == "data"
    monkeypatch.setenv("UT_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder("mine") == data_folder("mine/")


def test_a_damaged_record_of_hashes(datasets, tmp_path):
    fetch("files", tmp_path)
    (tmp_path / "files/first-seen.json").write_text("nonsense\n")
    with pytest.raises(UserError, match=r"first-seen\.json: not valid JSON"):
        check("files", tmp_path)


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def lying(name, size):
    """A member whose header promises `size` bytes that do not follow."""
    info = tarfile.TarInfo(name)
    info.size = size
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + b"short")


HOSTILE = {
    "not an archive": b"nonsense",
    "empty": b"",
    "empty gzip": gzip.compress(b""),
    "gzip of nonsense": gzip.compress(b"nonsense" * 500),
    "cut": tar(("wanted", TWO))[:-40],
    "cut in the header": tar(("wanted", TWO))[:60],
    "without the member": tar(("other", ONE)),
    "other prefix": tar(("wanted", ONE), prefix="bottom/"),
    "absolute": tar(("/etc/wanted", ONE), prefix=""),
    "upwards": tar(("top/../../wanted", ONE), prefix=""),
    "windows path": tar(("top\\wanted", ONE), prefix=""),
    "symbolic link": tar(special("top/wanted", tarfile.SYMTYPE, "/etc/passwd")),
    "link out, then a file through it": tar(special("top", tarfile.SYMTYPE, "/tmp"), ("x", ONE)),  # noqa: S108
    "hard link": tar(special("top/wanted", tarfile.LNKTYPE, "/etc/passwd")),
    "hard link to a member": tar(("x", ONE), special("top/wanted", tarfile.LNKTYPE, "top/x")),
    "directory": tar(special("top/wanted", tarfile.DIRTYPE)),
    "fifo": tar(special("top/wanted", tarfile.FIFOTYPE)),
    "character device": tar(special("top/wanted", tarfile.CHRTYPE)),
    "block device": tar(special("top/wanted", tarfile.BLKTYPE)),
    "sparse": tar(special("top/wanted", tarfile.GNUTYPE_SPARSE)),
    "twice": tar(("wanted", ONE), ("wanted", TWO)),
    "link after the file": tar(("wanted", ONE), special("top/wanted", tarfile.SYMTYPE, "/etc/passwd")),
    "too large": tar(("wanted", b"a" * 20_000)),
    "promises a terabyte": lying("top/wanted", 2**40),
    "promises more than it has": lying("top/wanted", 9_000),
    "bomb before the member": tar(("bomb", b"\0" * 3_000_000), ("wanted", ONE)),
    "bomb in a long name": tar(("n" * 3_000_000, ONE), ("wanted", ONE)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_writes_nothing(tmp_path, name):
    (tmp_path / "a.tar.gz").write_bytes(HOSTILE[name])
    with pytest.raises(UserError, match=r"a\.tar\.gz: not the archive expected") as caught:
        read_members(tmp_path / "a.tar.gz", ["top/wanted"], max_member_bytes=10_000, max_archive_bytes=1_000_000)
    assert str(caught.value).isprintable()
    assert names(tmp_path) == ["a.tar.gz"]


@pytest.mark.parametrize("layout", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_long_header_of_an_archive_is_refused_before_it_is_read(tmp_path, layout):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=layout) as archive:
        archive.addfile(tarfile.TarInfo("n" * 3_000_000))
    with pytest.raises(UserError, match="a header of too many bytes"):
        read_members(tmp_path / "a.tar.gz", ["top/wanted"])


def test_unwanted_members_of_an_archive_are_not_read(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(
        tar(
            special("../../evil", tarfile.SYMTYPE, "/etc"),
            ("../escape", ONE),
            ("/absolute", ONE),
            ("wanted", TWO),
        )
    )
    assert read_members(tmp_path / "a.tar.gz", ["top/wanted"]) == {"top/wanted": TWO}
    assert names(tmp_path) == ["a.tar.gz"]


@pytest.mark.parametrize(
    ("name", "missing"),
    [("blimp", 0), ("lambada", 0), ("wmt_news_ende", 0), ("tatoeba_ende", 0), ("sva", 4), ("fsdd", 0)],
)
def test_copies_of_published_files_have_the_hashes_of_the_registry(shared_data, name, missing):
    """Named as missing: training files of over 4 MiB."""
    if not (shared_data / name).is_dir() and name != "tatoeba_ende":
        pytest.skip(f"no {name} in {shared_data}")
    found = states(name, shared_data)
    assert found.count("missing") == missing
    assert found.count("ok") == len(found) - missing
