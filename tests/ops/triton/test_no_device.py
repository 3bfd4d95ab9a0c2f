"""Without a device: launches pass the arguments that Triton's own launches pass, and layers compile for Hopper.

A stand-in for the CUDA driver notes the arguments of each launch and computes nothing. The interpreter checks neither
of the two: it does not launch by address, and it does not compile.
"""

import ctypes
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch

import flipout

ROOT = Path(__file__).parents[3]


CHECKS = ["pass_arguments", "compile_layers", "compile_populations", "shift_words"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a process has left, for each check, its exit status and what it said.

    The checks are forks of this process: to import torch and Triton takes seconds, and no check may see the kernels
    that another has compiled.
    """
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("checks")
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", __name__, str(folder)]
    env["PYTHONPATH"] = str(ROOT)
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.mark.skipif(torch.cuda.is_available(), reason="the driver of the CUDA device here would be used")
@pytest.mark.skipif(shutil.which("gcc") is None or sys.platform != "linux", reason="needs gcc on Linux")
@pytest.mark.parametrize("check", CHECKS)
def test_without_a_device(check: str, folder: Path) -> None:
    assert (folder / f"{check}.status").read_text() == "0", (folder / f"{check}.said").read_text()


def compile_layers(library: ctypes.CDLL) -> None:
    """Compile the kernels of a training step of a linear layer, in every dtype."""
    launches = ctypes.c_long.in_dll(library, "launches")
    noises = (
        flipout.MeanField(),
        flipout.Gaussian(0.1),
        flipout.MultiplicativeGaussian(0.5),
        flipout.DropConnect(0.5),
    )
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        x = torch.zeros(32, 64, dtype=dtype, requires_grad=True)
        for noise, scheme in product(noises, ("flipout", "shared")):
            layer, before = flipout.nn.Linear(64, 64, distribution=noise, scheme=scheme, dtype=dtype), launches.value
            layer(x).sum().backward()
            assert launches.value > before, (noise, scheme, dtype)


def compile_populations(library: ctypes.CDLL) -> None:
    """Compile the kernels of a population under rank-one flips, in every dtype, with a bias and without."""
    launches = ctypes.c_long.in_dll(library, "launches")
    from flipout.ops.triton.signs import packed_signs

    packed_signs(torch.tensor(3), 5, [(0, 70), (1, 200)], 2, 9)
    for dtype, where in product((torch.float32, torch.bfloat16, torch.float16), ("weight", "*")):
        for shape, bias in (((4, 96), True), ((2, 3, 40), False)):
            layer = flipout.nn.Linear(
                *(shape[-1], 3000),
                bias,
                distribution=flipout.Rademacher(0.1),
                scheme="rank_one",
                where=where,
                dtype=dtype,
            )
            before = launches.value
            with torch.no_grad():
                layer(torch.zeros(shape, dtype=dtype))
            assert launches.value == before + 1, (dtype, where, shape)


def shift_words(library: ctypes.CDLL) -> None:
    """Compile signs for every pair of dtypes. Triton 3.6 compiles 64-bit shifts by a lane's place to wrong machine code
    for float64 that is stored as bfloat16, so no kernel may have one.
    """
    from flipout.ops.triton.scaled_streams import scaled_noise

    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    for rounded, dtype in product(dtypes, dtypes):
        scaled_noise(torch.zeros(2, dtype=torch.int64), torch.ones(40, dtype=rounded), (40,), "sign", rounded, dtype)
    compiled = list(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.ptx"))
    assert len(compiled) == len(dtypes) ** 2
    shifts = re.compile(r"sh[lr]\.[bsu]64\s+%rd\d+, %rd\d+, %r\d+;")
    assert not [found for path in compiled for found in shifts.findall(path.read_text())]


def pass_arguments(library: ctypes.CDLL) -> None:
    """Compare the arguments of launches by Triton, by `launch` and by a `Launch`."""
    from flipout.draws.bits import stream_name

    handed, launches = ctypes.c_uint.in_dll(library, "handed"), ctypes.c_long.in_dll(library, "launches")
    values = (ctypes.c_ulonglong * 32).in_dll(library, "values")
    grid = (ctypes.c_uint * 3).in_dll(library, "grid")

    import triton.language as tl

    from flipout.ops.triton.flips import _flipped
    from flipout.ops.triton.launching import Launch, launch

    x, out, seed = torch.randn(48, 200), torch.empty(48, 200), torch.tensor(-3)
    constants = {"SHARED": False, "NEGATE": 0, "REAL": tl.float32, "INDEX": tl.int32, "BLOCKS": 16, "WIDTH": 128}
    handed.value = 9
    seen, numbers, wide = [], (), (0, 1, 2, 3, 4)  # pointers and annotated numbers take 8 bytes, the others 4
    for first, parameter in ((7, 2**60 + 5), (7, 2**60 + 5), (2**31 + 3, 11)):
        numbers = (first, stream_name(parameter, 1), 96, 3, 1, 0)
        launch(_flipped, (6,), out, x, None, None, seed, *numbers, FEATURES=200, **constants)
        got = [values[i] if i in wide else values[i] % 2**32 for i in range(9)]
        unsigned = [number % 2**64 for number in numbers]
        assert got == [out.data_ptr(), x.data_ptr(), seed.data_ptr(), *unsigned], (got, numbers)
        assert list(grid) == [6, 1, 1]
        seen.append(got)
    assert launches.value == 3
    assert seen[0] == seen[1] != seen[2]
    launch_again = Launch(_flipped, (6,), *numbers[2:], FEATURES=200, **constants)
    for _ in range(2):  # by Triton, then directly
        values[3] = 0
        launch_again((out, x, None, None, seed), *numbers[:2])
        assert [values[i] if i in wide else values[i] % 2**32 for i in range(9)] == seen[2]


def apart(check: str, library: ctypes.CDLL, folder: str) -> None:
    """Do a check with a cache of its own, and keep what it says."""
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/{check}.cache"
    said = os.open(f"{folder}/{check}.said", os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(said, stream)
    globals()[check](library)


def main(folder: str) -> None:
    from benchmarks import no_device

    library, forking = no_device.use(), multiprocessing.get_context("fork")
    for check in CHECKS:
        process = forking.Process(target=apart, args=(check, library, folder))
        process.start()
        process.join()
        Path(folder, f"{check}.status").write_text(str(process.exitcode))


if __name__ == "__main__":
    main(sys.argv[1])
