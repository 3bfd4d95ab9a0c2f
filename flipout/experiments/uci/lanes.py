"""Many networks of one shape, trained side by side: `torch.func.vmap` over their stacked Parameters.

Each network is a lane. A lane belongs to a split of the data; splits run fastest, so that lane = copy · splits + split.
Copies are the members of an ensemble or the candidates of a search. All lanes share the noise of a pass, as they share
the row numbers of a batch. Drawing once for all of them halves the time, and each lane keeps its distribution.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from ..running.experiment import check_least
from .networks import Objective


@dataclass(frozen=True)
class Training:
    """How every network is trained, whatever its method."""

    steps: int = 2000
    batch: int = 2000  # examples of a step, over all splits
    learning_rate: float = 0.01  # of Adam; falls linearly to 0

    def __post_init__(self) -> None:
        check_least(self, "training.", steps=1, batch=1)


@dataclass(frozen=True, eq=False)
class Lanes:
    """A stack of networks: one module, and the numbers of all."""

    module: Objective
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @classmethod
    def of(cls, objectives: Sequence[Objective]) -> "Lanes":
        parameters, buffers = stack_module_state(list(objectives))
        return cls(objectives[0], parameters, buffers)

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each lane on its own batch (lanes, examples, …)."""

        def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return functional_call(self.module, (parameters, buffers), (x, y))

        return vmap(loss, randomness="same")(self.parameters, self.buffers, x, y)

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs (lanes, examples) under one draw of the noise."""
        start, numbers = "network.", self.parameters | self.buffers
        inner = {name.removeprefix(start): value for name, value in numbers.items() if name.startswith(start)}

        def output(numbers: dict[str, Tensor], x: Tensor) -> Tensor:
            return functional_call(self.module.network, numbers, (x,))

        return vmap(output, randomness="same")(inner, x)

    @property
    def noise(self) -> Tensor:
        """The standard deviation (lanes,) of the targets' noise."""
        return self.parameters["likelihood.log_std"].detach().exp()


def train(
    lanes: Lanes, x: Tensor, y: Tensor, training: Training, rows: torch.Generator, watch: Callable[[int], None]
) -> None:
    """Train all lanes in place on x (splits, examples, features) and y (splits, examples).

    Args:
        lanes: The networks.
        x: Standardised inputs of each split.
        y: Standardised targets of each split.
        training: How long, and how fast.
        rows: Draws the rows of a batch, with replacement. All lanes use the same row numbers.
        watch: Called with the number of finished steps, before the first step and after each.
    """
    splits, examples = y.shape
    copies = lanes.noise.numel() // splits
    x, y = x.transpose(0, 1).contiguous(), y.transpose(0, 1).contiguous()  # so that a row is contiguous
    optimizer = torch.optim.Adam(lanes.parameters.values(), training.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, training.steps)
    batch = max(training.batch // splits, 1)
    watch(0)
    for step in range(training.steps):
        chosen = torch.randint(examples, (batch,), generator=rows).to(x.device)
        losses = lanes.losses(copied(x[chosen].transpose(0, 1), copies), copied(y[chosen].transpose(0, 1), copies))
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        schedule.step()
        watch(step + 1)


def copied(values: Tensor, copies: int) -> Tensor:
    """Repeat the values of each split (splits, …) for all copies: (copies · splits, …)."""
    return values.expand(copies, *values.shape).flatten(0, 1)
