"""The base class of recurrent layers and cells."""

from typing import Any, ClassVar

from ..errors import InvalidArgument
from ..ops import recurrent as ops
from .base import Perturbed
from .layers import label_of

_NEVER = {
    "local_reparam": "it can never serve a recurrent layer: a weight is used at every time step, and each use would be "
    "sampled separately. Use 'flipout', 'independent', 'low_rank' or 'shared'."
}


class RecurrentBase(Perturbed, refused_schemes=_NEVER):
    """A layer or a cell with a hidden state."""

    _cell_type: ClassVar[type[ops.Cell]]
    _has_cell_state: ClassVar[bool] = False  # hx is a pair (h, c)
    _promotes: ClassVar[bool] = False  # under autocast on a CPU, torch's own layer promotes its outputs with hx

    def _make_cell(self) -> ops.Cell:
        """Return the arithmetic of one step."""
        nonlinearity = getattr(self, "nonlinearity", None)
        if nonlinearity not in (None, "tanh", "relu"):
            raise InvalidArgument(f"{label_of(self)}: nonlinearity={nonlinearity!r}; expected 'tanh' or 'relu'.")
        return self._cell_type() if nonlinearity is None else ops.RNN(nonlinearity)

    def _state_parts(self, hx: Any) -> tuple[Any, ...]:
        """Return (h, c) for an LSTM, (h,) for the others."""
        return tuple(hx) if self._has_cell_state and isinstance(hx, (tuple, list)) else (hx,)
