"""Other systems and versions: what is missing is said in a line by the command, and never by a traceback.

No such system is here. A process in which their parts are missing, or have other versions, stands for it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flipout import _torch_internals

ROOT = Path(__file__).parents[2]
TESTED = _torch_internals.tested()
COMMAND = "import sys; sys.argv = ['flipout', *{words!r}]; from flipout_command import run; sys.exit(run())"


def process(before: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that was changed by some code before."""
    code = f"{before}\n{COMMAND.format(words=words)}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)


OLDER = """
import sys, torch
torch.__version__ = '2.9.1'
torch.cuda.is_available = torch.backends.mps.is_available = lambda: True
sys.modules['fcntl'] = sys.modules['triton'] = None
"""
NEWER = """
import sys, types, torch
torch.__version__ = '2.14.0a0+git1'
torch.cuda.is_available = lambda: True
sys.modules['triton'] = types.ModuleType('triton')  # of another version: it lacks what the kernels use
"""


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (
            OLDER,
            f"2.9.1: an older version than the tested ones (flipout is tested with {TESTED}). Use one of those, or",
        ),
        pytest.param(
            NEWER,
            f"2.14.0a0+git1: newer than the tested ones (flipout is tested with {TESTED}). flipout loads",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["older", "newer"],
)
def test_doctor_says_it(before: str, says: str) -> None:
    ran = process(before, "doctor")
    assert (ran.returncode, ran.stderr) == (0, "flipout doctor: loading PyTorch\n")
    assert says in ran.stdout
    assert "not in use                 flipout.ops.triton cannot be imported: " in ran.stdout
    is_older = before == OLDER
    assert ("Apple's GPU: the eager definitions run there, but no test has" in ran.stdout) == is_older
    assert ("not locked: this system has no fcntl" in ran.stdout) == is_older


@pytest.mark.parametrize(
    ("before", "word", "says"),
    [
        (
            "import torch; del torch._C._current_graph_task_id",
            "doctor",
            "has no torch._C._current_graph_task_id, which",
        ),
        ("import sys; sys.modules['torch'] = None", "report", "torch"),
    ],
)
def test_a_torch_that_cannot_serve_is_named_without_a_traceback(before: str, word: str, says: str) -> None:
    ran = process(before, word)
    assert ran.returncode == 2
    loading, first, second = ran.stderr.splitlines()
    assert loading == f"flipout {word}: loading PyTorch"
    assert first.startswith("flipout: the package cannot be imported here (")
    assert says in first
    assert second.endswith(f"flipout is tested with torch {TESTED}.")


WINDOWS = """
import os, sys, platform
sys.modules['fcntl'] = sys.modules['resource'] = None
for name in ('O_NOFOLLOW', 'O_NONBLOCK', 'O_CLOEXEC', 'mkfifo', 'fork'):
    delattr(os, name)
platform.system = lambda: 'Windows'
import pathlib
from flipout.experiments import cli
from tests.experiments.toy_experiment import TOY
from tests.es.toys import full
cli.EXPERIMENTS['toy'] = TOY
folder = pathlib.Path(sys.argv[1])
for more in ([], ['--resume']):
    assert cli.main(['run', 'toy', '--preset', 'smoke', '--out', str(folder / 'run'), *more]) == 0
assert cli.main(['report', str(folder / 'run'), '--out', str(folder / 'report.html')]) == 0
first, second = full(), full()
first.run(2, checkpoint=folder / 'es')
assert second.resume(folder / 'es')
for path in folder.rglob('*'):
    assert not set(path.name) & set('<>:"|?*\\\\'), path
    assert path.name.split('.')[0].upper() not in ('CON', 'PRN', 'AUX', 'NUL', 'COM1', 'LPT1'), path
"""


def test_runs_and_checkpoints_without_the_calls_that_windows_lacks(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WINDOWS, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_ctrl_c_while_it_starts_says_nothing(seed: int) -> None:
    """The handler of a foreground process; a shell may start background ones deaf to Ctrl-C.

    The package is imported first: on a busy machine Python itself may still start when the signal comes.
    """
    code = (
        "import signal, flipout_command; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('up', flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, "-c", code + COMMAND.format(words=("run", "variance-fc", "--help"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "up\n"
    time.sleep(random.Random(seed).uniform(0.2, 1.0))
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=100)
    assert (started.returncode, said) == (130, "")
