"""The command `flipout`, also `python -m flipout.experiments`."""

import os
import sys


def run() -> int:
    try:
        if sys.argv[1:] == ["doctor"]:  # works without the packages that the other commands need
            from .doctor import doctor

            return doctor()
        try:
            from .cli import main
        except ImportError as error:
            print(
                f"flipout: the experiments need more packages ({error}): pip install 'flipout[experiments]'",
                file=sys.stderr,
            )
            return 2
        return main()
    except BrokenPipeError:  # the reader of the output has left: `flipout list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(run())
