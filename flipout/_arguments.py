"""Check that an argument is a whole number."""

from typing import Any

import numpy as np

from .errors import InvalidArgument


def whole_number(
    name: str, value: Any, least: int | None = None, *, of: str = "", means: str = "", more: str = "."
) -> int:
    """Return the argument as an int, or refuse it.

    NumPy integers are whole numbers; True and 2.0 are not.

    Args:
        name: Name of the argument.
        value: What the caller passed.
        least: Smallest value allowed.
        of: The callable that takes the argument, named in the message.
        means: What the argument stands for, named in the message.
        more: End of the message, for alternatives such as ", or None.".
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and (least is None or value >= least):
        return int(value)
    argument = f"{name}={value!r}"
    call = f"{of}({argument})" if of else argument
    meaning = f"{means}, " if means else ""
    bound = "" if least is None else f" ≥ {least}"
    raise InvalidArgument(f"{call}: expected {meaning}a whole number{bound}{more}")
