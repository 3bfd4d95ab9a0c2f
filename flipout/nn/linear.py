"""Linear layers with stochastic weights."""

from torch import Tensor, nn

from ..errors import InvalidInput
from ..ops.linear import Linear as LinearOp
from . import quick
from .base import Perturbed
from .call import is_noisy, perturbations
from .inputs import compute_dtype, not_a_tensor, rows_back, rows_first
from .layers import label_of, parameter_of


class Linear(Perturbed, nn.Linear, default=("weight",), optional=("bias",)):
    """`torch.nn.Linear`, (N, …, in) → (N, …, out): an example has one weight (and bias, if named)."""

    def forward(self, input: Tensor) -> Tensor:
        y = quick.call(self, input)
        if y is not None:
            return y
        if not is_noisy(self):
            return nn.Linear.forward(self, input)
        if not isinstance(input, Tensor):
            raise not_a_tensor(self, input)
        if input.dim() == 0 or input.shape[-1] != self.in_features:
            raise InvalidInput(
                f"{label_of(self)}: input of shape {tuple(input.shape)}; expected (…, {self.in_features}): its last "
                f"dimension is in_features={self.in_features}."
            )
        x, batch_dim = rows_first(self, input, 1)
        weight = parameter_of(self, "weight")
        noise = perturbations(self, x, compute_dtype(self, input, weight))
        op = LinearOp(self.in_features, weight.shape[0])  # as torch, which follows a weight that was replaced
        y = noise.affine(op, x)
        if noise.made is not None and batch_dim == 0:
            quick.remember(self, noise, op, x, y)
        return rows_back(y, batch_dim)
