"""The base class of regularised LSTMs: `nn.LSTM` whose layers follow rules in training."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..backend import chosen, is_autocast_on
from ..draws.bits import is_transformed
from ..errors import InvalidInput
from ..ops.recurrent import LSTM, Scan, State
from ..ops.sequences import Sequences, traverse
from ._rules import Rules, StateRuleCell, StepMasks, Zoneout, suits_kernel
from ._weight_gradient import CollectedGradient, is_worthwhile


class RegularizedLSTM(nn.LSTM, ABC):
    """Base class for an `nn.LSTM` that follows rules in training.

    A subclass defines `rules` and the class attributes below. In eval mode, and if all its probabilities are 0, torch's
    own layer runs.

    Attributes:
        probabilities: Names of the attributes that switch the rules on when one of them is not 0.
        options: Names of further attributes to show in the `repr`.
        own_eval: Whether the rules apply in eval mode too.
        ends: Whether torch's `dropout` is also applied to the input and to the output.

    Example:
        >>> class NoisyLSTM(RegularizedLSTM):
        ...     probabilities = ("p",)
        ...     p = 0.1
        ...     def rules(self, x, state):
        ...         return Rules(c=lambda c: c + self.p * torch.randn_like(c))
        >>> NoisyLSTM(8, 16)(torch.randn(35, 4, 8))
    """

    probabilities: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[str, ...]] = ()
    own_eval: ClassVar[bool] = False
    ends: ClassVar[bool] = False

    @abstractmethod
    def rules(self, x: Tensor, state: State) -> Rules:
        """Draw the rules of one layer in one direction, for one call.

        Args:
            x: The inputs of the layer, (N, time, features).
            state: Its first h and c, (N, width) each.

        Returns:
            The rules; masks are drawn here, from torch's generator.
        """

    @property
    def active(self) -> bool:
        """Whether the next call follows the rules."""
        return (self.training or self.own_eval) and any(getattr(self, name) for name in self.probabilities)

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        if not self.active:
            return nn.LSTM.forward(self, input, hx)
        self._check_input(input)
        sequences = Sequences.of(input, self.batch_first)
        p_ends = self.dropout if self.ends else 0.0
        x = F.dropout(sequences.x, p_ends) if p_ends else sequences.x
        y, last = traverse(self, x, self._state(sequences, hx), sequences.alive, self._direction)
        last = tuple(part.to(y.dtype) for part in sequences.states(last))
        return sequences.outputs(F.dropout(y, p_ends) if p_ends else y), last

    def extra_repr(self) -> str:
        shown = (name for name in self.probabilities + self.options if name != "dropout")
        return ", ".join([super().extra_repr(), *(f"{name}={getattr(self, name)}" for name in shown)])

    def _direction(self, x: Tensor, suffix: str, state: State, reverse: bool, alive: Tensor | None):
        """Run one layer in one direction."""
        rules = self.rules(x, state)
        w_ih, w_hh, b_ih, b_hh, w_hr = self._weights(suffix)
        collects, w_hh_in_loop, states_in_loop = is_worthwhile(x), w_hh, []

        def product(h: Tensor) -> Tensor:
            h = h if rules.h is None else h * rules.h
            if not collects:
                return F.linear(h, w_hh, b_hh)
            states_in_loop.append(h.detach())
            return F.linear(h, w_hh_in_loop)

        def project(h: Tensor) -> Tensor:
            return F.linear(h, w_hr)

        bias = b_ih + b_hh if collects and b_ih is not None else b_ih
        gates = F.linear(x if rules.x is None else x * rules.x, w_ih, bias)
        first = (state[0].to(gates.dtype), state[1])
        is_plain = alive is None and not (reverse or self.proj_size or is_transformed())
        kernel = None
        if is_plain and suits_kernel(rules):
            kernel = chosen("masked_lstm", gates, gates.dtype, required=False)
        if kernel is not None:
            keeps = (rules.state.keep_h, rules.state.keep_c) if isinstance(rules.state, Zoneout) else (None, None)
            masks = [rule.masks if isinstance(rule, StepMasks) else None for rule in (rules.g, rules.c)]
            with_biases = gates if collects or b_hh is None else gates + b_hh.to(gates.dtype)
            y, *last = kernel(with_biases, *first, w_hh, rules.h, *masks, *keeps)
            return y, tuple(last)
        if collects:
            w_hh_in_loop = w_hh.detach().to(gates.dtype)
            gates: Any = CollectedGradient.apply(gates, w_hh, states_in_loop, reverse)
        cell, projection = LSTM(rules.g, rules.c), project if self.proj_size else None
        if rules.state is not None:
            cell, projection = StateRuleCell(cell, projection, rules.state), None
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
                f"(time, {size}) for one sequence, or a PackedSequence; not empty, and of dtype {dtype}: x.to({dtype})."
            )

    def _state(self, sequences: Sequences, hx: Any) -> State:
        """Return the first h and c, (layers · directions, N, width) each: those of `hx`, or zeros."""
        x, count = sequences.x, self.num_layers * (1 + self.bidirectional)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)
        if hx is None:
            h, c = (x.new_zeros(count, len(x), width) for width in widths)
        else:
            sequences.check_state(type(self).__name__, tuple(hx), count, widths)
            h, c = (part if sequences.batched else part.unsqueeze(1) for part in hx)
        return h, c.to(torch.promote_types(c.dtype, torch.float32))
