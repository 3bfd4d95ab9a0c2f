"""Where files are looked for. A bad file is an error that names it, and nothing of its data set is used."""

import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipout.errors import DataError, MissingExtra
from flipout.experiments.data import files
from flipout.experiments.data.files import user_cache
from tests.experiments.data.toys import CONTENT, GZIPPED, fill, sha256, tarball, toy


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path):
    """A folder, and the address at which a local server offers it."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_named_folder_comes_first(tmp_path, cache, monkeypatch, suffix):
    monkeypatch.setenv(files.VARIABLE, str(fill(tmp_path / "named", suffix)))
    (fill(cache) / "toy" / "a.txt.gz").write_bytes(b"bad")
    contents = files.resolve(toy())
    assert contents.files == tuple(CONTENT.values())
    assert contents.source == "Toy: the folder in FLIPOUT_DATA, checksums verified"


def test_the_cache_comes_second(tmp_path, cache, monkeypatch):
    (tmp_path / "named").mkdir()
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "named"))
    fill(cache)
    contents = files.resolve(toy())
    assert contents.files == tuple(CONTENT.values())
    assert contents.source == "Toy: the user's cache, checksums verified"


def test_a_download_comes_third_and_fills_the_cache(served, cache):
    folder, url = served
    (folder / "toy.tar.gz").write_bytes(archive := tarball())
    data_set = toy(f"{url}/toy.tar.gz", archive)
    contents = files.resolve(data_set)
    assert contents.files == tuple(CONTENT.values())
    assert contents.source == f"Toy: downloaded from {url}/toy.tar.gz, checksums verified"
    assert sorted(path.name for path in cache.rglob("*")) == ["a.txt", "b.txt", "toy"]
    (folder / "toy.tar.gz").unlink()
    assert files.resolve(data_set).source == "Toy: the user's cache, checksums verified"


def test_a_download_adds_only_what_the_cache_lacks(served, cache):
    folder, url = served
    (folder / "toy.tar.gz").write_bytes(archive := tarball())
    (fill(cache) / "toy" / "b.txt.gz").unlink()
    assert files.resolve(toy(f"{url}/toy.tar.gz", archive)).files == tuple(CONTENT.values())
    assert sorted(path.name for path in cache.rglob("*.*")) == ["a.txt.gz", "b.txt"]


def test_a_bad_download_leaves_nothing(served, cache):
    folder, url = served
    archive = tarball()
    (folder / "toy.tar.gz").write_bytes(archive[:-20])
    with pytest.raises(DataError, match=f"(?s)Toy.*{sha256(archive)}.*toy/a.txt, toy/b.txt.*FLIPOUT_DATA") as caught:
        files.resolve(toy(f"{url}/toy.tar.gz", archive))
    assert sha256(archive[:-20]) in str(caught.value)
    assert list(cache.rglob("*")) == []


def test_an_archive_with_another_content_leaves_nothing(served, cache):
    folder, url = served
    (folder / "toy.tar.gz").write_bytes(archive := tarball({**CONTENT, "a.txt": b"something else"}))
    with pytest.raises(DataError, match=f"a.txt.*{sha256(CONTENT['a.txt'])}.*{sha256(b'something else')}"):
        files.resolve(toy(f"{url}/toy.tar.gz", archive))
    assert list(cache.rglob("*")) == []


def test_a_download_that_is_cut_off_between_files_is_finished_by_the_next(served, cache, monkeypatch):
    folder, url = served
    (folder / "toy.tar.gz").write_bytes(archive := tarball())
    data_set = toy(f"{url}/toy.tar.gz", archive)
    stored = files.store

    def interrupted(cache, file, *rest):
        if file.name == "toy/b.txt":
            raise KeyboardInterrupt
        stored(cache, file, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(files, "store", interrupted)
        with pytest.raises(KeyboardInterrupt):
            files.resolve(data_set)
    assert [path.name for path in cache.rglob("*.*")] == ["a.txt"]
    assert files.local(data_set) is None
    assert files.resolve(data_set).files == tuple(CONTENT.values())


def test_no_network(served):
    _, url = served
    with pytest.raises(DataError, match=r"(?s)could not be downloaded.*404.*toy/a.txt.*set FLIPOUT_DATA"):
        files.resolve(toy(f"{url}/nothing.tar.gz"))
    with pytest.raises(DataError, match="could not be downloaded"):
        files.resolve(toy())


def test_no_network_and_another_folder_named(served, tmp_path, monkeypatch):
    monkeypatch.setenv("FLIPOUT_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"set FLIPOUT_DATA to it: it is {tmp_path}, which has none of them"):
        files.resolve(toy(f"{served[1]}/nothing.tar.gz"))


@given(cut=st.integers(0, len(GZIPPED["a.txt"]) - 1), flip=st.integers(0, 255))
def test_a_corrupt_or_truncated_file(tmp_path_factory, cut, flip):
    raw = GZIPPED["a.txt"]
    bad = raw[:cut] + bytes([raw[cut] ^ flip]) + raw[cut + 1 :] if flip else raw[:cut]
    folder = fill(tmp_path_factory.mktemp("named"))
    (path := folder / "toy" / "a.txt.gz").write_bytes(bad)
    with pytest.raises(DataError) as caught:
        files.read_all(folder, toy(), "the fix.")
    for part in (str(path), sha256(raw), sha256(bad), "the fix."):
        assert part in str(caught.value)


def test_a_corrupt_file_of_the_named_folder_is_not_replaced_by_the_cache(tmp_path, cache, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, str(fill(tmp_path / "named")))
    (tmp_path / "named" / "toy" / "b.txt.gz").write_bytes(b"bad")
    fill(cache)
    with pytest.raises(DataError, match=r"b.txt.gz is corrupt or truncated.*unset FLIPOUT_DATA"):
        files.resolve(toy())


def test_a_corrupt_file_of_the_cache(cache):
    (fill(cache) / "toy" / "b.txt.gz").write_bytes(b"bad")
    with pytest.raises(DataError, match=r"b.txt.gz is corrupt or truncated.*delete it"):
        files.resolve(toy())


def test_a_missing_file(tmp_path, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, str(fill(tmp_path / "named")))
    (tmp_path / "named" / "toy" / "b.txt.gz").unlink()
    with pytest.raises(
        DataError, match=rf"toy/b.txt is missing.*{sha256(CONTENT['b.txt'])}.*{sha256(GZIPPED['b.txt'])}"
    ):
        files.resolve(toy())


def test_a_folder_in_place_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, str(fill(tmp_path / "named")))
    (tmp_path / "named" / "toy" / "b.txt").mkdir()
    with pytest.raises(DataError, match=r"b.txt cannot be read"):
        files.resolve(toy())


def test_a_named_folder_that_does_not_exist(tmp_path, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "typo"))
    with pytest.raises(DataError, match=r"typo.*is not a folder"):
        files.resolve(toy())


def test_without_pooch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtra, match=r"in FLIPOUT_DATA needs the package pooch: pip install 'flipout\[experim"):
        user_cache()
