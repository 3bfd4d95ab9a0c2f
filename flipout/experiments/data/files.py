"""Where the files of a data set are found: the folder in FLIPOUT_DATA, then the user's cache, then a download.

The checksum of a file is verified before anything in it is decompressed or parsed. A bad file is an error: no other
place is tried instead.
"""

import gzip
import hashlib
import lzma
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from flipout.errors import DataError

from ..door import read_plain
from ..extras import import_extra
from .checksums import DataSet, File

VARIABLE = "FLIPOUT_DATA"
DECOMPRESS = {"": bytes, ".gz": gzip.decompress, ".xz": lzma.decompress}


@dataclass(frozen=True, eq=False)
class Contents:
    """The files of a data set, and where they came from."""

    files: tuple[bytes, ...]  # decompressed, in the order of the data set
    source: str


def resolve(data_set: DataSet) -> Contents:
    """Return the files of a data set, downloaded if this machine does not have them."""
    return local(data_set) or download(data_set)


def local(data_set: DataSet) -> Contents | None:
    """Return the files if this machine has them. A named folder with some files of the data set must have them all."""
    folder = named_folder()
    if folder is not None and any(find(folder, file) for file in data_set.files):
        fix = f"copy the published file there again, or unset {VARIABLE} to download it."
        return Contents(
            read_all(folder, data_set, fix), f"{data_set.title}: the folder in {VARIABLE}, checksums verified"
        )
    cache = user_cache()
    if all(find(cache, file) for file in data_set.files):
        return Contents(read_cache(cache, data_set), f"{data_set.title}: the user's cache, checksums verified")
    return None


def download(data_set: DataSet) -> Contents:
    """Download the files that the cache lacks. A file appears there whole and verified, or not at all."""
    cache = user_cache()
    import pooch

    missing = [file for file in data_set.files if not find(cache, file)]
    if brought := [file.name for file in missing if file.origin is None]:
        raise DataError(
            f"{data_set.title} is not on this machine, and there is no address to download {', '.join(brought)} from. "
            f"Put the file in a folder and set {VARIABLE} to it, with the checksum that experiments/data/checksums.py "
            "has; or use embedded data: the presets smoke and quick."
        )
    origins = list(dict.fromkeys(file.origin for file in missing if file.origin is not None))
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".download-", dir=cache) as scratch:
            for origin in origins:
                name = origin.url.rpartition("/")[2]
                fetched = Path(pooch.retrieve(origin.url, f"sha256:{origin.sha256}", name, scratch)).read_bytes()
                for file in (file for file in missing if file.origin == origin):
                    store(cache, file, file.extract(fetched), Path(scratch))
    except (OSError, ValueError, tarfile.TarError) as error:
        names = ", ".join(file.name for file in missing if not find(cache, file))
        raise DataError(
            f"{data_set.title} is not on this machine and could not be downloaded ({error}). "
            f"Still missing: {names}. Try again with a network, or put the files in a folder and set {VARIABLE} to it"
            + ("." if named_folder() is None else f": it is {named_folder()}, which has none of them.")
        ) from error
    urls = ", ".join(origin.url for origin in origins)
    return Contents(read_cache(cache, data_set), f"{data_set.title}: downloaded from {urls}, checksums verified")


def store(cache: Path, file: File, content: bytes, scratch: Path) -> None:
    suffix, expected = next(iter(file.forms.items()))
    target = cache / (file.name + suffix)
    address = file.origin.url if file.origin else ""
    verify(target, content, expected, f"{address} did not give the published file; nothing was kept.")
    target.parent.mkdir(parents=True, exist_ok=True)
    complete = scratch / "complete"
    complete.write_bytes(content)
    os.replace(complete, target)


def read_cache(cache: Path, data_set: DataSet) -> tuple[bytes, ...]:
    return read_all(cache, data_set, "delete it, and the next run downloads it again.")


def read_all(folder: Path, data_set: DataSet, fix: str) -> tuple[bytes, ...]:
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(lambda file: read(folder, file, fix), data_set.files))


def read(folder: Path, file: File, fix: str) -> bytes:
    path = find(folder, file)
    if path is None:
        forms = " or ".join(f"{file.name}{form} (sha256 {expected})" for form, expected in file.forms.items())
        raise DataError(
            f"{folder} has other files of this data set, but {file.name} is missing. Expected {forms}: {fix}"
        )
    suffix = path.as_posix().rpartition(file.name)[2]
    try:
        raw = read_plain(path, follow=True)  # its checksum is known, wherever it lies
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}): make it readable, or {fix}") from error
    verify(path, raw, file.forms[suffix], fix)
    return DECOMPRESS[suffix](raw)


def verify(path: Path, raw: bytes, expected: str, fix: str) -> None:
    found = hashlib.sha256(raw).hexdigest()
    if found != expected:
        raise DataError(
            f"{path} is corrupt or truncated ({len(raw):,} bytes): expected sha256 {expected}, found {found}: {fix}"
        )


def find(folder: Path, file: File) -> Path | None:
    """Return the first form of a file that a folder has, or None."""
    paths = (folder / (file.name + suffix) for suffix in file.forms)
    return next((path for path in paths if path.exists()), None)


def named_folder() -> Path | None:
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not os.path.isdir(named):  # also for a name that no file can have
        raise DataError(
            f"{VARIABLE} is {named!r}, which is not a folder: set it to the folder of the data sets, or unset it."
        )
    return Path(named)


def user_cache() -> Path:
    pooch = import_extra("pooch", f"Data that is not in the folder in {VARIABLE}", "experiments")
    return Path(pooch.os_cache("flipout"))
