"""The posterior of a model: q = N(W̄, spread²) of every Parameter whose spread is learned, each of them once."""

from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor, nn

from .._shards import Shard, held_here
from ..distributions import LearnedDistribution
from ..distributions.prior import Prior
from ..errors import InvalidArgument, NotPerturbed, Unsupported
from ..nn.base import Perturbed
from ..nn.companions import companion_names, learned_companions, prior_numbers
from ..nn.layers import parameter_of
from ..nn.models import all_layers, names_in
from ..nn.switches import idle_parameters

CONVERT = "flipout.perturb(model, flipout.MeanField(prior=flipout.bayes.Normal(0.0, 1.0)))"


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of one Parameter, in float32 or a wider dtype.

    If the Parameter is sharded over ranks, all tensors are this rank's shard.
    """

    name: str  # in the model
    layer: Perturbed
    local: str  # its name in the layer
    distribution: LearnedDistribution
    parameter: Tensor
    shard: Shard | None

    @property
    def prior(self) -> Prior | None:
        prior = self.distribution.prior
        assert prior is None or isinstance(prior, Prior)
        return prior

    @property
    def dtype(self) -> torch.dtype:
        return torch.promote_types(self.parameter.dtype, torch.float32)

    @property
    def mean(self) -> Tensor:
        local = self.parameter if self.shard is None else held_here(self.parameter)
        return local.to(self.dtype)

    @property
    def std(self) -> Tensor:
        """The standard deviation without the directions, of the mean's shape."""
        mean = self.mean
        companions = learned_companions(self.layer, self.local).items()
        learned = {suffix: self._part(value).to(mean.dtype) for suffix, value in companions}
        return self.distribution.spread(mean, **learned).expand_as(mean)

    @property
    def factors(self) -> Tensor | None:
        """The directions of a learned covariance, (rank, *shape), None if the weights are independent."""
        learned = learned_companions(self.layer, self.local)
        factors = self.distribution.factors(**learned)
        return None if factors is None else factors.to(self.dtype)

    @property
    def marginal_std(self) -> Tensor:
        """The standard deviation of each weight, with its directions."""
        std, factors = self.std, self.factors
        return std if factors is None else (std.square() + factors.square().sum(0)).sqrt()

    @property
    def prior_numbers(self) -> dict[str, Tensor]:
        device, numbers = self.parameter.device, prior_numbers(self.layer, self.local)
        return {name: self._part(value).to(device, self.dtype) for name, value in numbers.items()}

    @property
    def quiet(self) -> Tensor | None:
        """Return a mask of the weights that are never perturbed, broadcastable to the mean; None if there are none."""
        row, parameter = self.layer.flipout.quiet_rows.get(self.local), self.parameter
        if row is None:
            return None
        rows = torch.arange(parameter.shape[0], device=parameter.device)
        return self._part((rows == row).view(-1, *[1] * (parameter.dim() - 1)))

    def _part(self, value: Tensor) -> Tensor:
        """Return this rank's part of a tensor that broadcasts to the Parameter."""
        return value if self.shard is None else self.shard.part(value)


def posteriors(model: nn.Module) -> list[Posterior]:
    """List the posteriors of a model. Tied Parameters appear once, and those of adapters that are off do not."""
    modules, layers = all_layers(model, CONVERT)
    names, idle = names_in(modules), idle_parameters(modules.values())
    found: dict[int, Posterior] = {}
    for label, layer in layers.items():
        for local, distribution in layer.flipout.distributions.items():
            if not isinstance(distribution, LearnedDistribution) or (layer, local) in idle:
                continue
            if not distribution.gaussian:
                raise Unsupported(
                    f"{label}.{local}: {distribution} is learned but not Gaussian; only a Gaussian posterior has a KL "
                    "here. Use MeanField."
                )
            parameter = parameter_of(layer, local)
            name = names.get(id(parameter), f"{label}.{local}")
            posterior = Posterior(name, layer, local, distribution, parameter, Shard.of(parameter))
            first = found.setdefault(id(parameter), posterior)
            if first is not posterior and _ids_beside(first) != _ids_beside(posterior):
                raise InvalidArgument(
                    f"{first.name} and {label}.{local} are one Parameter with two learned spreads, so it has no single "
                    "posterior. Tie the spreads too, or tie the weights before flipout.perturb(model, …)."
                )
    if not found and not idle:
        fixed = sorted({str(noise) for layer in layers.values() for noise in layer.flipout.distributions.values()})
        raise NotPerturbed(
            f"{type(model).__name__} has no learned spreads, so it has no posterior: its noise is fixed, "
            f"{', '.join(fixed[:3])}. Take it back first with flipout.freeze(model), then convert with {CONVERT}."
        )
    return list(found.values())


def _ids_beside(posterior: Posterior) -> list[int]:
    """Return the ids of the Parameters beside it. Buffers do not count: they are copied when a model moves."""
    layer = posterior.layer
    values = (attrgetter(name)(layer) for name in companion_names(layer, posterior.local))
    return [id(value) for value in values if isinstance(value, nn.Parameter)]
