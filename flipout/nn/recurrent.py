"""Recurrent layers with stochastic weights: each sequence has its own, the same at every time step."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.backends.cudnn.rnn import get_cudnn_mode
from torch.nn.utils.rnn import PackedSequence

from ..draws.bits import is_transformed
from ..errors import InvalidArgument, InvalidInput
from ..ops import recurrent as ops
from ..ops.linear import Linear
from ..ops.recurrent import Scan, State
from ..ops.sequences import Sequences, check_shapes, traverse
from ..schemes import Shared
from .base import Perturbed
from .call import is_noisy, perturbations
from .inputs import compute_dtype, not_a_tensor
from .layers import label_of
from .parameters import Perturbations

_NEVER = {
    "local_reparam": "it can never serve a recurrent layer: a weight is used at every time step, and each use would be "
    "sampled separately. Use 'flipout', 'independent', 'low_rank' or 'shared'."
}


class _Stepping(Perturbed, refused_schemes=_NEVER):
    """What layers and cells share."""

    _kind: ClassVar[type[ops.Cell]]
    _several_states: ClassVar[bool] = False  # hx is a pair
    _promotes: ClassVar[bool] = False  # under autocast on a CPU, torch's own makes what promotion with the state gives

    def _cell(self) -> ops.Cell:
        nonlinearity = getattr(self, "nonlinearity", None)
        if nonlinearity not in (None, "tanh", "relu"):
            raise InvalidArgument(f"{label_of(self)}: nonlinearity={nonlinearity!r}; expected 'tanh' or 'relu'.")
        return self._kind() if nonlinearity is None else ops.RNN(nonlinearity)

    def _parts(self, hx: Any) -> tuple[Any, ...]:
        """h, and c of an LSTM."""
        return tuple(hx) if self._several_states and isinstance(hx, (tuple, list)) else (hx,)


class Recurrent(
    _Stepping,
    nn.RNNBase,
    default=(r"weight_(ih|hh|hr)_l\d+(_reverse)?",),
    optional=(r"bias_(ih|hh)_l\d+(_reverse)?",),
    vectors=(r"bias_(ih|hh)_l\d+(_reverse)?",),
    fixed_layout="that of batch_first",
):
    """What the layers over sequences share. Under `shared` the weights are formed once, and torch's own layer runs if
    there is no kernel for all steps of a few sequences."""

    weight_ih_l0: Tensor

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        if not is_noisy(self):
            return self._plain_type.forward(self, input, hx)
        self._check_input(input)
        sequences = Sequences.of(input, self.batch_first)
        data = input.data if isinstance(input, PackedSequence) else input
        dtype = compute_dtype(self, data, self.weight_ih_l0)
        state = self._state(sequences, hx, dtype)
        noise = perturbations(self, sequences.x, dtype)
        if isinstance(noise.scheme, Shared) and not is_transformed() and not self._at_once(noise, sequences.x):
            return self._by_torch(noise, input, hx)
        y, last = traverse(self, sequences.x.to(dtype), state, sequences.alive, _Directions(self, noise))
        if self._promotes and data.device.type == "cpu":
            dtype = torch.promote_types(dtype, data.dtype if hx is None else hx.dtype)
        last = tuple(part.to(dtype) for part in sequences.states(last))
        return sequences.outputs(y.to(dtype)), last if self._several_states else last[0]

    def _check_input(self, input: Tensor | PackedSequence) -> None:
        if not isinstance(input, (Tensor, PackedSequence)):
            raise not_a_tensor(self, input)
        data, dims = (input.data, (2,)) if isinstance(input, PackedSequence) else (input, (2, 3))
        if data.dim() not in dims or data.shape[-1] != self.input_size:
            layout = f"(N, time, {self.input_size})" if self.batch_first else f"(time, N, {self.input_size})"
            raise InvalidInput(
                f"{label_of(self)}: input of shape {tuple(data.shape)}; expected {layout}, (time, "
                f"{self.input_size}) for one sequence, or a PackedSequence of such."
            )
        time = 1 if self.batch_first and data.dim() == 3 else 0
        if not isinstance(input, PackedSequence) and not data.shape[time]:
            raise InvalidInput(
                f"{label_of(self)}: input of shape {tuple(data.shape)}: there is no time step; expected one or more. "
                "Leave it out."
            )

    def _state(self, sequences: Sequences, hx: Any, dtype: torch.dtype) -> State:
        """(layers · directions, N, width) each; zeros where none is given."""
        x, count = sequences.x, self.num_layers * (1 + self.bidirectional)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: 1 + self._several_states]
        dtypes = (dtype, torch.promote_types(dtype, torch.float32))
        if hx is None:
            made = zip(widths, dtypes, strict=False)
            return tuple(x.new_zeros(count, len(x), width, dtype=own) for width, own in made)
        given = self._parts(hx)
        sequences.check_state(label_of(self), given, count, widths)
        for part in given:
            compute_dtype(self, part, self.weight_ih_l0, "hx")
        parts = (part if sequences.batched else part.unsqueeze(1) for part in given)
        return tuple(part.to(own) for part, own in zip(parts, dtypes, strict=False))

    def _at_once(self, noise: Perturbations, x: Tensor) -> bool:
        """Whether a kernel has all steps under weights that sequences share."""
        return False

    def _by_torch(self, noise: Perturbations, input: Tensor | PackedSequence, hx: Any) -> Any:
        plain, dtype = self._formed(noise), noise.dtype
        if not input.data.is_cuda or not torch.is_autocast_enabled("cuda"):
            return self._plain_type.forward(plain, input, hx)
        # torch's own takes float16 there, whatever autocast was asked for.
        given = None if hx is None else tuple(part.to(dtype) for part in self._parts(hx))
        with torch.autocast("cuda", enabled=False):
            return self._plain_type.forward(
                plain, input.to(dtype=dtype), given if given is None or self._several_states else given[0]
            )

    def _formed(self, noise: Perturbations) -> nn.Module:
        """torch's own layer with the weights that all sequences share."""
        plain: Any = object.__new__(self._plain_type)
        formed = {name: noise.vector(name).squeeze(0) for name in self._flat_weights_names}
        flat = {"_flat_weights": list(formed.values()), "_flat_weight_refs": [None] * len(formed)}
        # cuDNN has gradients in training mode alone.
        mode = {"training": True, "dropout": self.dropout if self.training else 0.0}
        plain.__dict__ = {**self.__dict__, "_parameters": formed, **flat, **mode}
        _put_together(plain)
        return plain


