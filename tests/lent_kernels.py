"""Kernels that the examples of the documentation register."""

from collections.abc import Iterator
from contextlib import contextmanager

from flipout import backend


@contextmanager
def lent_kernels() -> Iterator[None]:
    """Take back what code inside registers, but for the library's own kernels, which it may be the first to import."""
    before = dict(backend._kernels)
    try:
        yield
    finally:
        ours = {name: kernel for name, kernel in backend._kernels.items() if _is_ours(kernel.call)}
        backend._kernels.clear()
        backend._kernels.update({**ours, **before})


def _is_ours(call: object) -> bool:
    first = call[0] if isinstance(call, tuple) else call
    return getattr(first, "__module__", "").startswith("flipout.")
