"""A step that a non-finite gradient cannot spoil."""

import warnings
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .._shards import held_here
from ..errors import InvalidArgument


class Skipped(NamedTuple):
    """A step that was not taken, and why."""

    step: int  # counted from 0, those that were skipped too
    loss: float | None  # None where it was not given
    parameters: tuple[str, ...]  # those whose gradient is not finite


class Guard:
    """`guard.step(loss)` instead of `optimizer.step()`.

    Where the loss, or any gradient, is infinite or not a number, Parameters and optimiser stay as they are; the step is
    warned about, returned and kept in `skipped`. With several processes all of them skip together.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module | None = None) -> None:
        """`model` gives the Parameters their names."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InvalidArgument(f"Guard({optimizer!r}): expected the optimiser: Guard(optimizer, model).")
        self.optimizer = optimizer
        self.skipped: list[Skipped] = []
        self._names = {} if model is None else {id(p): name for name, p in model.named_parameters()}
        given = {id(p) for group in optimizer.param_groups for p in group["params"]}
        missing = [name for key, name in self._names.items() if name.endswith("_rho") and key not in given]
        if missing:
            warnings.warn(
                f"Guard: the optimiser does not have {missing[0]}"
                f"{f' and {len(missing) - 1} more' if missing[1:] else ''}, so these spreads stay as they are. Make "
                "the optimiser after flipout.perturb(model, …), from elbo.parameters().",
                RuntimeWarning,
                stacklevel=2,
            )
        self._steps = 0

    @torch.no_grad()
    def step(self, loss: Tensor | None = None) -> Skipped | None:
        """One step of the optimiser, or what kept it from that. The loss has shape ()."""
        number, self._steps = self._steps, self._steps + 1
        gradients = {
            self._names.get(id(p), f"group {i}, Parameter {j}"): p.grad
            for i, group in enumerate(self.optimizer.param_groups)
            for j, p in enumerate(group["params"])
            if p.grad is not None
        }
        if loss is not None and not isinstance(loss, Tensor):
            raise InvalidArgument(f"guard.step of {type(loss)}: expected the loss, a tensor: guard.step(terms.loss).")
        gradients = {name: held_here(g.coalesce().values() if g.is_sparse else g) for name, g in gradients.items()}
        checked = [*gradients.values(), *([] if loss is None else [held_here(loss)])]
        if not checked or not self._anywhere([~tensor.isfinite().all() for tensor in checked]):
            self.optimizer.step()
            return None
        bad = tuple(name for name, gradient in gradients.items() if not bool(gradient.isfinite().all()))
        made = Skipped(number, None if loss is None else loss.item(), bad)
        self.skipped.append(made)
        warnings.warn(
            f"Step {number} was skipped, the Parameters are as they were: "
            f"{'' if made.loss is None else f'the loss is {made.loss}, '}the gradient is not finite in "
            f"{', '.join(bad) or 'no Parameter of this process'}.",
            RuntimeWarning,
            stacklevel=3,
        )
        return made

    def _anywhere(self, found: list[Tensor]) -> bool:
        """Whether any is true, in any process."""
        some = torch.stack([flag.to(found[0].device) for flag in found]).any().to(torch.uint8)
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(some, dist.ReduceOp.MAX)
        return bool(some)
