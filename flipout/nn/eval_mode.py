"""Eval mode for a while."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn

from ..errors import Unsupported
from .walk import named_modules

_CHANGED: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # model in eval mode for a while → the thread


@contextmanager
def in_eval(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode, and each of its modules back into its own mode afterwards.

    Raises:
        Unsupported: Another thread is inside, and would put the model back into training mode at any time.
    """
    thread = threading.get_ident()
    if _CHANGED.get(model, thread) != thread:
        raise Unsupported(
            f"{type(model).__name__}: two threads want it in eval mode for a while, and the first one to end would put "
            "it back into training mode under the other. Call model.eval() before the threads start."
        )
    modes = [(module, module.training) for module in named_modules(model).values() if module.training]
    if not modes:
        yield
        return
    _CHANGED[model] = thread
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        _CHANGED.pop(model, None)
