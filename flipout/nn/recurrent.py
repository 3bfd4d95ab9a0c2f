"""Recurrent layers with stochastic weights: each sequence has its own, the same at every time step."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..errors import InvalidInput
from ..ops import recurrent as ops
from ..ops.linear import Linear
from ..ops.recurrent import Scan, State
from ..ops.sequences import Sequences, traverse
from ..schemes import Shared
from .base import Perturbed
from .perturbations import Perturbations

_NEVER = {"local_reparam": "never: a weight is used at every time step, and each use would be sampled separately."}


class Recurrent(Perturbed):
    """What the layers over sequences share. Under `shared` the weights are formed once and torch's own layer runs."""

    default = (r"weight_(ih|hh|hr)_l\d+(_reverse)?",)
    optional = vectors = (r"bias_(ih|hh)_l\d+(_reverse)?",)
    fixed_layout = "that of batch_first"
    refused_schemes = _NEVER
    several_states: ClassVar[bool] = False  # hx is a pair

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        if not self.noisy:
            return self.torch_type.forward(self, input, hx)
        self._check_input(input)
        sequences = Sequences.of(input, self.batch_first)
        data = input.data if isinstance(input, PackedSequence) else input
        noise = self.perturbations(sequences.x, self.compute_dtype(data, self.weight_ih_l0))
        state = self._state(sequences, hx, noise.dtype)
        if isinstance(self.plan.scheme, Shared):
            return self.torch_type.forward(self._formed(noise), input, hx)
        y, last = traverse(self, sequences.x.to(noise.dtype), state, sequences.alive, _Directions(self, noise))
        last = tuple(part.to(noise.dtype) for part in sequences.states(last))
        return sequences.outputs(y), last if self.several_states else last[0]

    def _check_input(self, input: Tensor | PackedSequence) -> None:
        data, dims = (input.data, (2,)) if isinstance(input, PackedSequence) else (input, (2, 3))
        if data.dim() not in dims or data.shape[-1] != self.input_size:
            layout = f"(N, time, {self.input_size})" if self.batch_first else f"(time, N, {self.input_size})"
            raise InvalidInput(
                f"{self.label}: input of shape {tuple(data.shape)}; expected {layout}, (time, {self.input_size}) for "
                "one sequence, or a PackedSequence of such."
            )
        if not isinstance(input, PackedSequence) and 0 in input.shape[:-1]:
            raise InvalidInput(f"{self.label}: input of shape {tuple(data.shape)}: there is no sequence, or no time.")

    def _state(self, sequences: Sequences, hx: Any, dtype: torch.dtype) -> State:
        """(layers · directions, N, width) each; zeros where none is given."""
        x, count = sequences.x, self.num_layers * (1 + self.bidirectional)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: 1 + self.several_states]
        dtypes = (dtype, torch.promote_types(dtype, torch.float32))
        if hx is None:
            made = zip(widths, dtypes, strict=False)
            return tuple(x.new_zeros(count, len(x), width, dtype=own) for width, own in made)
        given = tuple(hx) if self.several_states and isinstance(hx, (tuple, list)) else (hx,)
        rows = (len(x),) if sequences.batched else ()
        shapes = [(count, *rows, width) for width in widths]
        if [tuple(part.shape) for part in given if isinstance(part, Tensor)] != shapes:
            found = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in given]
            raise InvalidInput(
                f"{self.label}: hx of shapes {found}; expected {shapes}: layers × directions, then the "
                f"{len(x)} sequence(s) of this input, then the width. For another batch start from hx=None."
            )
        parts = (part if sequences.batched else part.unsqueeze(1) for part in given)
        return tuple(part.to(own) for part, own in zip(parts, dtypes, strict=False))

    def _formed(self, noise: Perturbations) -> nn.Module:
        """torch's own layer with the weights that all sequences share."""
        plain = object.__new__(self.torch_type)
        formed = {name: noise.vector(name).squeeze(0) for name in self._flat_weights_names}
        flat = {"_flat_weights": list(formed.values()), "_flat_weight_refs": [None] * len(formed)}
        plain.__dict__ = {**self.__dict__, "_parameters": formed, **flat}
        plain.flatten_parameters()  # cuDNN wants them in one piece of memory
        return plain

    def cell(self) -> ops.Cell:
        raise NotImplementedError


