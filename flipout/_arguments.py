"""Arguments that have to be whole numbers."""

from typing import Any

import numpy as np

from .errors import InvalidArgument


def whole_number(
    name: str, value: Any, least: int | None = None, *, of: str = "", means: str = "", more: str = "."
) -> int:
    """An argument (of the callable `of`) as an int: numpy's integers are whole numbers, True and 2.0 are not.

    A refusal says what it `means`, and `more` at its end.
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and (least is None or value >= least):
        return int(value)
    given, bound = f"{name}={value!r}", "" if least is None else f" ≥ {least}"
    raise InvalidArgument(
        f"{f'{of}({given})' if of else given}: expected {f'{means}, ' if means else ''}a whole number{bound}{more}"
    )