def _put_together(plain: nn.RNNBase) -> None:
    """`flatten_parameters` for every dtype that cuDNN has: it wants the weights in one piece of memory."""
    weights: Any = plain._flat_weights
    if not weights[0].is_cuda or not torch.backends.cudnn.enabled or not torch._use_cudnn_rnn_flatten_weight():
        return
    each, mode = len(weights) // (plain.num_layers * (1 + plain.bidirectional)), get_cudnn_mode(plain.mode)
    sizes = plain.hidden_size, plain.proj_size, plain.num_layers
    with torch.no_grad(), torch.cuda.device_of(weights[0]):
        torch._cudnn_rnn_flatten_weight(
            weights, each, plain.input_size, mode, *sizes, plain.batch_first, bool(plain.bidirectional)
        )


class _Directions:
    """One layer in one direction, under the draw of a call."""

    def __init__(self, layer: Recurrent, noise: Perturbations) -> None:
        self.layer, self.noise, self._cell = layer, noise, layer._cell()

    def __call__(self, x: Tensor, suffix: str, state: State, reverse: bool, alive: Tensor | None):
        rows, width = self._cell.gates * self.layer.hidden_size, state[0].shape[-1]
        op, biases = Linear(x.shape[-1], rows), [f"bias_hh{suffix}"]
        if self._cell.adds:  # one bias then does for both
            gates = self.noise.product(op, x, f"weight_ih{suffix}", None)
            biases.append(f"bias_ih{suffix}")
        else:
            gates = self.noise.affine(op, x, f"weight_ih{suffix}", f"bias_ih{suffix}")
        product = self.noise.bound(Linear(width, rows), f"weight_hh{suffix}", *biases)
        project = None
        if self.layer.proj_size:
            project = self.noise.bound(Linear(self.layer.hidden_size, width), f"weight_hr{suffix}")
        return Scan(self._cell, product, project, reverse)(gates, state, alive)


