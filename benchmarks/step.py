"""A training step of one layer, and its comparison under each distribution and scheme."""

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
    """Return a training step of one layer that accumulates its gradients."""

    def run() -> None:
        layer(x).backward(grad)

    return run


def step_of(model: Callable[[Tensor], Tensor], inputs: list[Tensor], x: Tensor, grad: Tensor) -> Callable[[], None]:
    """Return a training step that makes new gradients each time, also of the inputs."""

    def run() -> None:
        for tensor in inputs:
            tensor.grad = None
        model(x).backward(grad)

    return run


def held_bytes(layer: nn.Module, x: Tensor) -> int:
    """Return the bytes that autograd keeps between forward and backward, without the Parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    # Storages are kept, not tensors: an output would keep its graph alive, and no later step could be captured. Nor are
    # addresses enough: memory that is freed meanwhile would be handed out a second time.
    kept: list[torch.UntypedStorage] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.untyped_storage()), _nothing):
        layer(x)
    sizes = {storage.data_ptr(): storage.nbytes() for storage in kept if storage.data_ptr() not in parameters}
    return sum(sizes.values())


def _nothing(_: None) -> Tensor:
    raise AssertionError("there is no backward pass")


def compare(
    case: str, make: Callable[..., nn.Module], plain: nn.Module, rival: Callable[[Tensor], Tensor] | None, x: Tensor
) -> Iterator[Row]:
    """Compare flipout with shared, for each distribution, and with the layer of bayesian-torch."""
    x.requires_grad_()
    grad = torch.randn_like(plain(x))
    layers = {
        f"{name} {scheme}": make(distribution=distribution, scheme=scheme)
        for name, distribution in DISTRIBUTIONS.items()
        for scheme in ("shared", "flipout")
    }
    runs = {"plain": step(plain, x, grad), **{name: step(layer, x, grad) for name, layer in layers.items()}}
    against = {f"{name} flipout": f"{name} shared" for name in DISTRIBUTIONS}
    if rival is not None:
        runs["bayesian-torch flipout"] = step(rival, x, grad)
        against["bayesian-torch flipout"] = "mean-field flipout"
    yield from rows(case, interleaved(runs, seconds=12), against)
    held = {name: [float(held_bytes(layer, x))] for name, layer in layers.items()}
    yield from rows(f"{case} held for backward", held, {k: v for k, v in against.items() if k in held}, what="bytes")
