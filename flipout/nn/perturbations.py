"""A layer's Parameters as one call sees them."""

from dataclasses import replace
from functools import partial, reduce
from operator import attrgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..distributions.base import left_to_kernels
from ..draw import Draw
from ..draws.at_once import AtOnce
from ..errors import Unsupported, WeightReused
from ..ops.base import Op, Straight
from ..perturbation import Part, Perturbation
from ..schemes.base import Product, Scheme, added
from ..shards import sharded
from .plan import Keys
from .spans import recomputing

if TYPE_CHECKING:
    from .base import Perturbed


def parameter_of(layer: nn.Module, name: str) -> Tensor:
    """The Parameter of that (dotted) name, or what stands in for it."""
    try:
        parameter = layer._parameters[name]
    except KeyError:
        parameter = None
    return attrgetter(name)(layer) if parameter is None else parameter


class Perturbations:
    """A layer's Parameters under the draw of one call."""

    __slots__ = ("distributions", "draw", "dtype", "keys", "layer", "made", "scheme")

    def __init__(
        self,
        layer: "Perturbed",
        draw: Draw,
        keys: Keys,
        dtype: torch.dtype,
        scheme: Scheme,
        made: AtOnce | None = None,
    ) -> None:
        self.layer, self.draw, self.keys, self.dtype, self.scheme = layer, draw, keys, dtype, scheme
        self.made = made  # what was made at once for the whole draw
        self.distributions = layer.plan.distributions

    def __contains__(self, name: str) -> bool:
        return name in self.distributions

    def __getitem__(self, name: str) -> Perturbation:
        assert self.draw.examples is not None
        return self.under(name, self.draw.offset, self.draw.examples)

    def matrix(self, name: str, part: Part | None = None) -> Perturbation:
        """A Parameter, or a part of its rows, that this call multiplies with or looks up in."""
        draw = self.draw
        assert draw.examples is not None
        p = self.under(name, draw.first + draw.before, draw.examples)
        if self.scheme.once and draw.uses is not None and not recomputing():
            if (p.key, part) in draw.uses:
                raise WeightReused(
                    f"{self.layer.label}: called twice in one forward pass. Local reparameterisation would sample its "
                    f"{name} twice, which is never one weight per example. Use scheme='flipout'."
                )
            draw.uses.add((p.key, part))
        return replace(p, part=part) if part else p

    def under(self, name: str, first: int, examples: int) -> Perturbation:
        """A Parameter as the examples `first` onward see it."""
        layer, plan = self.layer, self.layer.plan
        parameter, distribution = parameter_of(layer, name), self.distributions[name]
        if type(parameter) is not nn.Parameter and sharded(parameter):
            raise Unsupported(
                f"{layer.label}: its {name} is a DTensor here. Under fully_shard, call the module that was sharded, or "
                "unshard() it first; tensor-parallel weights (parallelize_module) cannot be perturbed yet: leave them "
                "out with `where`."
            )
        learned = layer.learned_beside(name)
        key, quiet = self.keys[name], plan.quiet_rows.get(name)
        about = (self.draw, key, first, examples, self.dtype)
        noise = None
        if self.made is not None and parameter.dtype == self.dtype:
            noise = self.made.noise.get(key)
            if noise is not None and noise.shape[self.made.bases > 1 :] != parameter.shape:  # its data was replaced
                noise = plan.alone = None
                for root, _ in plan.roots:
                    root.forget_roster()
        elif quiet is None:
            source = distribution.source(**learned)
            if left_to_kernels(source, parameter.shape):
                return Perturbation(parameter, None, distribution, *about, source=source)
        spread = distribution.spread(parameter, **learned)
        if quiet is not None:
            is_quiet = torch.arange(parameter.shape[0], device=parameter.device) == quiet
            spread = torch.where(is_quiet.unsqueeze(1), 0, spread)
        base = 0 if noise is None or self.made is None else self.made.base
        return Perturbation(parameter, spread, distribution, *about, noise=noise, base=base)

    def product(self, op: Op, x: Tensor, weight: str, bias: Tensor | None, part: Part | None = None) -> Tensor:
        """op for each example under its own weight, where the layer perturbs that; the bias is added as it is."""
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
        if bias is not None and bias.dtype != self.dtype:
            bias = bias.to(self.dtype)
        if weight in self.distributions:
            if self.draw.formed is not None and part is None:
                return self._with_formed(op, weight, bias)(x)
            p = self.matrix(weight, part)
            if self.made is not None:
                made = self.scheme.small(op, x, bias, p, self.made)
                if made is not None:
                    return made
            return self.scheme.product(op, x, bias, p)
        mean = parameter_of(self.layer, weight).to(self.dtype)
        return op.apply(x, mean.narrow(0, part.start, part.length) if part else mean, bias)

    def bound(self, op: Op, weight: str, *biases: str) -> Product:
        """`product` for many inputs, one after the other; biases may be perturbed or missing."""
        own = [getattr(self.layer, bias, None) for bias in biases if bias not in self]
        given = [bias.to(self.dtype) for bias in own if bias is not None]
        plain = reduce(torch.add, given) if given else None
        if weight in self and self.draw.formed is not None:
            product = self._with_formed(op, weight, plain)
        elif weight in self:
            product = self.scheme.bound(op, plain, self.matrix(weight))
        else:
            mean = attrgetter(weight)(self.layer).to(self.dtype)
            product = Straight(op, mean, plain)
        vectors = [self.vector(bias) for bias in biases if bias in self]
        if not vectors:
            return product
        vector = reduce(torch.add, vectors)
        return lambda x: product(x) + vector

    def vector(self, name: str) -> Tensor:
        """(rows or 1, *shape): the vector Parameter that each row sees."""
        if name not in self:
            return attrgetter(name)(self.layer).to(self.dtype).unsqueeze(0)
        made = self.scheme.vector(self[name]) if self.draw.formed is None else self.formed(name)
        return made if made.shape[0] == 1 or self.draw.rows == 1 else made.repeat_interleave(self.draw.rows, 0)

    def formed(self, name: str) -> Tensor:
        """(examples, *shape): the Parameter that each example sees, made by the first of the calls that share it."""
        kept, key = self.draw.formed, (self.keys[name], self.layer.groups_of(name), self.dtype)
        assert kept is not None
        if key not in kept:
            kept[key] = self.scheme.weights(self[name], self.layer.groups_of(name))
        return kept[key]

    def _with_formed(self, op: Op, weight: str, bias: Tensor | None) -> Product:
        assert self.draw.examples is not None
        return partial(op.batched(self.draw.examples).apply, weight=self.formed(weight), bias=bias)

    def affine(self, op: Op, x: Tensor, weight: str = "weight", bias: str = "bias") -> Tensor:
        """The op with a weight and a bias of the layer, either of them perturbed or not; the bias may be missing."""
        if bias not in self.distributions:
            parameters = self.layer._parameters
            plain = parameters[bias] if bias in parameters else getattr(self.layer, bias, None)
            return self.product(op, x, weight, plain)
        y = self.product(op, x, weight, None)
        if self.draw.formed is not None:
            return added(y, self.formed(bias), op.out_dim)
        return self.scheme.add_vector(y, self[bias], op.out_dim)
