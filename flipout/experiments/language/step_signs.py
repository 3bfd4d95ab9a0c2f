"""An LSTM whose signs change at every time step: a reading of "WD + flipout" that the library itself refuses.

Its weights are those of no single sample: a sequence has others at each step. So it is kept here, beside the tables.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class StepSignsLSTM(nn.LSTM):
    """One batch-first layer with DropConnect(0.5) on its hidden-to-hidden weight, flipped anew at each step.

    In training, a mask ΔW = W ∘ ±1 is drawn for the call, and step t of sequence n multiplies with W + ΔW ∘ r_nt s_ntᵀ.
    In eval mode it is the plain layer.
    """

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if not self.training:
            return super().forward(x, state)
        input_weight, weight, input_bias, bias = self.all_weights[0]
        delta = weight * random_signs(weight)
        inputs = linear(x, input_weight, input_bias + bias)
        (h, c), outputs = (part[0] for part in state), []
        for gates in inputs.unbind(1):
            s, r = random_signs(h), random_signs(gates)
            gates = gates + linear(h, weight) + r * linear(s * h, delta)
            i, f, g, o = gates.chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, 1), (h.unsqueeze(0), c.unsqueeze(0))


def random_signs(like: Tensor) -> Tensor:
    """Return ±1 in the shape, dtype and device of a tensor."""
    return torch.empty_like(like, requires_grad=False).bernoulli_(0.5) * 2 - 1
