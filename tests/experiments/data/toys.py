"""A data set of two small files, as a folder and as an archive to download."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from flipout.experiments.data.checksums import DataSet, Download, File, member

CONTENT = {"a.txt": bytes(range(256)) * 5, "b.txt": b"all of b\n" * 50}
GZIPPED = {name: gzip.compress(content, mtime=0) for name, content in CONTENT.items()}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tarball(contents: Mapping[str, bytes] = CONTENT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"inside/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def toy(url: str = "http://127.0.0.1:9/toy.tar.gz", archive: bytes = b"") -> DataSet:
    origin = Download(url, sha256(archive))
    return DataSet(
        "Toy",
        tuple(
            File(
                f"toy/{name}",
                {"": sha256(content), ".gz": sha256(GZIPPED[name])},
                origin,
                partial(member, f"inside/{name}"),
            )
            for name, content in CONTENT.items()
        ),
    )


def fill(folder: Path, suffix: str = ".gz") -> Path:
    (folder / "toy").mkdir(parents=True)
    for name, content in (GZIPPED if suffix else CONTENT).items():
        (folder / "toy" / (name + suffix)).write_bytes(content)
    return folder
