"""Linear layers with stochastic weights."""

from torch import Tensor, nn

from ..errors import InvalidInput
from ..ops.linear import Linear as LinearOp
from .base import Perturbed
from .call import is_noisy, perturbations
from .inputs import compute_dtype, not_a_tensor, rows_back, rows_first
from .layers import label_of, parameter_of
from .remembered_call import call_as_remembered, remember_call


class Linear(Perturbed, nn.Linear, default=("weight",), optional=("bias",)):
    """`torch.nn.Linear` with noise: (N, …, in) → (N, …, out), one weight per example.

    The bias has no noise unless `where` selects it. Arguments are torch's own and, by keyword, `distribution`, `scheme`
    and `where`, as in every layer of `flipout.nn`.

    Example:
        >>> layer = flipout.nn.Linear(784, 512, distribution=flipout.MeanField())
        >>> y = layer(torch.randn(32, 784))  # 32 examples, 32 weights
    """

    def forward(self, input: Tensor) -> Tensor:
        y = call_as_remembered(self, input)
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
        op = LinearOp(self.in_features, weight.shape[0])  # not out_features: torch follows a replaced weight too
        y = noise.affine(op, x)
        if batch_dim == 0:
            remember_call(self, noise, op, x, y)
        return rows_back(y, batch_dim)
