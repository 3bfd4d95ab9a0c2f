"""Recurrent cells with stochastic weights: one time step."""

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InvalidInput
from ..ops import recurrent as ops
from ..ops.linear import Linear
from ..ops.recurrent import State
from ..ops.sequences import check_state_shapes
from .call import is_noisy, perturbations
from .inputs import compute_dtype, not_a_tensor
from .layers import label_of
from .recurrent_base import RecurrentBase
from .row_count import single_example


class RecurrentCell(
    RecurrentBase,
    nn.RNNCellBase,
    default=("weight_ih", "weight_hh"),
    optional=("bias_ih", "bias_hh"),
    vectors=("bias_ih", "bias_hh"),
    fixed_layout="dimension 0",
):
    """One time step. All calls in one forward pass of its root see the same weights."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        if not is_noisy(self):
            return self._plain_type.forward(self, input, hx)
        if not isinstance(input, Tensor):
            raise not_a_tensor(self, input)
        if input.dim() not in (1, 2) or input.shape[-1] != self.input_size:
            raise InvalidInput(
                f"{label_of(self)}: input of shape {tuple(input.shape)}; expected (N, {self.input_size}), or "
                f"({self.input_size},) for one example."
            )
        x = input if input.dim() == 2 else single_example(self, input, 1)
        dtype = compute_dtype(self, input, self.weight_ih)
        state = self._state(input, hx, dtype)
        noise = perturbations(self, x, dtype)
        cell = self._make_cell()
        rows = cell.gates * self.hidden_size
        gates = noise.affine(Linear(self.input_size, rows), x, "weight_ih", "bias_ih")
        hidden = noise.affine(Linear(self.hidden_size, rows), state[0], "weight_hh", "bias_hh")
        new_state = tuple(part.to(state[-1].dtype) for part in cell.step(gates, hidden, state))
        new_state = new_state if input.dim() == 2 else tuple(part.squeeze(0) for part in new_state)
        return new_state if self._has_cell_state else new_state[0]

    def _state(self, input: Tensor, hx: Any, dtype: torch.dtype) -> State:
        """Return the last states, (N, hidden_size) each: those of `hx`, or zeros."""
        shape, count = (*input.shape[:-1], self.hidden_size), 1 + self._has_cell_state
        parts = (input.new_zeros(shape),) * count if hx is None else self._state_parts(hx)
        check_state_shapes(label_of(self), parts, [shape] * count, ".")
        for part in parts:
            compute_dtype(self, part, self.weight_ih, "hx")
        if self._promotes and input.device.type == "cpu":
            dtype = torch.promote_types(dtype, parts[-1].dtype)
        return tuple((part if part.dim() == 2 else part.unsqueeze(0)).to(dtype) for part in parts)


class LSTMCell(RecurrentCell, nn.LSTMCell):
    """`torch.nn.LSTMCell` with stochastic weights: one time step.

    Called in a loop inside one forward pass of its model, or inside `flipout.hold`, a sequence keeps its weights.

    Args:
        *args: As for `torch.nn.LSTMCell`.
        distribution: The noise, such as `flipout.Gaussian(0.1)`.
        scheme: Who shares the noise: "flipout", "shared", "independent", "low_rank", "rank_one", or a
            scheme object.
        where: Which Parameters are perturbed, as a glob, several globs, or a predicate over names. By default both
            weight matrices and no biases.
        **kwargs: As for `torch.nn.LSTMCell`.

    Returns:
        What `torch.nn.LSTMCell` returns, from an input (N, in) or (in,).

    Raises:
        InvalidArgument: If the distribution is missing, or an argument is not what it should be.
        InvalidInput: If the input or `hx` has another shape or dtype; raised by the call.
        Unsupported: If the scheme is "local_reparam", which would sample a weight anew at every time step.

    Example:
        >>> cell = flipout.nn.LSTMCell(8, 16, distribution=flipout.Gaussian(0.1))
        >>> state = None
        >>> with flipout.hold(cell):
        ...     for x in torch.randn(35, 20, 8):
        ...         state = cell(x, state)
    """

    _cell_type = ops.LSTM
    _has_cell_state = True
    _promotes = True


class GRUCell(RecurrentCell, nn.GRUCell):
    """`torch.nn.GRUCell` with stochastic weights: one time step.

    Called in a loop inside one forward pass of its model, or inside `flipout.hold`, a sequence keeps its weights.

    Args:
        *args: As for `torch.nn.GRUCell`.
        distribution: The noise, such as `flipout.Gaussian(0.1)`.
        scheme: Who shares the noise: "flipout", "shared", "independent", "low_rank", "rank_one", or a
            scheme object.
        where: Which Parameters are perturbed, as a glob, several globs, or a predicate over names. By default both
            weight matrices and no biases.
        **kwargs: As for `torch.nn.GRUCell`.

    Returns:
        What `torch.nn.GRUCell` returns, from an input (N, in) or (in,).

    Raises:
        InvalidArgument: If the distribution is missing, or an argument is not what it should be.
        InvalidInput: If the input or `hx` has another shape or dtype; raised by the call.
        Unsupported: If the scheme is "local_reparam", which would sample a weight anew at every time step.

    Example:
        >>> cell = flipout.nn.GRUCell(8, 16, distribution=flipout.Gaussian(0.1))
        >>> h = None
        >>> with flipout.hold(cell):
        ...     for x in torch.randn(35, 20, 8):
        ...         h = cell(x, h)
    """

    _cell_type = ops.GRU
    _promotes = True


class RNNCell(RecurrentCell, nn.RNNCell):
    """`torch.nn.RNNCell` with stochastic weights: one time step.

    Called in a loop inside one forward pass of its model, or inside `flipout.hold`, a sequence keeps its weights.

    Args:
        *args: As for `torch.nn.RNNCell`.
        distribution: The noise, such as `flipout.Gaussian(0.1)`.
        scheme: Who shares the noise: "flipout", "shared", "independent", "low_rank", "rank_one", or a
            scheme object.
        where: Which Parameters are perturbed, as a glob, several globs, or a predicate over names. By default both
            weight matrices and no biases.
        **kwargs: As for `torch.nn.RNNCell`.

    Returns:
        What `torch.nn.RNNCell` returns, from an input (N, in) or (in,).

    Raises:
        InvalidArgument: If the distribution is missing, or an argument is not what it should be.
        InvalidInput: If the input or `hx` has another shape or dtype; raised by the call.
        Unsupported: If the scheme is "local_reparam", which would sample a weight anew at every time step.

    Example:
        >>> cell = flipout.nn.RNNCell(8, 16, distribution=flipout.Gaussian(0.1))
        >>> h = None
        >>> with flipout.hold(cell):
        ...     for x in torch.randn(35, 20, 8):
        ...         h = cell(x, h)
    """

    _cell_type = ops.RNN
