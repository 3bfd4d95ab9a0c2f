"""One layer under test: its outputs over many draws, and those of the plain layer under explicit weights."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..errors import NonFinite
from ._claim import Call, Claim, tensor_of
from ._statistics import ROUNDING

MISSING_LAW = "Give a Claim with plain and spread."
MAX_OUTPUTS = 128  # compared outputs of one example
MAX_ENTRIES = 64  # compared weights of one Parameter
MAX_BASIS = 32  # inputs with a single nonzero feature


@dataclass(frozen=True)
class Trial:
    """A layer under test."""

    call: Call
    x: Tensor  # (N, …)
    claim: Claim
    positions: tuple[int, ...]  # dimensions of x and y that run over tokens, pixels or time steps
    draws: int
    error_rate: float  # of each check

    def output(self, x: Tensor) -> Tensor:
        """Return the output of one call, (N, …)."""
        return finite(tensor_of(self.call(x)))

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of many calls, (draws, N, outputs), in float64."""
        return self._many(lambda: self.output(x), self.draws)

    def brute_force(self, x: Tensor, draws: int | None = None) -> Tensor:
        """Return the outputs under explicit weights, (draws, N, outputs). In one draw all examples share a weight.

        Quantities of single examples have the distribution that the claim gives them; different examples correlate.
        """
        return self._many(lambda: self.claim.run(self.claim.draw(), x), self.draws if draws is None else draws)

    def _many(self, call: Callable[[], Tensor], draws: int) -> Tensor:
        with torch.no_grad():
            first = spaced(call().double().flatten(1))
            return torch.stack([first, *(spaced(call().double().flatten(1)) for _ in range(draws - 1))])

    @cached_property
    def pilot(self) -> Tensor:
        """Explicit draws that only choose and scale statistics, and are in no sample that is compared."""
        return self.brute_force(self.x, max(self.draws // 4, 50))

    @cached_property
    def weight_noise(self) -> dict[str, Tensor]:
        """Name → weights less their mean, over many calls, (draws, N, entries)."""
        assert self.claim.weights is not None
        found: dict[str, list[Tensor]] = {name: [] for name in self.claim.spread}
        with torch.no_grad():
            means = self.claim.means()
            for _ in range(self.draws):
                _, weights = self.claim.weights(self.x)
                for name, rows in found.items():
                    rows.append(spaced((weights[name] - means[name]).double().flatten(1), MAX_ENTRIES))
        return {name: torch.stack(rows) for name, rows in found.items()}

    @cached_property
    def marginals(self) -> tuple[Tensor, Tensor, Tensor, str]:
        """What is seen and what brute force gives, both (draws, quantities); the size of the noise; what they are."""
        if self.claim.weights is None:
            x = self.basis()
            scale = self.brute_force(x, max(self.draws // 4, 50)).std(0).flatten()
            seen, truth, what = self.outputs(x).flatten(1), self.brute_force(x).flatten(1), "outputs"
        else:
            spreads = {name: spread.detach().double() for name, spread in self.claim.spreads().items()}
            scale, truth = (
                torch.cat([spaced(value.flatten(1), MAX_ENTRIES).repeat(1, len(self.x)) for value in values], 1)
                for values in (
                    [spread[None] for spread in spreads.values()],
                    [
                        torch.stack([s * self.claim.standard_noise(name, s) for _ in range(self.draws)])
                        for name, s in spreads.items()
                    ],
                )
            )
            scale, what = scale[0], "weights"
            seen = torch.cat([noise.flatten(1) for noise in self.weight_noise.values()], 1)
        # A quantity that has no noise may still differ by the rounding of its dtype.
        eps = max((torch.finfo(p.dtype).eps for p in self.claim.means().values()), default=0.0)
        floor = max(1e-3 * float(scale.max()), 4 * eps / ROUNDING * float(truth.abs().max()), 1e-30)
        return seen, truth, scale.clamp(min=floor), what

    @cached_property
    def marginal_rows(self) -> int:
        """Number of examples whose quantities `marginals` has."""
        return len(self.x if self.claim.weights is not None else self.basis())

    @cached_property
    def alike(self) -> Tensor:
        """The input with the same values at every position."""
        x = self.x
        for dim in self.positions:
            x = x.narrow(dim, 0, 1).expand(x.shape)
        return x.contiguous()

    @cached_property
    def is_linear(self) -> bool:
        """Whether the plain layer is linear in the weights that have noise. Assumed if there is no plain layer."""
        if not self.claim.has_law:
            return True
        with torch.no_grad():
            means, steps = self.claim.means(), self.claim.draw()
            steps = {name: steps[name] - means[name] for name in self.claim.spread}
            start, once, doubled = (
                self.claim.run(means | {name: means[name] + k * step for name, step in steps.items()}, self.x).double()
                for k in (0, 1, 2)
            )
        return bool((doubled - 2 * once + start).abs().max() <= 10 * ROUNDING * (once - start).abs().max() + 1e-5)

    def basis(self) -> Tensor:
        """Return x with further rows, each of which has one nonzero feature and so shows single weights."""
        if not self.x.is_floating_point():
            return self.x
        unit_rows = self.x.new_zeros(min(self.x[0].numel(), MAX_BASIS), self.x[0].numel())
        columns = torch.linspace(0, unit_rows.shape[1] - 1, len(unit_rows)).round().long()
        unit_rows[torch.arange(len(unit_rows)), columns] = 1.0
        return torch.cat([self.x, unit_rows.view(len(unit_rows), *self.x.shape[1:])])


def finite(y: Tensor) -> Tensor:
    """Return an output, or refuse it."""
    if not bool(y.isfinite().all()):
        raise NonFinite(f"The layer returned NaN or infinite values in an output of shape {tuple(y.shape)}.")
    return y


def spaced(rows: Tensor, most: int = MAX_OUTPUTS) -> Tensor:
    """Return at most that many columns, evenly spaced."""
    if rows.shape[1] <= most:
        return rows
    return rows[:, torch.linspace(0, rows.shape[1] - 1, most).round().long()]