class LSTM(Recurrent, nn.LSTM):
    """`torch.nn.LSTM` of (time, N, in), or (N, time, in) if `batch_first`: a sequence has one weight at all steps."""

    _kind = ops.LSTM
    _several_states = True

    def _at_once(self, noise: Perturbations, x: Tensor) -> bool:
        biases = any(name.startswith("bias") for name in self.flipout.distributions)
        if self.proj_size or biases or noise.session.formed is not None:
            return False
        return ops.one_weight_kernel(x, noise.dtype, len(x), 4 * self.hidden_size) is not None


class GRU(Recurrent, nn.GRU):
    """`torch.nn.GRU` of (time, N, in), or (N, time, in) if `batch_first`: a sequence has one weight at all steps."""

    _kind = ops.GRU
    _promotes = True


class RNN(Recurrent, nn.RNN):
    """`torch.nn.RNN` of (time, N, in), or (N, time, in) if `batch_first`: a sequence has one weight at all steps."""

    _kind = ops.RNN


class RecurrentCell(
    _Stepping,
    nn.RNNCellBase,
    default=("weight_ih", "weight_hh"),
    optional=("bias_ih", "bias_hh"),
    vectors=("bias_ih", "bias_hh"),
    fixed_layout="dimension 0",
):
    """One time step. Called several times in one forward pass of its root, it sees the same weights each time."""

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
        x = input if input.dim() == 2 else input.unsqueeze(0)
        dtype = compute_dtype(self, input, self.weight_ih)
        state = self._state(input, hx, dtype)
        noise = perturbations(self, x, dtype)
        rows = self._cell().gates * self.hidden_size
        gates = noise.affine(Linear(self.input_size, rows), x, "weight_ih", "bias_ih")
        hidden = noise.affine(Linear(self.hidden_size, rows), state[0], "weight_hh", "bias_hh")
        made = tuple(part.to(state[-1].dtype) for part in self._cell().step(gates, hidden, state))
        made = made if input.dim() == 2 else tuple(part.squeeze(0) for part in made)
        return made if self._several_states else made[0]

    def _state(self, input: Tensor, hx: Any, dtype: torch.dtype) -> State:
        shape = (*input.shape[:-1], self.hidden_size)
        given = (input.new_zeros(shape),) * (1 + self._several_states) if hx is None else self._parts(hx)
        check_shapes(label_of(self), given, [shape] * (1 + self._several_states), ".")
        for part in given:
            compute_dtype(self, part, self.weight_ih, "hx")
        own = dtype
        if self._promotes and input.device.type == "cpu":
            own = torch.promote_types(dtype, given[-1].dtype)
        return tuple((part if part.dim() == 2 else part.unsqueeze(0)).to(own) for part in given)


class LSTMCell(RecurrentCell, nn.LSTMCell):
    """`torch.nn.LSTMCell` of (N, in): in a loop inside of its root, a sequence has one weight at all its steps."""

    _kind = ops.LSTM
    _several_states = True
    _promotes = True


class GRUCell(RecurrentCell, nn.GRUCell):
    """`torch.nn.GRUCell` of (N, in): in a loop inside of its root, a sequence has one weight at all its steps."""

    _kind = ops.GRU
    _promotes = True


class RNNCell(RecurrentCell, nn.RNNCell):
    """`torch.nn.RNNCell` of (N, in): in a loop inside of its root, a sequence has one weight at all its steps."""

    _kind = ops.RNN
