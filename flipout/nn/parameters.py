"""A layer's Parameters as one call sees them."""

from dataclasses import replace
from functools import partial, reduce
from operator import attrgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .._perturbation import Part, Perturbation
from .._shards import sharded
from ..distributions.scaled import is_spread_fused
from ..draws.at_once import AtOnce
from ..draws.passes import Pass
from ..errors import Unsupported, WeightReused
from ..ops.base import Op, Straight, is_tracked
from ..schemes.base import BoundProduct, Scheme, add_by_example
from ..schemes.factors import WithFactors
from .companions import learned_companions
from .declaration import sign_groups
from .layers import label_of, parameter_of
from .plan import Keys
from .spans import is_recomputing

if TYPE_CHECKING:
    from .base import Perturbed


class Perturbations:
    """A layer's Parameters under the draw of one call."""

    __slots__ = ("at_once", "distributions", "draw", "dtype", "keys", "layer", "scheme", "session")

    def __init__(
        self,
        layer: "Perturbed",
        session: Pass,
        keys: Keys,
        dtype: torch.dtype,
        scheme: Scheme,
        at_once: AtOnce | None = None,
    ) -> None:
        self.layer, self.session, self.keys, self.dtype = layer, session, keys, dtype
        self.scheme = WithFactors(scheme) if layer.flipout.has_factors else scheme
        self.draw = session.draw
        self.at_once = at_once  # signs and noise that were drawn in one call for the whole model
        self.distributions = layer.flipout.distributions

    def __contains__(self, name: str) -> bool:
        return name in self.distributions

    def __getitem__(self, name: str) -> Perturbation:
        assert self.session.examples is not None
        return self.for_examples(name, self.session.offset, self.session.examples)

    def matrix(self, name: str, part: Part | None = None) -> Perturbation:
        """Return a matrix Parameter under the draw, or a part of its rows, and note that this call uses it.

        Args:
            name: The name of the Parameter in the layer.
            part: Some rows of a Parameter that packs several matrices.

        Raises:
            WeightReused: The scheme allows one use in a forward pass, and this is the second.
        """
        session = self.session
        assert session.examples is not None
        p = self.for_examples(name, session.offset, session.examples)
        if self.scheme.once and session.uses is not None and not is_recomputing():
            if (p.key, part) in session.uses:
                raise WeightReused(
                    f"{label_of(self.layer)}: called twice in one forward pass. Local reparameterisation would "
                    f"sample its {name} twice, which is never one weight per example. Use scheme='flipout'."
                )
            session.uses.add((p.key, part))
        return replace(p, part=part) if part else p

    def for_examples(self, name: str, first: int, examples: int) -> Perturbation:
        """Return a Parameter under the draw, for examples `first` onward.

        Args:
            name: The name of the Parameter in the layer.
            first: The index of the first example.
            examples: The number of examples.
        """
        layer, plan = self.layer, self.layer.flipout
        parameter, distribution = parameter_of(layer, name), self.distributions[name]
        if type(parameter) is not nn.Parameter and sharded(parameter):
            raise Unsupported(
                f"{label_of(layer)}: its {name} is a DTensor here. Under fully_shard, call the module that was "
                "sharded, or unshard() it first. Tensor-parallel weights (parallelize_module) cannot be perturbed "
                "yet: leave them out with `where`."
            )
        learned = learned_companions(layer, name)
        key, quiet_row = self.keys[name], plan.quiet_rows.get(name)
        place = (self.draw, key, first, examples, self.dtype)
        noise = None
        if self.at_once is not None and parameter.dtype == self.dtype:
            noise, bases = self.at_once.noise.get(key), self.at_once.bases
            shape = parameter.shape if bases == 1 else (bases, *parameter.shape)
            if noise is not None and noise.shape != shape:  # its data was replaced
                noise = plan.own_roster = None
                for root, _ in plan.roots:
                    root.forget_roster()
        elif quiet_row is None:
            source = distribution.source(**learned)
            if is_spread_fused(source, parameter.shape):
                factors = distribution.factors(**learned)
                return Perturbation(parameter, None, distribution, *place, source=source, factors_learned=factors)
        spread = distribution.spread(parameter, **learned)
        factors = distribution.factors(**learned)
        if quiet_row is not None:
            is_quiet = (torch.arange(parameter.shape[0], device=parameter.device) == quiet_row).unsqueeze(1)
            spread = torch.where(is_quiet, 0, spread)
            factors = None if factors is None else torch.where(is_quiet, 0, factors)
        p = Perturbation(parameter, spread, distribution, *place, factors_learned=factors)
        if self.at_once is None:
            return p
        if noise is not None:
            p.noise, p.base, p.bases = noise, self.at_once.base, self.at_once.bases
        if not (self.scheme.reuse_signs or is_tracked()):  # a backward pass would keep them
            p.drawn = self.at_once
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
            if self.at_once is not None:
                y = self.scheme.small(op, x, bias, p, self.at_once)
                if y is not None:
                    return y
            return self.scheme.product(op, x, bias, p)
        mean = parameter_of(self.layer, weight).to(self.dtype)
        return op.apply(x, mean.narrow(0, part.start, part.length) if part else mean, bias)

    def bound(self, op: Op, weight: str, *biases: str) -> BoundProduct:
        """Return `product` as a function of x (N, …), for many inputs. Biases may have noise or be missing.

        Args:
            op: The arithmetic.
            weight: The name of the layer's weight.
            *biases: Names of biases to add.
        """
        without_noise = [self._plain_bias(bias) for bias in biases if bias not in self]
        present = [bias.to(self.dtype) for bias in without_noise if bias is not None]
        plain = reduce(torch.add, present) if present else None
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
        """Return the vector Parameter that each row sees, (rows or 1, *shape).

        Args:
            name: The name of the Parameter in the layer.
        """
        if name not in self:
            return attrgetter(name)(self.layer).to(self.dtype).unsqueeze(0)
        vectors = self.scheme.vector(self[name]) if self.session.formed is None else self.formed(name)
        repeats = 1 if vectors.shape[0] == 1 else self.draw.rows
        return vectors if repeats == 1 else vectors.repeat_interleave(repeats, 0)

    def formed(self, name: str) -> Tensor:
        """Return the Parameter that each example sees, (examples, *shape). The first call computes it for all.

        Passes of one sample each may share what is formed for several samples.

        Args:
            name: The name of the Parameter in the layer.
        """
        session = self.session
        assert session.examples is not None
        first, _ = session.formed_for or (session.offset, session.examples)
        return self.formed_together(name).narrow(0, session.offset - first, session.examples)

    def formed_together(self, name: str) -> Tensor:
        """Return the Parameter for all examples whose weights are formed with this pass: (examples, *shape).

        Args:
            name: The name of the Parameter in the layer.
        """
        session = self.session
        weights, key = session.formed, (self.keys[name], sign_groups(self.layer, name), self.dtype)
        assert weights is not None
        assert session.examples is not None
        first, count = session.formed_for or (session.offset, session.examples)
        if key not in weights:
            # ΔW is added before the sum is rounded to the dtype of products.
            p = self.for_examples(name, first, count)
            p = replace(p, dtype=torch.promote_types(p.parameter.dtype, self.dtype))
            weights[key] = _laid_out_like(
                p.parameter, self.scheme.weights(p, sign_groups(self.layer, name)), self.dtype
            )
        return weights[key]

    def _with_formed(self, op: Op, weight: str, bias: Tensor | None) -> BoundProduct:
        """Return the product with the weights that were formed for each example."""
        examples, weights = self.session.examples, self.formed(weight)
        assert examples is not None
        if examples == 1:
            return Straight(op, weights[0], bias)
        return partial(op.batched(examples).apply, weight=weights, bias=bias)

    def _plain_bias(self, name: str) -> Tensor | None:
        """Return a bias that has no noise; None if the layer has no such bias. The name may be dotted."""
        try:
            return parameter_of(self.layer, name)
        except AttributeError:
            return None

    def affine(self, op: Op, x: Tensor, weight: str = "weight", bias: str = "bias") -> Tensor:
        """Return the op's output (N, …) for x (N, …) with a weight and a bias of the layer.

        Either may be perturbed or plain, and the bias may be missing.

        Args:
            op: The arithmetic.
            x: The input, rows first.
            weight: The name of the layer's weight.
            bias: The name of the layer's bias.
        """
        if bias not in self.distributions:
            return self.product(op, x, weight, self._plain_bias(bias))
        may_form = op.formed_from is not None and self.session.formed is None and not is_tracked()
        if may_form and weight in self.distributions and x.dtype == self.dtype:
            y = self.scheme.affine(op, x, self[weight], self[bias])
            if y is not None:
                return y
        y = self.product(op, x, weight, None)
        if self.session.formed is not None:
            return add_by_example(y, self.formed(bias), op.out_dim)
        return self.scheme.add_vector(y, self[bias], op.out_dim)


def _laid_out_like(parameter: Tensor, weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Return formed kernels in the memory layout of the Parameter, so that no convolution has to copy them."""
    is_channels_last = parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last)
    if not is_channels_last or parameter.is_contiguous():
        return weights.to(dtype)
    return weights.flatten(0, 1).to(dtype, memory_format=torch.channels_last).unflatten(0, weights.shape[:2])
