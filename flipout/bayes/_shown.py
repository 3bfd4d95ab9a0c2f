"""Short representations of results."""

from typing import Any

import numpy as np
from torch import Tensor, nn

from ..draws.bits import is_transformed


def shown(result: object, **values: Any) -> str:
    """Return `Name(field=value, …)` with few digits; arrays show only their shape."""
    return f"{type(result).__name__}({', '.join(f'{name}={_short(value)}' for name, value in values.items())})"


def _short(value: Any) -> str:
    is_plain = type(value) in (Tensor, nn.Parameter) and not value.is_meta and not is_transformed()
    if is_plain and value.dim() == 0:
        value = value.item()
    if isinstance(value, (Tensor, np.ndarray)):
        return f"<{'×'.join(map(str, value.shape)) or 'scalar'}>"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
