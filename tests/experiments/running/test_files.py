"""The files of a run have checksums, which are checked when they are read. Links are refused."""

import os
from pathlib import Path

import pytest
import torch

from flipout._typed import Mismatch
from flipout.errors import RunError
from flipout.experiments.running.files import CHECKSUMS, RunFiles
from tests.experiments.running.toys import run
from tests.experiments.toy_experiment import content


def test_every_changed_file_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    files = RunFiles(tmp_path)
    names = [name for name in (*content(tmp_path), "environment.json") if name not in (CHECKSUMS, "metrics.jsonl")]
    assert len(names) > 6
    for name in names:
        path = tmp_path / name
        whole = path.read_bytes()
        assert files.read(name) == whole
        for changed in (whole[:-1], whole + b"\n", bytes([whole[0] ^ 1]) + whole[1:], b""):
            path.write_bytes(changed)
            with pytest.raises(
                Mismatch, match=rf"{len(changed)} bytes with SHA-256 .* found; expected {len(whole)} with"
            ):
                files.read(name)
        path.write_bytes(whole)
    assert not files.unchecked


def test_a_file_without_a_checksum_is_read_and_remembered(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("[1]")
    files = RunFiles(tmp_path)
    assert files.load("old.json") == [1]
    assert files.unchecked == {"old.json"}
    files.write("old.json", "[2]")
    assert RunFiles(tmp_path).load("old.json") == [2]


def test_a_process_that_dies_before_the_file_appears_leaves_a_readable_run(tmp_path: Path, monkeypatch) -> None:
    """The checksum of the new content is there already, and that of the old one still counts."""
    files = RunFiles(tmp_path)
    files.write("file", "old")

    def die(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            files.write("file", "new")
    assert RunFiles(tmp_path).read("file") == b"old"


def test_an_incomplete_last_line_is_dropped_and_another_is_refused(tmp_path: Path) -> None:
    RunFiles(tmp_path).write("file", "content")
    checksums = tmp_path / CHECKSUMS
    whole = checksums.read_bytes()
    checksums.write_bytes(whole + whole[:20])
    files = RunFiles(tmp_path)
    assert files.read("file") == b"content"
    files.tidy()
    assert checksums.read_bytes() == whole
    checksums.write_bytes(whole[:20] + b"\n" + whole)
    with pytest.raises(Mismatch, match=r"checksums\.jsonl: line 1: "):
        RunFiles(tmp_path).read("file")


def test_tensors(tmp_path: Path) -> None:
    RunFiles(tmp_path).write_tensors("a.safetensors", {"a": torch.ones(3)}, {"told": "x"})
    tensors, metadata = RunFiles(tmp_path).load_tensors("a.safetensors")
    assert (tensors["a"].tolist(), metadata) == ([1, 1, 1], {"told": "x"})


@pytest.mark.parametrize(
    "name", [".lock", "config.json", "pieces", "metrics.jsonl", "tensorboard", "pieces/network.safetensors"]
)
def test_links_in_a_folder_that_somebody_sent_are_not_followed(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    folder = tmp_path / "run"
    run(folder)
    path = folder / name
    if path.is_dir():
        path.rename(folder.parent / "moved")
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(outside if name in ("pieces", "tensorboard") else outside / "file")
    with pytest.raises(RunError, match=rf"{name}( is a link| is not the config of a run .*it is a link)"):
        run(folder, resume=True)
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "mine")]
    assert os.path.islink(path)


def test_a_folder_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.json").write_text("1")
    (tmp_path / "run" / "pieces").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="its folder is a link"):
        files.load("pieces/a.json")
