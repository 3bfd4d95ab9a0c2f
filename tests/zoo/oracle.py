"""The slow truth for a whole model: each example alone, through the plain model, under the weights that it saw."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import flipout

Inputs = dict[str, Tensor]


def first_output(output: Any) -> Tensor:
    """Return the first tensor of whatever a model returns: a tensor, a tuple, or transformers' `ModelOutput`."""
    return output if isinstance(output, Tensor) else output[0]


@dataclass
class Family:
    """A model of other people's making, and a batch for it.

    Attributes:
        make: Builds a tiny model.
        inputs: The keyword arguments of one call; dimension 0 is the example.
        where: What to perturb, None for the default.
        scheme: The scheme, or schemes by glob.
        examples: Examples in the batch.
        output: Picks the tensor to compare from what the model returns.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    where: Any = None
    scheme: Any = "flipout"
    examples: int = 3
    output: Callable[[Any], Tensor] = first_output
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of `perturb`


def weights_by_example(model: nn.Module) -> list[dict[str, Tensor]]:
    """Return, for each example of the held batch, the perturbed Parameters under their full names."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    seen: dict[str, Tensor] = {}
    for layer in model.modules():
        if isinstance(layer, flipout.nn.Perturbed):
            for name, stack in flipout.example_weights(layer).items():
                seen.setdefault(names[id(attrgetter(name)(layer))], stack)
    count = next(len(stack) for stack in seen.values())
    return [{name: stack[n] for name, stack in seen.items()} for n in range(count)]


def compare(family: Family, *, gradients: bool = True) -> float:
    """Return the largest difference between the perturbed model and the loop over its examples, in fp64.

    Args:
        family: The model and its batch.
        gradients: Compare the gradients of all Parameters too.
    """
    torch.manual_seed(0)
    plain = family.make().double().eval()
    model = flipout.perturb(
        copy.deepcopy(plain),
        flipout.MultiplicativeGaussian(0.3),
        where=family.where,
        scheme=family.scheme,
        **family.options,
    )
    inputs = family.inputs(family.examples)
    with flipout.hold(model, seed=5):
        actual = family.output(model(**inputs))
        weights = weights_by_example(model)
    assert len(weights) == family.examples
    truth = []
    for n, row_weights in enumerate(weights):
        alone = {name: value[n : n + 1] for name, value in inputs.items()}
        others = {name: p for name, p in model.named_parameters() if name not in row_weights}
        truth.append(family.output(functional_call(plain, {**others, **row_weights}, (), alone)))
    expected = torch.cat(truth)
    mean = family.output(plain(**inputs))
    assert not torch.allclose(actual, mean, rtol=1e-3), "the noise made no difference"
    worst = difference([actual.detach()], [expected.detach()])
    if not gradients:
        return worst
    leaves = [p for p in model.parameters() if p.requires_grad]
    upstream = torch.randn_like(actual)
    got, wanted = (
        torch.autograd.grad(y, leaves, upstream, materialize_grads=True, retain_graph=True) for y in (actual, expected)
    )
    return max(worst, difference(got, wanted))


def difference(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference, relative to the largest number: a gradient may be 0 up to rounding."""
    largest = max(float(tensor.abs().max()) for tensor in expected)
    return max(float((a - b).abs().max()) for a, b in zip(actual, expected, strict=True)) / largest
