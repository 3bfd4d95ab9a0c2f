"""Layers of other libraries. None of those libraries is imported: a layer is recognised by the name of its class."""

from typing import Any

from torch import Tensor

from ..ops.turned import Turned
from .base import Perturbed
from .call import is_noisy, perturbations
from .derived import Derived
from .inputs import compute_dtype, rows_back, rows_first
from .layers import parameter_of


class Conv1D(Derived, default=("weight",), optional=("bias",), reads_itself=True):
    """Mixed into transformers' `Conv1D`, before it: a linear layer whose weight is stored (in, out).

    Its own forward folds tokens into the batch, which hides the examples.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not is_noisy(self):
            plain: Any = super()
            return plain.forward(x)
        rows, batch_dim = rows_first(self, x, 1)
        weight = parameter_of(self, "weight")
        noise = perturbations(self, rows, compute_dtype(self, x, weight))
        return rows_back(noise.affine(Turned(*weight.shape), rows), batch_dim)


MIXINS: dict[str, type[Perturbed]] = {"transformers.pytorch_utils.Conv1D": Conv1D}

# Modules that only read their own weights, so that noisy reads are all they need.
READ_BY_DEFAULT = frozenset({"torch_geometric.nn.dense.linear.Linear"})
