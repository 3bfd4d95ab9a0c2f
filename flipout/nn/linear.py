"""Linear layers with stochastic weights."""

from torch import Tensor, nn

from ..errors import InvalidInput
from ..ops.linear import Linear as LinearOp
from .base import Perturbed
from .perturbations import parameter_of
from .quick import remember


class Linear(Perturbed, nn.Linear):
    """`torch.nn.Linear`, (N, …, in) → (N, …, out): an example has one weight (and bias, if named)."""

    torch_type = nn.Linear
    default = ("weight",)
    optional = ("bias",)

    def forward(self, input: Tensor) -> Tensor:
        y = self.quickly(input)
        if y is not None:
            return y
        if not self.noisy:
            return nn.Linear.forward(self, input)
        if not isinstance(input, Tensor):
            raise self.no_tensor(input)
        if input.dim() == 0 or input.shape[-1] != self.in_features:
            raise InvalidInput(
                f"{self.label}: input of shape {tuple(input.shape)}; expected (…, {self.in_features}): its last "
                f"dimension is in_features={self.in_features}."
            )
        x, batch_dim = self.rows_first(input, 1)
        weight = parameter_of(self, "weight")
        noise = self.perturbations(x, self.compute_dtype(input, weight))
        op = LinearOp(self.in_features, weight.shape[0])  # as torch, which follows a weight that was replaced
        y = noise.affine(op, x)
        if noise.made is not None and batch_dim == 0:
            remember(self, noise, op, x, y)
        return self.rows_back(y, batch_dim)
