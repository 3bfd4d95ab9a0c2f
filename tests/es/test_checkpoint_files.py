"""A run that is killed and resumed equals an undisturbed run bit for bit."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from flipout import errors, es
from flipout.es import _checkpoint_files
from flipout.es._checkpoint_files import has_checkpoint, read_checkpoint, write_checkpoint
from tests.es.toys import full, strategy

ROOT = Path(__file__).parents[2]


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten a state, and leave out its durations."""
    if isinstance(value, (dict, list, tuple)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {
            key: leaf
            for key_of_part, part in parts
            if key_of_part != "seconds"
            for key, leaf in flat(part, f"{name}/{key_of_part}").items()
        }
    return {name: value}


def same(first: es.EvolutionStrategy, second: es.EvolutionStrategy) -> bool:
    a, b = flat(first.state()), flat(second.state())
    return a.keys() == b.keys() and all(
        torch.equal(a[key], b[key]) if isinstance(a[key], Tensor) else a[key] == b[key] for key in a
    )


def test_taken_up_again(tmp_path: Path) -> None:
    whole, first, second = full(), full(), full()
    whole.run(7)
    assert not first.resume(tmp_path / "run")
    first.run(3, checkpoint=tmp_path / "run")
    assert second.resume(tmp_path / "run")
    assert same(first, second)
    second.run(7, checkpoint=tmp_path / "run", every=100)
    assert same(second, whole)
    assert json.loads((tmp_path / "run" / "checkpoint.json").read_text())["tensors"] == "generation-7.safetensors"
    assert len(list((tmp_path / "run").iterdir())) == 2


def test_killed(tmp_path: Path) -> None:
    """SIGKILL at an arbitrary moment, twice."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    reached = 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-m", "tests.es.toys", str(tmp_path)], cwd=ROOT, env=environment)
        deadline = time.monotonic() + 240
        while not has_checkpoint(tmp_path) or read_checkpoint(tmp_path)["generation"] < reached + 3:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.003)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        reached = read_checkpoint(tmp_path)["generation"]
    evolution, whole = full(), full()
    assert evolution.resume(tmp_path)
    evolution.run(evolution.generation + 2)
    whole.run(evolution.generation)
    assert same(evolution, whole)


def test_read_while_it_is_written(tmp_path: Path, monkeypatch) -> None:
    """The writer saves again after a reader has read the index, and again after it has read the tensors."""
    evolution, opened, whole = full(), [], _checkpoint_files.read_plain
    evolution.run(1, checkpoint=tmp_path)

    def read(path: Path, **how: Any) -> bytes:
        if path.name == "checkpoint.json":
            return whole(path)
        opened.append(path.name)
        if len(opened) == 1:
            evolution.run(2, checkpoint=tmp_path)
        held = whole(path, **how)
        evolution.run(3, checkpoint=tmp_path)
        return held

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint_files, "read_plain", read)
        assert read_checkpoint(tmp_path)["generation"] == 2
    assert opened == ["generation-1.safetensors", "generation-2.safetensors"]
    (tmp_path / "generation-3.safetensors").unlink()
    with pytest.raises(errors.RunError, match="no complete checkpoint"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("deaths", range(3))
def test_dead_before_each_change_of_a_file(tmp_path: Path, monkeypatch, deaths: int) -> None:
    """Until the last change of a file, the old state can be read; after it, the new one."""
    evolution = full()
    evolution.run(1, checkpoint=tmp_path)
    before, count = read_checkpoint(tmp_path)["generation"], [0]
    evolution.step()

    def dying(change: Any) -> Any:
        def changed(self: Path, *args: Any) -> Any:
            count[0] += 1
            if count[0] > deaths:
                raise KeyboardInterrupt
            return change(self, *args)

        return changed

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, dying(getattr(Path, name)))
        with pytest.raises(KeyboardInterrupt):
            evolution.save(tmp_path)
    again = full()
    assert again.resume(tmp_path)
    assert again.generation == before + (deaths == 2)
    again.run(4, checkpoint=tmp_path)
    whole = full()
    whole.run(4)
    assert same(again, whole)
    assert len(list(tmp_path.iterdir())) == 2


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.1, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "two groups": lambda p: torch.optim.Adam([{"params": p[:1], "lr": torch.tensor(0.1)}, {"params": p[1:]}], 0.02),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser(tmp_path: Path, name: str) -> None:
    whole, first, second = (strategy(optimizer=OPTIMIZERS[name]) for _ in range(3))
    whole.run(5)
    first.run(2, checkpoint=tmp_path)
    second.resume(tmp_path)
    second.run(5)
    assert same(second, whole)


def test_half_precision_and_buffers(tmp_path: Path) -> None:
    def fresh() -> es.EvolutionStrategy:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)).bfloat16()
        x = torch.ones(4, dtype=torch.bfloat16)
        return strategy(lambda p: p(x.expand(p.size, 4)).float().sum(1), model)

    whole, first, second = fresh(), fresh(), fresh()
    whole.run(4)
    first.run(2, checkpoint=tmp_path)
    second.resume(tmp_path)
    second.run(4)
    assert same(second, whole)


def test_another_run_is_not_written_over(tmp_path: Path) -> None:
    evolution = strategy()
    evolution.run(1, checkpoint=tmp_path)
    evolution.run(2, checkpoint=tmp_path)
    other = strategy(seed=1)
    with pytest.raises(errors.RunError, match="holds a checkpoint already"):
        other.run(1, checkpoint=tmp_path)


@pytest.mark.parametrize("harm", ["cut", "gone", "flipped", "a link", "a pipe"])
def test_a_harmed_tensor_file(tmp_path: Path, harm: str) -> None:
    """No part of a checkpoint is taken up."""
    strategy().run(1, checkpoint=tmp_path)
    (tensors,) = tmp_path.glob("*.safetensors")
    content = tensors.read_bytes()
    tensors.unlink()
    if harm == "cut":
        tensors.write_bytes(content[:50])
    elif harm == "flipped":
        tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif harm == "a link":
        (tmp_path / "elsewhere").write_bytes(content)
        tensors.symlink_to("elsewhere")
    elif harm == "a pipe":
        os.mkfifo(tensors)
    evolution = strategy()
    before = flat(evolution.state())
    with pytest.raises(errors.RunError, match=r"holds no complete checkpoint .*generation-1\.safetensors"):
        evolution.resume(tmp_path)
    assert all(torch.equal(a, b) for a, b in tensor_pairs(before, flat(evolution.state())))


def tensor_pairs(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
    assert first.keys() == second.keys()
    return [(first[key], second[key]) for key in first if isinstance(first[key], Tensor)]


INDICES: list[tuple[Any, str]] = [
    ([], r"the file: \[\] found; expected an object"),
    ({}, "the file: no field 'tensors'; expected tensors, state"),
    ({"tensors": 3, "state": {}}, r"the file\.tensors: 3 found; expected a text"),
    ({"tensors": "../generation-1.safetensors", "state": {}}, r"tensors: '\.\./gen.* expected generation-N\.safe"),
    ({"tensors": "/etc/passwd", "state": {}}, "tensors: '/etc/passwd' found"),
    ({"tensors": "generation-1.safetensors", "state": {}, "size": 3}, "expected all of them or none"),
    ({"tensors": "generation-1.safetensors", "state": {}, "more": 3}, "an unknown field 'more'"),
    ({"tensors": "generation-1.safetensors", "state": {"set": []}}, r"state: \{'set': \[\]\} found; expected a number"),
    ({"tensors": "generation-1.safetensors", "state": {"dict": [1]}}, "state: .* found; expected a number"),
    ({"tensors": "generation-1.safetensors", "state": {"tensor": "no"}}, "state: .* found; expected a number"),
]


@pytest.mark.parametrize(("content", "says"), [(json.dumps(content), says) for content, says in INDICES])
def test_an_index_that_save_never_writes(tmp_path: Path, content: str, says: str) -> None:
    strategy().run(1, checkpoint=tmp_path)
    (tmp_path / "checkpoint.json").write_text(content)
    with pytest.raises(errors.RunError, match=f"holds no complete checkpoint.*{says}"):
        strategy().resume(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\xff", '{"tensors": ' + "9" * 5000 + "}"])
def test_an_index_that_is_no_json(tmp_path: Path, text: str) -> None:
    strategy().run(1, checkpoint=tmp_path)
    (tmp_path / "checkpoint.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(errors.RunError, match="holds no complete checkpoint"):
        strategy().resume(tmp_path)


def test_a_changed_digit_of_the_index_is_noticed(tmp_path: Path) -> None:
    strategy().run(1, checkpoint=tmp_path)
    index = tmp_path / "checkpoint.json"
    text = index.read_text()
    index.write_text(text.replace("0.05", "0.06"))
    assert index.read_text() != text
    with pytest.raises(errors.RunError, match="state: other values than were saved"):
        strategy().resume(tmp_path)


def test_a_checkpoint_of_an_early_version_is_read(tmp_path: Path) -> None:
    first, second = strategy(), strategy()
    first.run(2, checkpoint=tmp_path)
    index = json.loads((tmp_path / "checkpoint.json").read_text())
    (tmp_path / "checkpoint.json").write_text(json.dumps({key: index[key] for key in ("tensors", "state")}))
    assert second.resume(tmp_path)
    assert same(first, second)


@pytest.mark.parametrize("name", ["checkpoint.json", "generation-2.safetensors"])
def test_no_link_is_followed_when_writing(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    evolution = strategy()
    evolution.run(1, checkpoint=tmp_path / "run")
    (tmp_path / "run" / name).unlink(missing_ok=True)
    (tmp_path / "run" / name).symlink_to(precious)
    evolution.step()
    evolution.save(tmp_path / "run")
    assert precious.read_text() == "mine"
    assert strategy().resume(tmp_path / "run")


@pytest.mark.parametrize("room", [10, 3000])
def test_a_full_disk(tmp_path: Path, room: int) -> None:
    """The disk is full while the tensors are written, or while the index is. A limit on file sizes stands for it."""
    evolution = strategy()
    evolution.run(8, checkpoint=tmp_path)
    evolution.step()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        with pytest.raises(errors.RunError, match=r"cannot be written to .* \(File too large\): free some") as caught:
            evolution.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert "\n" not in str(caught.value)
    again = strategy()
    assert again.resume(tmp_path)
    assert again.generation == 8
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".new"]


def test_what_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(errors.RunError, match="/optimizer/x: a set cannot be kept"):
        write_checkpoint(tmp_path, 0, {"optimizer": {"x": {1, 2}}})
    assert not has_checkpoint(tmp_path)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.RunError, match="cannot be written"):
        strategy().save(tmp_path / "file")
