"""Linear layers with stochastic weights."""

from torch import Tensor, nn

from ..errors import InvalidInput
from ..ops.linear import Linear as LinearOp
from .base import Perturbed


class Linear(Perturbed, nn.Linear):
    """`torch.nn.Linear` whose weight (and bias, if named) is perturbed for each example."""

    torch_type = nn.Linear
    default = ("weight",)
    optional = ("bias",)

    def forward(self, input: Tensor) -> Tensor:
        if not self.noisy:
            return nn.Linear.forward(self, input)
        if input.dim() == 0 or input.shape[-1] != self.in_features:
            raise InvalidInput(
                f"{self.label}: input of shape {tuple(input.shape)}; expected (…, {self.in_features}): its last "
                f"dimension is in_features={self.in_features}."
            )
        batch_dim = self.plan.batch_dim
        batched = input.dim() > batch_dim + 1
        x = input.movedim(batch_dim, 0) if batched else input.unsqueeze(0)
        noise = self.perturbations(x, self.compute_dtype(input, self.weight))
        y = noise.affine(LinearOp(self.in_features, self.out_features), x)
        return y.movedim(0, batch_dim) if batched else y.squeeze(0)
