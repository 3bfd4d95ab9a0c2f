"""`python -m flipout.experiments`: the command `flipout`."""

import sys

from flipout_command import run

if __name__ == "__main__":
    sys.exit(run())
