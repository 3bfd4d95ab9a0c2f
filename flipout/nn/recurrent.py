"""Recurrent layers with stochastic weights. Each sequence has its own weights, the same at every time step."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.backends.cudnn.rnn import get_cudnn_mode
from torch.nn.utils.rnn import PackedSequence

from ..draws.bits import is_transformed
from ..errors import InvalidInput
from ..ops import recurrent as ops
from ..ops.recurrent import State
from ..ops.sequences import Sequences, traverse
from ..schemes import Shared
from .call import is_noisy, perturbations
from .directions import Directions
from .inputs import compute_dtype, not_a_tensor
from .layers import label_of
from .parameters import Perturbations
from .recurrent_base import RecurrentBase
from .row_count import single_example


class Recurrent(
    RecurrentBase,
    nn.RNNBase,
    default=(r"weight_(ih|hh|hr)_l\d+(_reverse)?",),
    optional=(r"bias_(ih|hh)_l\d+(_reverse)?",),
    vectors=(r"bias_(ih|hh)_l\d+(_reverse)?",),
    fixed_layout="that of batch_first",
):
    """A recurrent layer over sequences.

    Under `shared` the weights are formed once, and torch's own layer runs unless a kernel takes all steps at once.
    """

    weight_ih_l0: Tensor

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        if not is_noisy(self):
            return self._plain_type.forward(self, input, hx)
        self._check_input(input)
        sequences = Sequences.of(input, self.batch_first)
        data = input.data if isinstance(input, PackedSequence) else input
        if not sequences.batched:
            single_example(self, data)
        dtype = compute_dtype(self, data, self.weight_ih_l0)
        state = self._state(sequences, hx, dtype)
        noise = perturbations(self, sequences.x, dtype)
        if isinstance(noise.scheme, Shared) and not is_transformed() and not self._has_kernel(noise, sequences.x):
            return self._run_torch(noise, input, hx)
        y, last = traverse(self, sequences.x.to(dtype), state, sequences.alive, Directions(self, noise))
        if self._promotes and data.device.type == "cpu":
            dtype = torch.promote_types(dtype, data.dtype if hx is None else hx.dtype)
        last = tuple(part.to(dtype) for part in sequences.states(last))
        return sequences.outputs(y.to(dtype)), last if self._has_cell_state else last[0]

    def _check_input(self, input: Tensor | PackedSequence) -> None:
        if not isinstance(input, (Tensor, PackedSequence)):
            raise not_a_tensor(self, input)
        data, dims = (input.data, (2,)) if isinstance(input, PackedSequence) else (input, (2, 3))
        if data.dim() not in dims or data.shape[-1] != self.input_size:
            layout = f"(N, time, {self.input_size})" if self.batch_first else f"(time, N, {self.input_size})"
            raise InvalidInput(
                f"{label_of(self)}: input of shape {tuple(data.shape)}; expected {layout}, (time, {self.input_size}) "
                "for one sequence, or a PackedSequence."
            )
        time = 1 if self.batch_first and data.dim() == 3 else 0
        if not isinstance(input, PackedSequence) and not data.shape[time]:
            raise InvalidInput(
                f"{label_of(self)}: input of shape {tuple(data.shape)}: there is no time step; expected at least one. "
                "Skip this call."
            )

    def _state(self, sequences: Sequences, hx: Any, dtype: torch.dtype) -> State:
        """Return the first states, (layers · directions, N, width) each: those of `hx`, or zeros."""
        x, count = sequences.x, self.num_layers * (1 + self.bidirectional)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: 1 + self._has_cell_state]
        dtypes = (dtype, torch.promote_types(dtype, torch.float32))
        if hx is None:
            pairs = zip(widths, dtypes, strict=False)
            return tuple(x.new_zeros(count, len(x), width, dtype=part_dtype) for width, part_dtype in pairs)
        parts = self._state_parts(hx)
        sequences.check_state(label_of(self), parts, count, widths)
        for part in parts:
            compute_dtype(self, part, self.weight_ih_l0, "hx")
        batched = (part if sequences.batched else part.unsqueeze(1) for part in parts)
        return tuple(part.to(part_dtype) for part, part_dtype in zip(batched, dtypes, strict=False))

    def _has_kernel(self, noise: Perturbations, x: Tensor) -> bool:
        """Return True if a kernel takes all steps at once under weights that all sequences share."""
        if not isinstance(self, LSTM) or self.proj_size or noise.session.formed is not None:
            return False
        if any(name.startswith("bias") for name in self.flipout.distributions):
            return False
        return ops.one_weight_kernel(x, noise.dtype, len(x), 4 * self.hidden_size) is not None

    def _run_torch(self, noise: Perturbations, input: Tensor | PackedSequence, hx: Any) -> Any:
        plain, dtype = self._shared_layer(noise), noise.dtype
        if not input.data.is_cuda or not torch.is_autocast_enabled("cuda"):
            return self._plain_type.forward(plain, input, hx)
        # Under autocast torch's own layer takes float16, whatever dtype was asked for.
        parts = None if hx is None else tuple(part.to(dtype) for part in self._state_parts(hx))
        with torch.autocast("cuda", enabled=False):
            return self._plain_type.forward(
                plain, input.to(dtype=dtype), parts if parts is None or self._has_cell_state else parts[0]
            )

    def _shared_layer(self, noise: Perturbations) -> nn.Module:
        """Return torch's own layer with the weights that all sequences share."""
        plain: Any = object.__new__(self._plain_type)
        weights = {name: noise.vector(name).squeeze(0) for name in self._flat_weights_names}
        flat = {"_flat_weights": list(weights.values()), "_flat_weight_refs": [None] * len(weights)}
        # cuDNN has gradients in training mode alone.
        mode = {"training": True, "dropout": self.dropout if self.training else 0.0}
        plain.__dict__ = {**self.__dict__, "_parameters": weights, **flat, **mode}
        _flatten_weights(plain)
        return plain


