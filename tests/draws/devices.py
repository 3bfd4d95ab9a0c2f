"""Compute with torch on a CPU too, as on any other device."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flipout.draws import bits, noise, signs


@contextmanager
def without_numpy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for module in (bits, signs, noise):
            patched.setattr(module, "uses_numpy", lambda _: False)
        yield
