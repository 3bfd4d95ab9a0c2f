"""Recurrent layers with stochastic weights: each sequence has its own, the same at every time step."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.backends.cudnn.rnn import get_cudnn_mode
from torch.nn.utils.rnn import PackedSequence

from ..draws.bits import transformed
from ..errors import InvalidArgument, InvalidInput
from ..ops import recurrent as ops
from ..ops.base import Flipped
from ..ops.linear import Linear
from ..ops.lstm import FlippedLSTM, PlainWeight
from ..ops.lstm_steps import Weight
from ..ops.recurrent import Scan, State
from ..ops.sequences import Sequences, check_shapes, traverse
from ..schemes import Flipout, Shared
from .base import Perturbed
from .perturbations import Perturbations

_NEVER = {
    "local_reparam": "it can never serve a recurrent layer: a weight is used at every time step, and each use would be "
    "sampled separately. Use 'flipout', 'independent', 'low_rank' or 'shared'."
}


class _Stepping(Perturbed):
    """What layers and cells share."""

    refused_schemes = _NEVER
    kind: ClassVar[type[ops.Cell]]
    several_states: ClassVar[bool] = False  # hx is a pair
    promotes: ClassVar[bool] = False  # under autocast on a CPU, torch's own makes what promotion with the state gives

    def cell(self) -> ops.Cell:
        nonlinearity = getattr(self, "nonlinearity", None)
        if nonlinearity not in (None, "tanh", "relu"):
            raise InvalidArgument(f"{self.label}: nonlinearity={nonlinearity!r}; expected 'tanh' or 'relu'.")
        return self.kind() if nonlinearity is None else ops.RNN(nonlinearity)

    def parts(self, hx: Any) -> tuple[Any, ...]:
        """h, and c of an LSTM."""
        return tuple(hx) if self.several_states and isinstance(hx, (tuple, list)) else (hx,)


class Recurrent(_Stepping, nn.RNNBase):
    """What the layers over sequences share. Under `shared` the weights are formed once, and torch's own layer runs if
    there is no kernel for all steps of a few sequences."""

    default = (r"weight_(ih|hh|hr)_l\d+(_reverse)?",)
    optional = vectors = (r"bias_(ih|hh)_l\d+(_reverse)?",)
    fixed_layout = "that of batch_first"
    weight_ih_l0: Tensor

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        if not self.noisy:
            return self.torch_type.forward(self, input, hx)
        self._check_input(input)
        sequences = Sequences.of(input, self.batch_first)
        data = input.data if isinstance(input, PackedSequence) else input
        dtype = self.compute_dtype(data, self.weight_ih_l0)
        state = self._state(sequences, hx, dtype)
        noise = self.perturbations(sequences.x, dtype)
        if isinstance(noise.scheme, Shared) and not transformed() and not self._at_once(noise, sequences.x):
            return self._by_torch(noise, input, hx)
        y, last = traverse(self, sequences.x.to(dtype), state, sequences.alive, _Directions(self, noise))
        if self.promotes and data.device.type == "cpu":
            dtype = torch.promote_types(dtype, data.dtype if hx is None else hx.dtype)
        last = tuple(part.to(dtype) for part in sequences.states(last))
        return sequences.outputs(y.to(dtype)), last if self.several_states else last[0]

    def _check_input(self, input: Tensor | PackedSequence) -> None:
        if not isinstance(input, (Tensor, PackedSequence)):
            raise self.no_tensor(input)
        data, dims = (input.data, (2,)) if isinstance(input, PackedSequence) else (input, (2, 3))
        if data.dim() not in dims or data.shape[-1] != self.input_size:
            layout = f"(N, time, {self.input_size})" if self.batch_first else f"(time, N, {self.input_size})"
            raise InvalidInput(
                f"{self.label}: input of shape {tuple(data.shape)}; expected {layout}, (time, {self.input_size}) for "
                "one sequence, or a PackedSequence of such."
            )
        time = 1 if self.batch_first and data.dim() == 3 else 0
        if not isinstance(input, PackedSequence) and not data.shape[time]:
            raise InvalidInput(
                f"{self.label}: input of shape {tuple(data.shape)}: there is no time step; expected one or more. Leave "
                "it out."
            )

    def _state(self, sequences: Sequences, hx: Any, dtype: torch.dtype) -> State:
        """(layers · directions, N, width) each; zeros where none is given."""
        x, count = sequences.x, self.num_layers * (1 + self.bidirectional)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: 1 + self.several_states]
        dtypes = (dtype, torch.promote_types(dtype, torch.float32))
        if hx is None:
            made = zip(widths, dtypes, strict=False)
            return tuple(x.new_zeros(count, len(x), width, dtype=own) for width, own in made)
        given = self.parts(hx)
        sequences.check_state(self.label, given, count, widths)
        for part in given:
            self.compute_dtype(part, self.weight_ih_l0, "hx")
        parts = (part if sequences.batched else part.unsqueeze(1) for part in given)
        return tuple(part.to(own) for part, own in zip(parts, dtypes, strict=False))

    def _at_once(self, noise: Perturbations, x: Tensor) -> bool:
        """Whether a kernel has all steps under weights that sequences share."""
        return False

    def _by_torch(self, noise: Perturbations, input: Tensor | PackedSequence, hx: Any) -> Any:
        plain, dtype = self._formed(noise), noise.dtype
        if not input.data.is_cuda or not torch.is_autocast_enabled("cuda"):
            return self.torch_type.forward(plain, input, hx)
        # torch's own takes float16 there, whatever autocast was asked for.
        given = None if hx is None else tuple(part.to(dtype) for part in self.parts(hx))
        with torch.autocast("cuda", enabled=False):
            return self.torch_type.forward(
                plain, input.to(dtype=dtype), given if given is None or self.several_states else given[0]
            )

    def _formed(self, noise: Perturbations) -> nn.Module:
        """torch's own layer with the weights that all sequences share."""
        plain: Any = object.__new__(self.torch_type)
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
        self.layer, self.noise, self.cell = layer, noise, layer.cell()

    def __call__(self, x: Tensor, suffix: str, state: State, reverse: bool, alive: Tensor | None):
        rows, width = self.cell.gates * self.layer.hidden_size, state[0].shape[-1]
        if not self.layer.proj_size and ops.takes_input(self.cell, x, alive):
            made = self._at_once(x, suffix, state, reverse)
            if made is not None:
                return made
        op, biases = Linear(x.shape[-1], rows), [f"bias_hh{suffix}"]
        if self.cell.adds:  # one bias then does for both
            gates = self.noise.product(op, x, f"weight_ih{suffix}", None)
            biases.append(f"bias_ih{suffix}")
        else:
            gates = self.noise.affine(op, x, f"weight_ih{suffix}", f"bias_ih{suffix}")
        product = self.noise.bound(Linear(width, rows), f"weight_hh{suffix}", *biases)
        project = None
        if self.layer.proj_size:
            project = self.noise.bound(Linear(self.layer.hidden_size, width), f"weight_hr{suffix}")
        return Scan(self.cell, product, project, reverse)(gates, state, alive)

    def _at_once(self, x: Tensor, suffix: str, state: State, reverse: bool) -> tuple[Tensor, State] | None:
        """All steps with the input's product, where their backward pass is written out."""
        biases = [f"{name}{suffix}" for name in ("bias_ih", "bias_hh")] if self.layer.bias else []
        if f"weight_hh{suffix}" not in self.noise or any(name in self.noise for name in biases):
            return None
        inputs, recurrent = (self._flipped(f"{name}{suffix}", len(x)) for name in ("weight_ih", "weight_hh"))
        if inputs is None or recurrent is None:
            return None
        bias = torch.add(*(getattr(self.layer, name).to(self.noise.dtype) for name in biases)) if biases else None
        y, *last = FlippedLSTM.apply(x, *state, *inputs, *recurrent, bias, reverse)  # pyright: ignore[reportGeneralTypeIssues]
        return y, tuple(last)

    def _flipped(self, name: str, rows: int) -> Weight | PlainWeight | None:
        """A weight with one ΔŴ for all sequences, or without noise."""
        noise, made, scheme = self.noise, self.noise.made, self.noise.scheme
        if name not in noise:
            return PlainWeight(getattr(self.layer, name).to(noise.dtype))
        if not isinstance(scheme, Flipout) or scheme.perturbation_dtype is not None or noise.draw.formed is not None:
            return None
        if made is not None and not scheme.reuse_signs:
            key = noise.keys[name]
            r, s = made.signs.get((key, 0)), made.signs.get((key, 1))
            p = noise.matrix(name)
            if r is not None and s is not None and (r.shape[1], s.shape[1]) == p.parameter.shape and len(r) == rows:
                return Weight(p.mean, p.delta(made.base), -r if p.draw.antithetic else r, s)
        out, inputs = getattr(self.layer, name).shape
        p = noise.bound(Linear(inputs, out), name)
        if not isinstance(p, Flipped) or p.lifted is not p.op or len(p.r) != rows:
            return None
        return Weight(p.mean, p.delta, p.r, p.s)


