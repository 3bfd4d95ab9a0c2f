"""Compiled layers equal eager ones: every layer, distribution and scheme, each pair under one of the contexts."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import flipout

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


# A layer, and the shape of one example.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 3), (5,)),
    "linear over tokens": (lambda: nn.Linear(5, 3), (4, 5)),
    "circular Conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2, padding=1, padding_mode="circular"), (4, 5)),
    "strided Conv2d": (lambda: nn.Conv2d(2, 4, (3, 2), stride=2), (2, 5, 5)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (2, 3, 3, 3)),
    "grouped ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), (4, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 3, 3)),
    "embedding": (lambda: nn.Embedding(7, 3), (4,)),
    "bag": (lambda: nn.EmbeddingBag(7, 3, mode="sum"), (4,)),
    "attention": (SelfAttention, (3, 4)),
    "LSTM": (lambda: nn.LSTM(3, 2, batch_first=True, bidirectional=True), (2, 3)),
    "GRU": (lambda: nn.GRU(3, 2, batch_first=True), (2, 3)),
    "RNN": (lambda: nn.RNN(3, 2, batch_first=True), (2, 3)),
    "LSTMCell": (lambda: nn.LSTMCell(3, 2), (3,)),
    "GRUCell": (lambda: nn.GRUCell(3, 2), (3,)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (3, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (3, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (4, 3)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (4,)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (4, 2, 2)),
}
LOOKUPS = ("embedding", "bag")
DISTRIBUTIONS = (
    flipout.Gaussian(0.3),
    flipout.MultiplicativeGaussian(0.5),
    flipout.DropConnect(0.5),
    flipout.DropConnect(0.3),
    flipout.Rademacher(0.2),
    flipout.MeanField(std=0.3),
    flipout.LowRankNormal(rank=2),
)
SCHEMES: tuple[Any, ...] = (
    "flipout",
    "shared",
    flipout.Flipout(group=2),
    flipout.Flipout(reuse_signs=True),
    "independent",
    "low_rank",
    "rank_one",
    "local_reparam",
)
PAIRS = tuple(product(DISTRIBUTIONS, SCHEMES))
CONTEXTS: dict[str, Callable[[nn.Module], AbstractContextManager[Any]]] = {
    "training": lambda _: nullcontext(),
    "hold": lambda model: flipout.hold(model, seed=7),
    "hold rows": lambda model: flipout.hold(model, seed=7, first=3, rows=2),
    "hold mirrored": lambda model: flipout.hold(model, seed=7, antithetic=True),
    "hold groups": lambda model: flipout.hold(model, seed=7, group=2),
    "sampling": lambda model: flipout.sampling(model.eval()),
    "using": lambda model: flipout.using(model, scheme="shared"),
}


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield
    torch.compiler.reset()


def results(model: nn.Module, call: Callable[[Tensor], Any], x: Tensor, context: str) -> list[Tensor | None]:
    """Return outputs and gradients of one call, with noise from torch's seed or that of the context."""
    model.train()
    model.zero_grad()
    x = x.clone().requires_grad_() if x.is_floating_point() else x
    torch.manual_seed(5)
    with CONTEXTS[context](model):
        y = call(x)
    leaves = [part for part in tree_leaves(y) if part is not None]
    torch.stack([(part * torch.arange(part.numel()).view_as(part).cos()).sum() for part in leaves]).sum().backward()
    return [*leaves, *(parameter.grad for parameter in model.parameters()), x.grad]


@pytest.mark.parametrize("every", [len(PAIRS), pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LAYERS)
def test_compiled_layers_equal_eager_ones(name: str, every: int) -> None:
    """Every pair takes minutes for each layer, so the quick run compares another one for each."""
    (make, shape), index, compared = LAYERS[name], list(LAYERS).index(name), 0
    for number in range(11 * index % every, len(PAIRS), every):
        distribution, scheme = PAIRS[number]
        context = list(CONTEXTS)[(number + index) % len(CONTEXTS)]
        try:
            model = flipout.perturb(make().double(), distribution, scheme=scheme, where="*")
        except flipout.errors.FlipoutError:  # this pair is refused
            continue
        x = torch.randint(7, (4, *shape)) if name in LOOKUPS else torch.randn(4, *shape, dtype=torch.float64)
        torch.compiler.reset()
        fast: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
        try:
            expected = results(model, model, x, context)
        except flipout.errors.FlipoutError:  # the context does not fit the pair: a mirrored DropConnect(0.3), say
            with pytest.raises(Exception, match=r".+"):
                results(model, fast, x, context)
            continue
        try:
            torch.testing.assert_close(results(model, fast, x, context), expected, rtol=1e-9, atol=1e-11)
        except Exception as error:
            raise AssertionError(f"{distribution}, {scheme}, {context}") from error
        compared += 1
    assert compared >= (20 if every == 1 else 0)
