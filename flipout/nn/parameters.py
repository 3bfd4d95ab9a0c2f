"""A layer's Parameters as one call sees them."""

from dataclasses import replace
from functools import partial, reduce
from operator import attrgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .._shards import sharded
from ..distributions.scaled import is_spread_fused
from ..draws.at_once import AtOnce
from ..draws.passes import Pass
from ..errors import Unsupported, WeightReused
from ..ops.base import Op, Straight, is_tracked
from ..perturbation import Part, Perturbation
from ..schemes.base import BoundProduct, Scheme, add_by_example
from .companions import learned_companions
from .declaration import sign_groups
from .layers import label_of, parameter_of
from .plan import Keys
from .spans import recomputing

if TYPE_CHECKING:
    from .base import Perturbed


class Perturbations:
    """A layer's Parameters under the draw of one call."""

    __slots__ = ("distributions", "draw", "dtype", "keys", "layer", "made", "scheme", "session")

    def __init__(
        self,
        layer: "Perturbed",
        session: Pass,
        keys: Keys,
        dtype: torch.dtype,
        scheme: Scheme,
        made: AtOnce | None = None,
    ) -> None:
        self.layer, self.session, self.keys, self.dtype, self.scheme = layer, session, keys, dtype, scheme
        self.draw = session.draw
        self.made = made  # what was made at once for the whole draw
        self.distributions = layer.flipout.distributions

    def __contains__(self, name: str) -> bool:
        return name in self.distributions

    def __getitem__(self, name: str) -> Perturbation:
        assert self.session.examples is not None
        return self.under(name, self.session.offset, self.session.examples)

    def matrix(self, name: str, part: Part | None = None) -> Perturbation:
        """A Parameter, or a part of its rows, that this call multiplies with or looks up in."""
        session = self.session
        assert session.examples is not None
        p = self.under(name, session.offset, session.examples)
        if self.scheme.once and session.uses is not None and not recomputing():
            if (p.key, part) in session.uses:
                raise WeightReused(
                    f"{label_of(self.layer)}: called twice in one forward pass. Local reparameterisation would "
                    f"sample its {name} twice, which is never one weight per example. Use scheme='flipout'."
                )
            session.uses.add((p.key, part))
        return replace(p, part=part) if part else p

    def under(self, name: str, first: int, examples: int) -> Perturbation:
        """A Parameter as the examples `first` onward see it."""
        layer, plan = self.layer, self.layer.flipout
        parameter, distribution = parameter_of(layer, name), self.distributions[name]
        if type(parameter) is not nn.Parameter and sharded(parameter):
            raise Unsupported(
                f"{label_of(layer)}: its {name} is a DTensor here. Under fully_shard, call the module that was "
                "sharded, or unshard() it first; tensor-parallel weights (parallelize_module) cannot be perturbed "
                "yet: leave them out with `where`."
            )
        learned = learned_companions(layer, name)
        key, quiet = self.keys[name], plan.quiet_rows.get(name)
        about = (self.draw, key, first, examples, self.dtype)
        noise = None
        if self.made is not None and parameter.dtype == self.dtype:
            noise, bases = self.made.noise.get(key), self.made.bases
            shape = parameter.shape if bases == 1 else (bases, *parameter.shape)
            if noise is not None and noise.shape != shape:  # its data was replaced
                noise = plan.alone = None
                for root, _ in plan.roots:
                    root.forget_roster()
        elif quiet is None:
            source = distribution.source(**learned)
            if is_spread_fused(source, parameter.shape):
                return Perturbation(parameter, None, distribution, *about, source=source)
        spread = distribution.spread(parameter, **learned)
        if quiet is not None:
            is_quiet = torch.arange(parameter.shape[0], device=parameter.device) == quiet
            spread = torch.where(is_quiet.unsqueeze(1), 0, spread)
        p = Perturbation(parameter, spread, distribution, *about)
        if self.made is None:
            return p
        if noise is not None:
            p.noise, p.base, p.bases = noise, self.made.base, self.made.bases
        if not (self.scheme.reuse_signs or is_tracked()):  # a backward pass would keep them
            p.drawn = self.made
        return p

    def product(self, op: Op, x: Tensor, weight: str, bias: Tensor | None = None, part: Part | None = None) -> Tensor:
        """Return the op's output (N, …) for x (N, …), each example under its own weight.

        Args:
            op: The arithmetic, such as `flipout.ops.Linear(in_features, out_features)`.
            x: The input, rows first.
            weight: The name of the layer's weight. A weight without noise is used plain.
            bias: A tensor to add, without noise. See `affine` for a bias with noise.
            part: Some rows of a weight that packs several matrices.
        """
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
        if bias is not None and bias.dtype != self.dtype:
            bias = bias.to(self.dtype)
        if weight in self.distributions:
            if self.session.formed is not None and part is None:
                return self._with_formed(op, weight, bias)(x)
            p = self.matrix(weight, part)
            if self.made is not None:
                made = self.scheme.small(op, x, bias, p, self.made)
                if made is not None:
                    return made
            return self.scheme.product(op, x, bias, p)
        mean = parameter_of(self.layer, weight).to(self.dtype)
        return op.apply(x, mean.narrow(0, part.start, part.length) if part else mean, bias)

    def bound(self, op: Op, weight: str, *biases: str) -> BoundProduct:
        """Return a function that does `product` for many inputs (N, …) under this draw, such as time steps.

        Biases are names; each may be perturbed, plain or missing.
        """
        own = [getattr(self.layer, bias, None) for bias in biases if bias not in self]
        given = [bias.to(self.dtype) for bias in own if bias is not None]
        plain = reduce(torch.add, given) if given else None
        if weight in self and self.session.formed is not None:
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
        made = self.scheme.vector(self[name]) if self.session.formed is None else self.formed(name)
        return made if made.shape[0] == 1 or self.draw.rows == 1 else made.repeat_interleave(self.draw.rows, 0)

    def formed(self, name: str) -> Tensor:
        """(examples, *shape): the Parameter that each example sees, made by the first of the calls that share it."""
        kept, key = self.session.formed, (self.keys[name], sign_groups(self.layer, name), self.dtype)
        assert kept is not None
        if key not in kept:
            kept[key] = self.scheme.weights(self[name], sign_groups(self.layer, name))
        return kept[key]

    def _with_formed(self, op: Op, weight: str, bias: Tensor | None) -> BoundProduct:
        assert self.session.examples is not None
        return partial(op.batched(self.session.examples).apply, weight=self.formed(weight), bias=bias)

    def affine(self, op: Op, x: Tensor, weight: str = "weight", bias: str = "bias") -> Tensor:
        """Return the op's output (N, …) for x (N, …) with a weight and a bias of the layer.

        Either may be perturbed or plain, and the bias may be missing.
        """
        if bias not in self.distributions:
            parameters = self.layer._parameters
            plain = parameters[bias] if bias in parameters else getattr(self.layer, bias, None)
            return self.product(op, x, weight, plain)
        may_form = op.formed_from is not None and self.session.formed is None and not is_tracked()
        if may_form and weight in self.distributions and x.dtype == self.dtype:
            y = self.scheme.affine(op, x, self[weight], self[bias])
            if y is not None:
                return y
        y = self.product(op, x, weight, None)
        if self.session.formed is not None:
            return add_by_example(y, self.formed(bias), op.out_dim)
        return self.scheme.add_vector(y, self[bias], op.out_dim)
