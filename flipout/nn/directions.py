"""One layer of a recurrent net in one direction, under the draw of a call."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..ops import recurrent as ops
from ..ops.base import Flipped
from ..ops.linear import Linear
from ..ops.lstm import FlippedLSTM, PlainWeight
from ..ops.lstm_steps import Weight
from ..ops.recurrent import Scan, State
from ..schemes import Flipout
from .parameters import Perturbations

if TYPE_CHECKING:
    from .recurrent import Recurrent


class Directions:
    """Runs one layer in one direction per call. `suffix` is the end of its Parameters' names, such as _l0_reverse."""

    def __init__(self, layer: "Recurrent", noise: Perturbations) -> None:
        self.layer, self.noise, self.cell = layer, noise, layer._make_cell()

    def __call__(self, x: Tensor, suffix: str, state: State, reverse: bool, alive: Tensor | None):
        if not self.layer.proj_size and ops.takes_input(self.cell, x, alive):
            outputs = self._written_out(x, suffix, state, reverse)
            if outputs is not None:
                return outputs
        rows, width = self.cell.gates * self.layer.hidden_size, state[0].shape[-1]
        op, biases = Linear(x.shape[-1], rows), [f"bias_hh{suffix}"]
        if self.cell.adds:  # both biases go to one of the products
            gates = self.noise.product(op, x, f"weight_ih{suffix}", None)
            biases.append(f"bias_ih{suffix}")
        else:
            gates = self.noise.affine(op, x, f"weight_ih{suffix}", f"bias_ih{suffix}")
        product = self.noise.bound(Linear(width, rows), f"weight_hh{suffix}", *biases)
        project = None
        if self.layer.proj_size:
            project = self.noise.bound(Linear(self.layer.hidden_size, width), f"weight_hr{suffix}")
        return Scan(self.cell, product, project, reverse)(gates, state, alive)

    def _written_out(self, x: Tensor, suffix: str, state: State, reverse: bool) -> tuple[Tensor, State] | None:
        """Run `FlippedLSTM`, input products included; return None if it does not serve these weights."""
        biases = [f"{name}{suffix}" for name in ("bias_ih", "bias_hh")] if self.layer.bias else []
        if f"weight_hh{suffix}" not in self.noise or any(name in self.noise for name in biases):
            return None
        of_input, of_state = (self._weight(f"{name}{suffix}", len(x)) for name in ("weight_ih", "weight_hh"))
        if of_input is None or of_state is None:
            return None
        bias = torch.add(*(getattr(self.layer, name).to(self.noise.dtype) for name in biases)) if biases else None
        y, *last = FlippedLSTM.apply(x, *state, *of_input, *of_state, bias, reverse)  # pyright: ignore[reportGeneralTypeIssues]
        return y, tuple(last)

    def _weight(self, name: str, rows: int) -> Weight | PlainWeight | None:
        """Return a weight with its noise, or None if it has another scheme, several ΔŴ, or several rows per example."""
        noise, scheme = self.noise, self.noise.scheme
        if name not in noise:
            return PlainWeight(getattr(self.layer, name).to(noise.dtype))
        if not isinstance(scheme, Flipout) or scheme.perturbation_dtype is not None or noise.session.formed is not None:
            return None
        flipped = None if scheme.reuse_signs else self._made_at_once(name, rows)
        if flipped is not None:
            return flipped
        outputs, inputs = getattr(self.layer, name).shape
        product = noise.bound(Linear(inputs, outputs), name)
        if not isinstance(product, Flipped) or product.delta_op is not product.op or len(product.r) != rows:
            return None
        return Weight(product.mean, product.delta, product.r, product.s)

    def _made_at_once(self, name: str, rows: int) -> Weight | None:
        """Return a weight with the signs that were made at once for the whole draw, or None if there are none."""
        at_once, key = self.noise.at_once, self.noise.keys[name]
        if at_once is None or at_once.bases > 1:
            return None
        r, s = at_once.signs.get((key, 0)), at_once.signs.get((key, 1))
        if r is None or s is None or len(r) != rows or (r.shape[1], s.shape[1]) != getattr(self.layer, name).shape:
            return None
        p = self.noise.matrix(name)
        return Weight(p.mean, p.delta(at_once.base), -r if p.draw.antithetic else r, s)
