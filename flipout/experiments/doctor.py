"""flipout doctor: what is here. It needs none of the packages whose absence it tells."""

import os
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

import flipout
from flipout import backend
from flipout.errors import DataError, InvalidArgument, MissingExtra

from .data import checksums, files
from .running.environment import commit

EXTRAS = {
    "experiments": ("matplotlib", "rich", "tyro", "pooch", "safetensors", "scikit-learn", "scipy", "msgspec"),
    "tensorboard": ("tensorboard",),
    "es": ("safetensors",),
    "ray": ("ray",),
    "rl": ("gymnasium", "mujoco"),
    "triton": ("triton",),
}
Finding = tuple[str, str, str]  # of what, which, and what was found


def doctor(arguments: Sequence[str] = ()) -> int:
    """Print versions, devices, kernels in use and data found; 1 where something that was asked for is not there."""
    if arguments and arguments[0] not in ("-h", "--help"):
        raise InvalidArgument(f"takes no arguments; {' '.join(arguments)!r} given. Use: flipout doctor")
    shown = ""
    for what, which, found in findings():
        print(f"{'' if what == shown else what:10}{which:27}{found}")
        shown = what
    try:
        files.named_folder()
    except DataError as error:
        print(f"\n{error}")
        return 1
    return 0


def findings() -> Iterator[Finding]:
    yield from _versions()
    yield from _devices()
    yield from _kernels()
    yield from _data()


def _versions() -> Iterator[Finding]:
    source = f" at commit {made}" if (made := commit()) else ""
    yield "versions", "flipout", flipout.__version__ + source
    yield "versions", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "versions", "torch", torch.__version__  # with its build
    yield "versions", "numpy", version("numpy")
    for extra, packages in EXTRAS.items():
        held = {package: _installed(package) for package in packages}
        missing = [package for package, found in held.items() if found is None]
        there = ", ".join(f"{package} {found}" for package, found in held.items() if found is not None)
        fix = f"missing {', '.join(missing)}: pip install 'flipout[{extra}]'" if missing else ""
        yield "extras", extra, "; ".join(filter(None, (there, fix)))


def _devices() -> Iterator[Finding]:
    yield "devices", "cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        yield "devices", f"cuda:{i}", f"{about.name}, {about.major}.{about.minor}, {about.total_memory / 2**30:.0f} GiB"


def _kernels() -> Iterator[Finding]:
    if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"):
        yield "kernels", "in use", "none: there is no CUDA device, and the eager definitions serve"
        return
    names, refused = backend.kernels()
    if names:
        yield "kernels", "in use", ", ".join(names)
    for reason in refused:
        yield "kernels", "not in use", reason


def _data() -> Iterator[Finding]:
    for data_set in checksums.DATA_SETS:
        yield "data", data_set.title, _place(data_set)
    embedded = "the text of Python's help" + (", digits" if _installed("scikit-learn") else "")
    yield "data", "embedded", embedded


def _place(data_set: checksums.DataSet) -> str:
    """Where the files are; their checksums are verified when they are read."""
    places = {f"the folder in {files.VARIABLE}": files.named_folder, "the user's cache": files.user_cache}
    for place, folder_of in places.items():
        try:
            folder = folder_of()
        except (DataError, MissingExtra):
            continue
        held = [file for file in data_set.files if folder is not None and files.held(folder, file)]
        if held:
            some = "" if len(held) == len(data_set.files) else f", {len(held)} of {len(data_set.files)} files"
            return f"{place}{some}: {folder}"
    return f"not here: set {files.VARIABLE} to its folder, or let a run download it"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
