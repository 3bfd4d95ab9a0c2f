"""flipout doctor: what is installed. It needs none of the packages that it may report as missing."""

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
Finding = tuple[str, str, str]  # section, name, what was found


def doctor(arguments: Sequence[str] = ()) -> int:
    """Print versions, devices, kernels in use and data found. Return 1 if FLIPOUT_DATA names no folder."""
    if arguments and arguments[0] not in ("-h", "--help"):
        raise InvalidArgument(f"takes no arguments; {' '.join(arguments)!r} given. Use: flipout doctor")
    last = ""
    for section, name, found in findings():
        print(f"{'' if section == last else section:10}{name:27}{found}")
        last = section
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
    source = f" at commit {head}" if (head := commit()) else ""
    yield "versions", "flipout", flipout.__version__ + source
    yield "versions", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "versions", "torch", torch.__version__  # includes its build
    yield "versions", "numpy", version("numpy")
    for extra, packages in EXTRAS.items():
        versions = {package: _installed(package) for package in packages}
        missing = [package for package, found in versions.items() if found is None]
        there = ", ".join(f"{package} {found}" for package, found in versions.items() if found is not None)
        fix = f"missing {', '.join(missing)}: pip install 'flipout[{extra}]'" if missing else ""
        yield "extras", extra, "; ".join(filter(None, (there, fix)))


def _devices() -> Iterator[Finding]:
    yield "devices", "cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        yield "devices", f"cuda:{i}", f"{about.name}, {about.major}.{about.minor}, {about.total_memory / 2**30:.0f} GiB"


def _kernels() -> Iterator[Finding]:
    if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"):
        yield "kernels", "in use", "none: there is no CUDA device, so the eager definitions are used"
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
    """Return where the files are. Their checksums are verified when they are read."""
    places = {f"the folder in {files.VARIABLE}": files.named_folder, "the user's cache": files.user_cache}
    for place, folder_of in places.items():
        try:
            folder = folder_of()
        except (DataError, MissingExtra):
            continue
        there = [file for file in data_set.files if folder is not None and files.find(folder, file)]
        if there:
            count = "" if len(there) == len(data_set.files) else f", {len(there)} of {len(data_set.files)} files"
            return f"{place}{count}: {folder}"
    return f"not here: set {files.VARIABLE} to its folder, or let a run download it"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
