"""Many draws of a layer or a network at once: one vmap over seeds instead of a loop."""

import torch
from torch import Tensor, nn

import flipout
from flipout.schemes import Scheme, SchemeName


def seeds(count: int, first: int = 0) -> Tensor:
    return torch.arange(first, first + count)


def weights(layer: nn.Module, x: Tensor, seed: Tensor, name: str = "weight", **fields) -> Tensor:
    """(draws, examples, *shape): what each example of the batch x sees under each seed."""

    def one(seed: Tensor) -> Tensor:
        with flipout.hold(layer, seed=seed, **fields):
            layer(x)
            return flipout.example_weights(layer)[name]

    return torch.func.vmap(one)(seed).detach()


def outputs(model: nn.Module, x: Tensor, seed: Tensor) -> Tensor:
    """(draws, *output)"""

    def one(seed: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            return model(x)

    return torch.func.vmap(one)(seed).detach()


def gradients(model: nn.Module, x: Tensor, scheme: SchemeName | Scheme, seed: Tensor) -> Tensor:
    """(draws, entries): the gradient of the batch's mean loss in every Parameter."""

    def loss(parameters: dict[str, Tensor], seed: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            return torch.func.functional_call(model, parameters, (x,)).square().sum(1).mean()

    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with flipout.using(model, scheme=scheme):
        made = torch.func.vmap(torch.func.grad(loss), (None, 0), chunk_size=1000)(parameters, seed)
    return torch.cat([gradient.flatten(1) for gradient in made.values()], 1)
