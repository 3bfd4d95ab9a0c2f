"""The environment of a run: versions, device, the commit of the code."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import torch

import flipout
from flipout.errors import InvalidArgument


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return what environment.json says of this process."""
    return {
        "flipout": flipout.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),  # their number decides the order of sums on a CPU
    }


def commit() -> str | None:
    """Return the commit of the source tree, with a + if it was changed since; None for an installed package.

    A tree that was copied without its history has its commit in FLIPOUT_COMMIT.
    """
    if named := os.environ.get("FLIPOUT_COMMIT"):
        return named
    tree = Path(flipout.__file__).parents[1]
    if not (tree / ".git").exists():
        return None
    try:
        head, changes = (
            subprocess.run(["git", "-C", str(tree), *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changes else "")


def device_of(name: str) -> torch.device:
    """Return a device by name. `auto` is CUDA if there is a device, else the CPU."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if name == "auto":
        return torch.device(devices[-1])
    devices += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if name not in devices:
        raise InvalidArgument(
            f"--device {name}: there are auto, {', '.join(devices)} here. Use --device auto, or leave it out."
        )
    return torch.device(name)
