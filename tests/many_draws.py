"""Many draws of a layer or a network at a time, by one vmap over seeds instead of a loop."""

import torch
from torch import Tensor, nn

import flipout
from flipout.schemes import Scheme, SchemeName


def seeds(count: int, first: int = 0) -> Tensor:
    """Return consecutive seeds."""
    return torch.arange(first, first + count)


def weights(layer: nn.Module, x: Tensor, seed: Tensor, name: str = "weight", **fields) -> Tensor:
    """Return the weights that each example of the batch x sees under each seed, (draws, examples, *shape)."""

    def under(seed: Tensor) -> Tensor:
        with flipout.hold(layer, seed=seed, **fields):
            layer(x)
            return flipout.example_weights(layer)[name]

    return torch.func.vmap(under)(seed).detach()


def outputs(model: nn.Module, x: Tensor, seed: Tensor) -> Tensor:
    """Return the output under each seed, (draws, *output)."""

    def under(seed: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            return model(x)

    return torch.func.vmap(under)(seed).detach()


def gradients(model: nn.Module, x: Tensor, scheme: SchemeName | Scheme, seed: Tensor) -> Tensor:
    """Return the gradient of the mean loss in every Parameter under each seed, (draws, entries)."""

    def loss(parameters: dict[str, Tensor], seed: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            return torch.func.functional_call(model, parameters, (x,)).square().sum(1).mean()

    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with flipout.using(model, scheme=scheme):
        by_name = torch.func.vmap(torch.func.grad(loss), (None, 0), chunk_size=1000)(parameters, seed)
    return torch.cat([gradient.flatten(1) for gradient in by_name.values()], 1)
