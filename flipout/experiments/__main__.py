"""The command `flipout`, or python -m flipout.experiments."""

import sys


def run() -> int:
    try:
        from .cli import main
    except ImportError as error:
        print(
            f"flipout: the experiments need more packages ({error}): pip install 'flipout[experiments]'",
            file=sys.stderr,
        )
        return 2
    return main()


if __name__ == "__main__":
    sys.exit(run())