class LSTM(Recurrent, nn.LSTM):
    """`torch.nn.LSTM` of (time, N, in), or (N, time, in) if `batch_first`: a sequence has one weight at all steps."""

    torch_type = nn.LSTM
    kind = ops.LSTM
    several_states = True

    def _at_once(self, noise: Perturbations, x: Tensor) -> bool:
        biases = any(name.startswith("bias") for name in self.plan.distributions)
        if self.proj_size or biases or noise.draw.formed is not None:
            return False
        return ops.one_weight_kernel(x, noise.dtype, len(x), 4 * self.hidden_size) is not None


class GRU(Recurrent, nn.GRU):
    """`torch.nn.GRU` of (time, N, in), or (N, time, in) if `batch_first`: a sequence has one weight at all steps."""

    torch_type = nn.GRU
    kind = ops.GRU
    promotes = True


class RNN(Recurrent, nn.RNN):
    """`torch.nn.RNN` of (time, N, in), or (N, time, in) if `batch_first`: a sequence has one weight at all steps."""

    torch_type = nn.RNN
    kind = ops.RNN


class RecurrentCell(_Stepping, nn.RNNCellBase):
    """One time step. Called several times in one forward pass of its root, it sees the same weights each time."""

    default = ("weight_ih", "weight_hh")
    optional = vectors = ("bias_ih", "bias_hh")
    fixed_layout = "dimension 0"

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        if not self.noisy:
            return self.torch_type.forward(self, input, hx)
        if not isinstance(input, Tensor):
            raise self.no_tensor(input)
        if input.dim() not in (1, 2) or input.shape[-1] != self.input_size:
            raise InvalidInput(
                f"{self.label}: input of shape {tuple(input.shape)}; expected (N, {self.input_size}), or "
                f"({self.input_size},) for one example."
            )
        x = input if input.dim() == 2 else input.unsqueeze(0)
        dtype = self.compute_dtype(input, self.weight_ih)
        state = self._state(input, hx, dtype)
        noise = self.perturbations(x, dtype)
        rows = self.cell().gates * self.hidden_size
        gates = noise.affine(Linear(self.input_size, rows), x, "weight_ih", "bias_ih")
        hidden = noise.affine(Linear(self.hidden_size, rows), state[0], "weight_hh", "bias_hh")
        made = tuple(part.to(state[-1].dtype) for part in self.cell().step(gates, hidden, state))
        made = made if input.dim() == 2 else tuple(part.squeeze(0) for part in made)
        return made if self.several_states else made[0]

    def _state(self, input: Tensor, hx: Any, dtype: torch.dtype) -> State:
        shape = (*input.shape[:-1], self.hidden_size)
        given = (input.new_zeros(shape),) * (1 + self.several_states) if hx is None else self.parts(hx)
        check_shapes(self.label, given, [shape] * (1 + self.several_states), ".")
        for part in given:
            self.compute_dtype(part, self.weight_ih, "hx")
        own = dtype
        if self.promotes and input.device.type == "cpu":
            own = torch.promote_types(dtype, given[-1].dtype)
        return tuple((part if part.dim() == 2 else part.unsqueeze(0)).to(own) for part in given)


class LSTMCell(RecurrentCell, nn.LSTMCell):
    """`torch.nn.LSTMCell` of (N, in): in a loop inside of its root, a sequence has one weight at all its steps."""

    torch_type = nn.LSTMCell
    kind = ops.LSTM
    several_states = True
    promotes = True


class GRUCell(RecurrentCell, nn.GRUCell):
    """`torch.nn.GRUCell` of (N, in): in a loop inside of its root, a sequence has one weight at all its steps."""

    torch_type = nn.GRUCell
    kind = ops.GRU
    promotes = True


class RNNCell(RecurrentCell, nn.RNNCell):
    """`torch.nn.RNNCell` of (N, in): in a loop inside of its root, a sequence has one weight at all its steps."""

    torch_type = nn.RNNCell
    kind = ops.RNN
