"""Models that are changed after their conversion."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout.bayes import Normal
from tests.networks import GAUSSIAN

LEARNED = flipout.MeanField(std=0.3, prior=Normal(0.0, 1.0))


X = torch.linspace(-1, 1, 12).view(3, 4).sin()


class Stack(nn.Module):
    """Layers of one size, so that each can take the place of another."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc3(self.fc2(self.fc1(x).tanh()).tanh())


def stack(distribution: Any = GAUSSIAN, **options: Any) -> Any:
    torch.manual_seed(3)
    return flipout.perturb(Stack(), distribution, **options)


def converted_now(model: nn.Module, distribution: Any = GAUSSIAN, **options: Any) -> Any:
    """Return the slow truth: the present model, frozen and converted again."""
    return flipout.perturb(flipout.freeze(copy.deepcopy(model)), distribution, **options)


def check(model: Any, expected: Any, x: Tensor = X) -> None:
    """Compare outputs under one seed and the weights of every example. A forward pass reads one random number."""
    for _ in range(2):
        with flipout.hold(model, seed=7), flipout.hold(expected, seed=7):
            torch.testing.assert_close(model(x), expected(x), rtol=0, atol=0)
            for (name, layer), (_, other) in zip(model.named_modules(), expected.named_modules(), strict=True):
                if isinstance(layer, flipout.nn.Perturbed):
                    ours, theirs = flipout.example_weights(layer), flipout.example_weights(other)
                    assert all(torch.equal(ours[key], theirs[key]) for key in theirs), name
        torch.manual_seed(1)
        torch.randint(2**63 - 1, ())
        once = torch.get_rng_state()
        outputs = []
        for each in (model, expected):
            torch.manual_seed(1)
            outputs.append(each.train()(x))
            assert torch.equal(torch.get_rng_state(), once)
        assert torch.equal(*outputs)