def _flatten_weights(plain: nn.RNNBase) -> None:
    """Put the weights into one piece of memory, as cuDNN wants them.

    `flatten_parameters` does this too, but not for every dtype that cuDNN has.
    """
    weights: Any = plain._flat_weights
    if not weights[0].is_cuda or not torch.backends.cudnn.enabled or not torch._use_cudnn_rnn_flatten_weight():
        return
    per_layer, mode = len(weights) // (plain.num_layers * (1 + plain.bidirectional)), get_cudnn_mode(plain.mode)
    sizes = plain.hidden_size, plain.proj_size, plain.num_layers
    with torch.no_grad(), torch.cuda.device_of(weights[0]):
        torch._cudnn_rnn_flatten_weight(
            weights, per_layer, plain.input_size, mode, *sizes, plain.batch_first, bool(plain.bidirectional)
        )


class LSTM(Recurrent, nn.LSTM):
    """`torch.nn.LSTM` with stochastic weights. Each sequence has its own weights, the same at every time step.

    Args:
        *args: As for `torch.nn.LSTM`.
        distribution: The noise, such as `flipout.Gaussian(0.1)`.
        scheme: Who shares the noise: "flipout", "shared", "independent", "low_rank", "rank_one", or a
            scheme object.
        where: Which Parameters are perturbed, as a glob, several globs, or a predicate over names. By default all
            weight matrices and no biases.
        **kwargs: As for `torch.nn.LSTM`.

    Returns:
        What `torch.nn.LSTM` returns, from an input (time, N, in), (N, time, in) if `batch_first`, (time, in), or a
        PackedSequence.

    Raises:
        InvalidArgument: If the distribution is missing, or an argument is not what it should be.
        InvalidInput: If the input or `hx` has another shape or dtype; raised by the call.
        Unsupported: If the scheme is "local_reparam", which would sample a weight anew at every time step.

    Example:
        >>> layer = flipout.nn.LSTM(8, 16, distribution=flipout.Gaussian(0.1))
        >>> y, (h, c) = layer(torch.randn(35, 20, 8))
    """

    _cell_type = ops.LSTM
    _has_cell_state = True


class GRU(Recurrent, nn.GRU):
    """`torch.nn.GRU` with stochastic weights. Each sequence has its own weights, the same at every time step.

    Args:
        *args: As for `torch.nn.GRU`.
        distribution: The noise, such as `flipout.Gaussian(0.1)`.
        scheme: Who shares the noise: "flipout", "shared", "independent", "low_rank", "rank_one", or a
            scheme object.
        where: Which Parameters are perturbed, as a glob, several globs, or a predicate over names. By default all
            weight matrices and no biases.
        **kwargs: As for `torch.nn.GRU`.

    Returns:
        What `torch.nn.GRU` returns, from an input (time, N, in), (N, time, in) if `batch_first`, (time, in), or a
        PackedSequence.

    Raises:
        InvalidArgument: If the distribution is missing, or an argument is not what it should be.
        InvalidInput: If the input or `hx` has another shape or dtype; raised by the call.
        Unsupported: If the scheme is "local_reparam", which would sample a weight anew at every time step.

    Example:
        >>> layer = flipout.nn.GRU(8, 16, distribution=flipout.Gaussian(0.1))
        >>> y, h = layer(torch.randn(35, 20, 8))
    """

    _cell_type = ops.GRU
    _promotes = True


class RNN(Recurrent, nn.RNN):
    """`torch.nn.RNN` with stochastic weights. Each sequence has its own weights, the same at every time step.

    Args:
        *args: As for `torch.nn.RNN`.
        distribution: The noise, such as `flipout.Gaussian(0.1)`.
        scheme: Who shares the noise: "flipout", "shared", "independent", "low_rank", "rank_one", or a
            scheme object.
        where: Which Parameters are perturbed, as a glob, several globs, or a predicate over names. By default all
            weight matrices and no biases.
        **kwargs: As for `torch.nn.RNN`.

    Returns:
        What `torch.nn.RNN` returns, from an input (time, N, in), (N, time, in) if `batch_first`, (time, in), or a
        PackedSequence.

    Raises:
        InvalidArgument: If the distribution is missing, or an argument is not what it should be.
        InvalidInput: If the input or `hx` has another shape or dtype; raised by the call.
        Unsupported: If the scheme is "local_reparam", which would sample a weight anew at every time step.

    Example:
        >>> layer = flipout.nn.RNN(8, 16, distribution=flipout.Gaussian(0.1))
        >>> y, h = layer(torch.randn(35, 20, 8))
    """

    _cell_type = ops.RNN