class _Directions:
    """One layer in one direction, under the draw of a call."""

    def __init__(self, layer: Recurrent, noise: Perturbations) -> None:
        self.layer, self.noise, self.cell = layer, noise, layer.cell()

    def __call__(self, x: Tensor, suffix: str, state: State, reverse: bool, alive: Tensor | None):
        rows, width = self.cell.gates * self.layer.hidden_size, state[0].shape[-1]
        gates = self.noise.affine(Linear(x.shape[-1], rows), x, f"weight_ih{suffix}", f"bias_ih{suffix}")
        product = self.noise.bound(Linear(width, rows), f"weight_hh{suffix}", f"bias_hh{suffix}")
        project = None
        if self.layer.proj_size:
            project = self.noise.bound(Linear(self.layer.hidden_size, width), f"weight_hr{suffix}", "")
        return Scan(self.cell, product, project, reverse)(gates.unbind(1), state, alive)


class LSTM(Recurrent, nn.LSTM):
    """`torch.nn.LSTM`."""

    torch_type = nn.LSTM
    several_states = True

    def cell(self) -> ops.Cell:
        return ops.LSTM()


class GRU(Recurrent, nn.GRU):
    """`torch.nn.GRU`."""

    torch_type = nn.GRU

    def cell(self) -> ops.Cell:
        return ops.GRU()


class RNN(Recurrent, nn.RNN):
    """`torch.nn.RNN`."""

    torch_type = nn.RNN

    def cell(self) -> ops.Cell:
        return ops.RNN(self.nonlinearity)


class RecurrentCell(Perturbed):
    """One time step. Called several times in one forward pass of its root, it sees the same weights each time."""

    default = ("weight_ih", "weight_hh")
    optional = vectors = ("bias_ih", "bias_hh")
    refused_schemes = _NEVER
    fixed_layout = "dimension 0"
    several_states: ClassVar[bool] = False

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        if not self.noisy:
            return self.torch_type.forward(self, input, hx)
        if input.dim() not in (1, 2) or input.shape[-1] != self.input_size:
            raise InvalidInput(
                f"{self.label}: input of shape {tuple(input.shape)}; expected (N, {self.input_size}), or "
                f"({self.input_size},) for one example."
            )
        x = input if input.dim() == 2 else input.unsqueeze(0)
        noise = self.perturbations(x, self.compute_dtype(input, self.weight_ih))
        state = self._state(input, hx, noise.dtype)
        rows = self.cell().gates * self.hidden_size
        gates = noise.affine(Linear(self.input_size, rows), x, "weight_ih", "bias_ih")
        hidden = noise.affine(Linear(self.hidden_size, rows), state[0], "weight_hh", "bias_hh")
        made = self.cell().step(gates, hidden, state)
        made = made if input.dim() == 2 else tuple(part.squeeze(0) for part in made)
        return made if self.several_states else made[0]

    def _state(self, input: Tensor, hx: Any, dtype: torch.dtype) -> State:
        shape = (*input.shape[:-1], self.hidden_size)
        if hx is None:
            given = (input.new_zeros(shape),) * (1 + self.several_states)
        else:
            given = tuple(hx) if self.several_states and isinstance(hx, (tuple, list)) else (hx,)
        if [tuple(part.shape) for part in given if isinstance(part, Tensor)] != [shape] * (1 + self.several_states):
            found = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in given]
            raise InvalidInput(f"{self.label}: hx of shapes {found}; expected {[shape] * (1 + self.several_states)}.")
        return tuple((part if part.dim() == 2 else part.unsqueeze(0)).to(dtype) for part in given)

    def cell(self) -> ops.Cell:
        raise NotImplementedError


class LSTMCell(RecurrentCell, nn.LSTMCell):
    """`torch.nn.LSTMCell`."""

    torch_type = nn.LSTMCell
    several_states = True

    def cell(self) -> ops.Cell:
        return ops.LSTM()


class GRUCell(RecurrentCell, nn.GRUCell):
    """`torch.nn.GRUCell`."""

    torch_type = nn.GRUCell

    def cell(self) -> ops.Cell:
        return ops.GRU()


class RNNCell(RecurrentCell, nn.RNNCell):
    """`torch.nn.RNNCell`."""

    torch_type = nn.RNNCell

    def cell(self) -> ops.Cell:
        return ops.RNN(self.nonlinearity)
