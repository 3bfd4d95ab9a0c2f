"""Files of a posterior are replaced whole, and belong together."""

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from flipout import errors
from flipout.peft._config import PosteriorConfig
from flipout.peft._disk import (
    CONFIG,
    KEY,
    SPREADS,
    WEIGHTS,
    adapter_folder,
    plain_config,
    read_posterior,
    write_posterior,
    write_tensors,
)

SETTINGS = PosteriorConfig(0.1, 0.5, "A", "flipout")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as PEFT writes it."""
    save_file({"a": torch.ones(2)}, tmp_path / WEIGHTS)
    (tmp_path / CONFIG).write_text(json.dumps({"peft_type": "LORA"}))
    return tmp_path


def test_a_posterior_is_read_as_it_was_written(folder: Path) -> None:
    assert read_posterior(folder) is None
    spreads = {"layer.lora_A.rho": torch.randn(2, 3)}
    write_posterior(folder, "mine", SETTINGS, spreads)
    found = read_posterior(folder)
    assert found is not None
    assert found[0] == SETTINGS
    assert torch.equal(found[1]["layer.lora_A.rho"], spreads["layer.lora_A.rho"])
    assert not list(folder.glob("*.new"))


def test_an_interrupted_save_is_noticed(folder: Path) -> None:
    write_posterior(folder, "mine", SETTINGS, {"rho": torch.zeros(2)})
    write_tensors(folder / SPREADS, {"rho": torch.ones(2)})  # and then nothing more
    with pytest.raises(errors.DataError, match="interrupted"):
        read_posterior(folder)


def test_a_failed_write_leaves_the_old_file(folder: Path) -> None:
    """A limit on file sizes stands for a full disk."""
    write_tensors(folder / SPREADS, {"rho": torch.zeros(2)})
    before = sorted(folder.iterdir())
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            write_tensors(folder / SPREADS, {"rho": torch.ones(2)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert torch.equal(load_file(folder / SPREADS)["rho"], torch.zeros(2))
    assert sorted(folder.iterdir()) == before


def test_no_link_is_followed_when_writing(folder: Path) -> None:
    precious = folder / "precious"
    precious.write_text("mine")
    for name in (SPREADS, f"{SPREADS}.new"):
        (folder / name).symlink_to(precious)
    write_posterior(folder, "mine", SETTINGS, {"rho": torch.zeros(2)})
    assert precious.read_text() == "mine"
    assert read_posterior(folder) is not None


def test_files_behind_links_are_read(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As in the cache of huggingface_hub."""
    write_posterior(folder, "mine", SETTINGS, {"rho": torch.zeros(2)})
    cache = tmp_path_factory.mktemp("cache")
    for name in (CONFIG, WEIGHTS, SPREADS):
        (cache / name).symlink_to(folder / name)
    assert read_posterior(cache) is not None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1]", "the file: [1] found; expected an object"),
        (b"", "it is not JSON"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"flipout_posterior": "\xff"}', "it is not JSON: 'utf-8' codec can't decode byte 0xff"),
        (b'{"flipout_posterior": 3}', "flipout_posterior: 3 found; expected an object"),
        (b'{"flipout_posterior": {}}', "no field 'format'; expected format, adapter, std"),
    ],
    ids=["list", "empty", "nested", "no Unicode", "number", "no fields"],
)
def test_another_config_is_refused_in_a_line(folder: Path, content: bytes, said: str) -> None:
    (folder / CONFIG).write_bytes(content)
    with pytest.raises(errors.DataError) as caught:
        read_posterior(folder)
    assert f"{folder / CONFIG}: " in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, SPREADS])
@pytest.mark.parametrize("place", ["a folder", "a pipe", "a link to itself"])
def test_what_is_no_plain_file_is_refused(folder: Path, name: str, place: str) -> None:
    write_posterior(folder, "mine", SETTINGS, {"rho": torch.zeros(2)})
    path = folder / name
    path.unlink()
    {"a folder": Path.mkdir, "a pipe": os.mkfifo, "a link to itself": lambda path: path.symlink_to(path)}[place](path)
    with pytest.raises(errors.DataError, match=name):
        read_posterior(folder)


@pytest.mark.parametrize("field", ["lora_alpha", "std", "adapter"])
def test_another_setting_is_noticed(folder: Path, field: str) -> None:
    """The config has a hash of itself, in which neither layout nor order counts."""
    (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 8}))
    write_posterior(folder, "mine", SETTINGS, {"rho": torch.zeros(2)})
    content = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(dict(reversed(content.items()))))
    assert read_posterior(folder) is not None
    changed = content if field in content else content[KEY]
    changed[field] = {"lora_alpha": 16, "std": 0.2, "adapter": "yours"}[field]
    (folder / CONFIG).write_text(json.dumps(content))
    with pytest.raises(errors.DataError, match=r"adapter_config\.json: SHA-256 .* found; expected"):
        read_posterior(folder)


@pytest.mark.parametrize(
    "setting", [{"peft_type": "OTHER"}, {"target_modules": "a.*", "layers_to_transform": [1]}], ids=str
)
def test_a_setting_that_peft_does_not_take_is_named(folder: Path, setting: dict[str, Any]) -> None:
    (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", **setting}))
    write_posterior(folder, "mine", SETTINGS, {"rho": torch.zeros(2)})
    saved = read_posterior(folder)
    assert saved is not None
    with pytest.raises(errors.DataError, match=r"adapter_config\.json: PEFT does not take it"):
        plain_config(folder, saved)


def test_what_a_killed_save_left_is_removed(folder: Path) -> None:
    left = folder / f".{SPREADS}.0123456789abcdef.new"
    left.touch()
    write_posterior(folder, "mine", SETTINGS, {"rho": torch.zeros(2)})
    assert not left.exists()


def test_folders_are_those_of_peft() -> None:
    assert adapter_folder("here", "default") == Path("here")
    assert adapter_folder("here", "mine") == Path("here/mine")
