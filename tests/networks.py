"""Small networks with what real ones have: tied weights, towers, several heads, norms, blocks to checkpoint."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import flipout

GAUSSIAN = flipout.Gaussian(0.3)


def mlp(width: int = 6) -> Any:
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))


def convnet() -> Any:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3, stride=2, padding="valid")
    )


def encoder(batch_first: bool = True, layers: int = 2) -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class TiedLM(nn.Module):
    """Embedding and decoder are one Parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.hidden = nn.Linear(5, 5)
        self.decoder = nn.Linear(5, 7, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(self.hidden(self.embedding(tokens)).tanh())


class Siamese(nn.Module):
    """One layer, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Linear(4, 3)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return self.tower(a), self.tower(b)


class Shared(nn.Module):
    """One layer under two parents."""

    def __init__(self) -> None:
        super().__init__()
        trunk = nn.Linear(4, 4)
        self.left = nn.Sequential(trunk, nn.Tanh())
        self.right = nn.Sequential(nn.Tanh(), trunk)

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) + self.right(x)


class Blocks(nn.Module):
    """Two blocks with dropout, each called through `wrap`: a checkpoint, or nothing."""

    def __init__(self, wrap: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.4), nn.Tanh()) for _ in range(2))
        self.wrap = wrap

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = self.wrap(block, x)
        return nn.functional.dropout(x, 0.2, self.training)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def gradients_if_the_seed_changes(layer: nn.Module, x: Tensor) -> list[dict[str, Tensor]]:
    """Of one draw, whose seed stays as it is between forward and backward, and is written to there."""
    seed, results = torch.zeros((), dtype=torch.int64, device=x.device), []
    for after in (1, 2):
        with flipout.hold(layer, seed=seed.fill_(1)):
            y = layer(x)
        seed.fill_(after)
        layer.zero_grad()
        y.square().sum().backward()
        results.append(gradients(layer))
    return results


def state(model: nn.Module) -> dict[str, tuple]:
    """Everything that a conversion could change, by identity."""
    return {
        name: (
            type(module),
            list(module.__dict__),
            [(key, id(value)) for key, value in module._parameters.items()],
            list(module._forward_hooks.items()),
            list(module._forward_pre_hooks.items()),
            {key: value.clone() for key, value in module.state_dict().items()},
        )
        for name, module in model.named_modules()
    }


def same_state(before: dict[str, tuple], after: dict[str, tuple]) -> bool:
    return before.keys() == after.keys() and all(
        before[name][:5] == after[name][:5]
        and before[name][5].keys() == after[name][5].keys()
        and all(torch.equal(before[name][5][key], after[name][5][key]) for key in before[name][5])
        for name in before
    )
