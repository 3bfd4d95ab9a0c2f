"""An LSTM whose layers run under rules: which masks fall where, and how a state follows from the last."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .._batched_gradients import one_at_a_time
from ..backend import chosen, is_autocast_on, without_autocast
from ..draws.bits import is_transformed
from ..errors import InvalidInput
from ..ops.base import refuse_double_backward
from ..ops.lstm import RULED
from ..ops.recurrent import LSTM, Cell, Product, Scan, State
from ..ops.sequences import Sequences, traverse

StateRule = Callable[[State, State], State]


@dataclass(frozen=True)
class Rules:
    """Where one layer in one direction departs from the plain LSTM, in one call. None: not at all."""

    x: Tensor | None = None  # factor of the inputs (N, time, features)
    h: Tensor | None = None  # factor of the last h (N, width), before W_hh
    g: Product | None = None  # of the candidate (N, hidden_size), called once a step
    c: Product | None = None  # of the c made, of which h is made, likewise
    state: StateRule | None = None  # from the state made and the last one, called once a step


class Masked:
    """g or c times a mask for each step, (time or 1, N, hidden_size): a rule that kernels know."""

    def __init__(self, masks: Tensor, times: int) -> None:
        self.masks = masks
        self._steps = iter(masks.expand(times, *masks.shape[1:]).unbind(0))

    def __call__(self, part: Tensor) -> Tensor:
        return part * next(self._steps)


class Zoned:
    """h and c keep their last values where these say so, (time, N, width) each: a rule that kernels know."""

    def __init__(self, h: Tensor, c: Tensor) -> None:
        self.h, self.c = h, c
        self._steps = zip(h, c, strict=True)

    def __call__(self, made: State, last: State) -> State:
        return tuple(map(torch.where, next(self._steps), last, made))


class RegularizedLSTM(nn.LSTM, ABC):
    """`torch.nn.LSTM` under rules in training. In eval mode, and where all probabilities are 0, it is torch's own."""

    probabilities: ClassVar[tuple[str, ...]]  # names of the fields that switch the rules on
    options: ClassVar[tuple[str, ...]] = ()  # names of further fields
    own_eval: ClassVar[bool] = False  # the rules hold in eval mode too
    ends: ClassVar[bool] = False  # torch's `dropout` falls on the input and the output too

    @abstractmethod
    def rules(self, x: Tensor, state: State) -> Rules:
        """Drawn anew for each layer and direction of a call, from its inputs (N, time, features) and first state."""

    @property
    def active(self) -> bool:
        """Whether the next call runs under rules."""
        return (self.training or self.own_eval) and any(getattr(self, name) for name in self.probabilities)

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        if not self.active:
            return nn.LSTM.forward(self, input, hx)
        self._check_input(input)
        sequences = Sequences.of(input, self.batch_first)
        ends = self.dropout if self.ends else 0.0
        x = F.dropout(sequences.x, ends) if ends else sequences.x
        y, last = traverse(self, x, self._state(sequences, hx), sequences.alive, self._direction)
        last = tuple(part.to(y.dtype) for part in sequences.states(last))
        return sequences.outputs(F.dropout(y, ends) if ends else y), last

    def extra_repr(self) -> str:
        """torch's own, and the rules."""
        own = (name for name in self.probabilities + self.options if name != "dropout")
        return ", ".join([super().extra_repr(), *(f"{name}={getattr(self, name)}" for name in own)])

    def _direction(self, x: Tensor, suffix: str, state: State, reverse: bool, alive: Tensor | None):
        rules = self.rules(x, state)
        w_ih, w_hh, b_ih, b_hh, w_hr = self._weights(suffix)
        collected, recurrent = _collects(x), w_hh
        fed: list[Tensor] = []
        known = alive is None and not reverse and not self.proj_size and _known(rules)

        def product(h: Tensor) -> Tensor:
            h = h if rules.h is None else h * rules.h
            if not collected:
                return F.linear(h, w_hh, b_hh)
            fed.append(h.detach())
            return F.linear(h, recurrent)

        def project(h: Tensor) -> Tensor:
            return F.linear(h, w_hr)

        bias = b_ih + b_hh if collected and b_ih is not None else b_ih
        gates = F.linear(x if rules.x is None else x * rules.x, w_ih, bias)
        first = (state[0].to(gates.dtype), state[1])
        kernel = chosen("ruled_lstm", gates, gates.dtype, required=False) if known and not is_transformed() else None
        if kernel is not None:
            kept = (rules.state.h, rules.state.c) if isinstance(rules.state, Zoned) else (None, None)
            masks = [rule.masks if isinstance(rule, Masked) else None for rule in (rules.g, rules.c)]
            both = gates if collected or b_hh is None else gates + b_hh.to(gates.dtype)
            y, *last = kernel(both, *first, w_hh, rules.h, *masks, *kept)
            return y, tuple(last)
        if collected:
            recurrent = w_hh.detach().to(gates.dtype)
            gates: Any = _Collected.apply(gates, w_hh, fed, reverse)
        cell, projection = LSTM(rules.g, rules.c), project if self.proj_size else None
        if rules.state is not None:
            cell, projection = _Ruled(cell, projection, rules.state), None
        return Scan(cell, product, projection, reverse)(gates, first, alive)

    def _weights(self, suffix: str) -> list[Any]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return [getattr(self, name + suffix, None) for name in names]

    def _check_input(self, input: Tensor | PackedSequence) -> None:
        data, dims = (input.data, (2,)) if isinstance(input, PackedSequence) else (input, (2, 3))
        dtype, size = self.weight_ih_l0.dtype, self.input_size
        other_dtype = data.dtype != dtype and not is_autocast_on(data.device.type)
        if data.dim() not in dims or data.shape[-1] != size or 0 in data.shape or other_dtype:
            layout = f"(N, time, {size})" if self.batch_first else f"(time, N, {size})"
            raise InvalidInput(
                f"{type(self).__name__}: input of shape {tuple(data.shape)} and dtype {data.dtype}; expected {layout}, "
                f"(time, {size}) for one sequence, or a PackedSequence of such, nothing empty, of dtype {dtype}: "
                f"x.to({dtype})."
            )

    def _state(self, sequences: Sequences, hx: Any) -> State:
        """(layers · directions, N, width) of h and c; zeros where none is given."""
        x, count = sequences.x, self.num_layers * (1 + self.bidirectional)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)
        if hx is None:
            h, c = (x.new_zeros(count, len(x), width) for width in widths)
        else:
            sequences.check_state(type(self).__name__, tuple(hx), count, widths)
            h, c = (part if sequences.batched else part.unsqueeze(1) for part in hx)
        return h, c.to(torch.promote_types(c.dtype, torch.float32))


