"""What linear and conv benchmarks share: forward + backward of one layer under each distribution and scheme."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import flipout

from .record import Row, interleaved, rows

DISTRIBUTIONS = {
    "gaussian": flipout.Gaussian(0.1),
    "multiplicative": flipout.MultiplicativeGaussian(0.5),
    "dropconnect": flipout.DropConnect(0.5),
    "mean-field": flipout.MeanField(),
}


def step(layer: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> Callable[[], None]:
    """A training step of one layer, its gradients accumulated as an optimiser would find them."""

    def run() -> None:
        layer(x).backward(grad)

    return run


def step_of(model: Callable[[Tensor], Tensor], inputs: list[Tensor], x: Tensor, grad: Tensor) -> Callable[[], None]:
    """The same with gradients made anew, those of the inputs too."""

    def run() -> None:
        for tensor in inputs:
            tensor.grad = None
        model(x).backward(grad)

    return run


def held_bytes(layer: nn.Module, x: Tensor) -> int:
    """What autograd keeps between forward and backward, beside the Parameters: distinct storages, by size."""
    own = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    # Storages, since an output would keep its own graph alive, and no later step could be captured; not their
    # addresses alone, which the next ones would get again.
    kept: list[torch.UntypedStorage] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.untyped_storage()), _nothing):
        layer(x)
    return sum({one.data_ptr(): one.nbytes() for one in kept if one.data_ptr() not in own}.values())


def _nothing(_: None) -> Tensor:
    raise AssertionError("no backward pass is made")


def compare(
    case: str, make: Callable[..., nn.Module], plain: nn.Module, other: Callable[[Tensor], Tensor] | None, x: Tensor
) -> Iterator[Row]:
    """`make(distribution=…, scheme=…)` against shared, against the plain layer, and against another library's."""
    x.requires_grad_()
    grad = torch.randn_like(plain(x))
    layers = {
        f"{name} {scheme}": make(distribution=distribution, scheme=scheme)
        for name, distribution in DISTRIBUTIONS.items()
        for scheme in ("shared", "flipout")
    }
    runs = {"plain": step(plain, x, grad), **{name: step(layer, x, grad) for name, layer in layers.items()}}
    against = {f"{name} flipout": f"{name} shared" for name in DISTRIBUTIONS}
    if other is not None:
        runs["bayesian-torch flipout"] = step(other, x, grad)
        against["bayesian-torch flipout"] = "mean-field flipout"
    yield from rows(case, interleaved(runs, seconds=12), against)
    held = {name: [float(held_bytes(layer, x))] for name, layer in layers.items()}
    yield from rows(f"{case} held for backward", held, {k: v for k, v in against.items() if k in held}, what="bytes")
