"""The command `flipout` answers at once, without PyTorch and without extras."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flipout
import flipout_command
from flipout.experiments.registry import EXPERIMENTS, catalogue

ROOT = Path(__file__).parents[1]
EXTRAS = ("rich", "tyro", "msgspec", "scipy", "safetensors", "matplotlib")
HEAVY = ("torch", "numpy", *EXTRAS)
BARRED = "import sys; sys.modules.update(dict.fromkeys({names!r})); "
START = "import sys; sys.path.insert(0, {root!r}); sys.argv = ['flipout', *{words!r}]; "
# Ends the process where it would import PyTorch.
STOP = "import os, flipout_command; flipout_command._library_loads = lambda: os._exit(0); "
RUN = "import flipout_command; sys.exit(flipout_command.run())"


def command(*words: str, barred: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    code = BARRED.format(names=barred) + START.format(root=str(ROOT), words=words) + RUN
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], [], ["list"], ["list", "--help"], ["run", "--help"], ["doctor", "-h"], ["--version"]]
)
def test_help_list_and_version_need_no_other_package(words):
    ended = command(*words, barred=HEAVY)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout


def test_the_version_is_that_of_the_package():
    assert command("--version").stdout == f"flipout {flipout.__version__}\n"


def test_the_catalogue_is_that_of_the_registry():
    text = flipout_command.CATALOGUE.read_text(encoding="utf-8")
    assert text == catalogue(), "run `python -m flipout.experiments.registry`"
    assert [entry["name"] for entry in json.loads(text)] == [*EXPERIMENTS]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_list_is_wrapped_at_words(columns):
    out = command("list", COLUMNS=str(columns)).stdout
    assert max(map(len, out.splitlines())) <= max(columns, len(flipout_command.NEXT))
    words = {word for entry in flipout_command.read_catalogue() for word in entry["title"].split()}
    assert words <= set(out.split())


def test_help_fits_80_columns_and_names_every_command():
    assert max(map(len, flipout_command.USAGE.splitlines())) <= 80
    for name in ("demo", "list", "run", "watch", "report", "generate", "doctor"):
        assert f"\n  flipout {name}" in flipout_command.USAGE


@pytest.mark.parametrize("words", [["run", "variance-fc", "--preset", "smoke"], ["demo"], ["doctor"]])
def test_a_line_comes_before_pytorch(words):
    """PyTorch cannot be imported here, and yet the line is there."""
    ended = command(*words, barred=("torch",))
    name = " ".join(words[:2])
    first, refusal, found = ended.stderr.splitlines()
    assert first == f"flipout {name}: loading PyTorch"
    assert refusal.startswith("flipout: the package cannot be imported here (")
    assert "torch 2." in found
    assert ended.returncode == 2


def test_the_line_comes_within_half_a_second():
    """Seconds of CPU time, since other programs may keep the machine busy."""
    took = []
    for _ in range(5):
        code = START.format(root=str(ROOT), words=["run", "theorem"]) + STOP + RUN
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert ended.stderr == b"flipout run theorem: loading PyTorch\n"
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took) < 0.5, took


@pytest.mark.parametrize("words", [["run", "theorem"], ["demo"], ["watch", "runs/a"], ["report", "--help"]])
def test_missing_extras_come_with_the_line_that_installs_them(words):
    """At once: PyTorch is not loaded first."""
    ended = command(*words, barred=("torch", "tyro", "rich"))
    line = f"flipout {words[0]}: needs more packages (tyro, rich): pip install 'flipout[experiments]'\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", line)


def test_a_package_that_only_pytorch_shows_to_be_missing_is_named_too():
    """msgspec is found here, and yet it cannot be imported."""
    code = "import sys, msgspec; sys.modules['msgspec.structs'] = None; "
    code += START.format(root=str(ROOT), words=["run", "theorem"]) + RUN
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "pip install 'flipout[experiments]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_ctrl_c_while_pytorch_loads_is_quiet():
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = listening + START.format(root=str(ROOT), words=["run", "theorem"]) + RUN
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert b"Traceback" not in said


class Terminal:
    def isatty(self) -> bool:
        return True


def test_refusals_are_wrapped_on_a_terminal_and_commands_stay_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    long = "a sentence that says what is wrong " * 5
    text = f"{long}\n  flipout run {'long-option ' * 20}"
    lines = flipout_command.wrapped(text, Terminal()).split("\n")  # pyright: ignore[reportArgumentType]
    assert lines[-1] == text.split("\n")[1]
    assert max(map(len, lines[:-1])) <= 80
    assert " ".join(lines[:-1]).split() == long.split()
    assert flipout_command.wrapped(text, sys.stdout) == text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("walk", "there is no command 'walk'. `flipout --help`"),
        ("version", "there is no command 'version'. Did you mean --version?"),
        ("wach", "there is no command 'wach'. Did you mean watch?"),
        ("list all", "flipout list: takes no arguments; 'all' given. Use: flipout list"),
        ("doctor all", "flipout doctor: takes no arguments; 'all' given."),
        ("run", "flipout run: no experiment given. `flipout list`"),
        ("run --preset quick", "there is no experiment '--preset'."),
        ("run variance", "there is no experiment 'variance'. Did you mean variance-fc?"),
    ],
)
def test_a_typing_error_is_refused_before_pytorch(words, says):
    ended = command(*words.split(), barred=HEAVY)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
