"""What can be answered or refused before PyTorch is loaded. That takes seconds, and a typing error should not wait."""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec

COMMANDS = ("demo", "list", "run", "watch", "report", "generate", "doctor")
PACKAGES = ("tyro", "rich", "msgspec", "scipy")  # imported by every command but list and doctor
HELP = ("-h", "--help")
_FLAGS = ("--help", "--version")
_OWN_HELP = ("demo", "watch", "report", "generate")  # commands with options of their own


def wants_usage(words: Sequence[str]) -> bool:
    """Return True if the help of all commands answers this one, as `flipout run --help`."""
    if not words or words[0] in HELP:
        return True
    return words[0] in COMMANDS and words[0] not in _OWN_HELP and len(words) == 2 and words[1] in HELP


def usage_error(words: Sequence[str], experiments: Sequence[str]) -> str | None:
    """Return why a command cannot run, or None if nothing is wrong so far.

    Args:
        words: The command and its arguments.
        experiments: The names that `flipout run` knows.
    """
    command, *rest = words
    if command not in COMMANDS:
        guess = _guess(command, (*COMMANDS, *_FLAGS))
        return f"flipout: there is no command {command!r}.{guess} `flipout --help` shows them all."
    if command in ("list", "doctor") and rest:
        return f"flipout {command}: takes no arguments; {' '.join(rest)!r} given. Use: flipout {command}"
    if command == "run" and (not rest or rest[0] not in experiments):
        wrong = f"there is no experiment {rest[0]!r}.{_guess(rest[0], experiments)}" if rest else "no experiment given."
        return f"flipout run: {wrong} `flipout list` shows them all. Use: flipout run NAME --preset quick"
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if command not in ("list", "doctor") and missing:
        return f"flipout {command}: needs more packages ({', '.join(missing)}): pip install 'flipout[experiments]'"
    return None


def _guess(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, 1)
    return f" Did you mean {close[0]}?" if close else ""