def _known(rules: Rules) -> bool:
    """Whether a kernel can follow them."""
    masked = isinstance(rules.g, Masked | None) and isinstance(rules.c, Masked | None)
    return masked and isinstance(rules.state, Zoned | None)


def _collects(x: Tensor) -> bool:
    """On a GPU a gradient for every step would be most of the time; double precision stays twice differentiable."""
    return x.is_cuda and x.dtype != torch.float64 and torch.is_grad_enabled() and not is_transformed()


class _Collected(torch.autograd.Function):
    """W_ih x as it is. What comes before the gates' activation is its sum with W_hh h, so its gradient is theirs, and
    gives that of W_hh for all steps at once: Σ_t dg_t h_{t−1}ᵀ, in one product."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, fed: list[Tensor], reverse: bool) -> Tensor:
        ctx.fed, ctx.reverse, ctx.dtype = fed, reverse, weight.dtype
        return gates.view_as(gates)

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward(*RULED)
        (grad,) = grads
        h = torch.stack(ctx.fed[::-1] if ctx.reverse else ctx.fed, 1)
        with without_autocast(grad.device.type):
            made = grad.flatten(0, 1).T @ h.flatten(0, 1).to(grad.dtype)
        return grad, made.to(ctx.dtype), None, None


@dataclass(frozen=True)
class _Ruled(Cell):
    """A cell under a rule for the state, which sees h as the next step does: projected."""

    cell: Cell
    project: Product | None
    rule: StateRule
    gates = LSTM.gates
    adds = LSTM.adds

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        h, c = self.cell.step(x, h, state)
        return self.rule((h if self.project is None else self.project(h), c), state)
