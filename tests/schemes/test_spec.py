"""The ways to compute flipout's product agree with its definition."""

from typing import Any

import pytest
import torch

from flipout._perturbation import Signs
from flipout.ops.conv import Conv
from flipout.ops.linear import Linear
from flipout.schemes import spec as module
from flipout.schemes.spec import Spec

SEED = torch.tensor(5)
KINDS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "rows": (Linear(5, 3), (8, 5), (3, 5)),
    "tokens": (Linear(5, 3), (8, 4, 5), (3, 5)),
    "pixels": (Conv(2, 3, (1, 1), (0, 0), (1, 1), 1), (8, 2, 4, 4), (3, 2, 3, 3)),
}


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("examples", [8, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_and_formed_weights(kind: str, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    op, shape, weight = KINDS[kind]
    x, mean, delta, bias = tensor(*shape), tensor(*weight), tensor(*weight), tensor(3)
    spec = Spec(op, op, Signs(11, 2, examples, antithetic=True))
    x = x if examples == 8 else x.contiguous()
    r, s = spec.signs.over(spec.dims, SEED, x.dtype)
    expected = []
    for example, rows in enumerate(x.unflatten(0, (examples, -1))):
        signs = torch.outer(r[example], s[example]).view(*weight[:2], *[1] * (len(weight) - 2))
        expected.append(op.apply(rows, mean + delta * signs, bias))
    truth = torch.cat(expected)
    if examples == 8:
        torch.testing.assert_close(spec.forward(x, mean, bias, delta, SEED), truth)
    for cached in (2**20, 3 * x[0].numel(), 1):
        monkeypatch.setattr(module, "_CACHED", cached)
        torch.testing.assert_close(spec.by_pieces(x, mean, bias, delta, SEED), truth)
        if kind != "pixels":
            torch.testing.assert_close(spec.formed(x, mean, bias, delta, SEED), truth)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind: str) -> None:
    op, shape, weight = KINDS[kind]
    leaves = [part.requires_grad_() for part in (tensor(*shape), tensor(*weight), tensor(3), tensor(*weight))]
    x, mean, bias, delta = leaves
    spec = Spec(op, op, Signs(11, 2, 8, antithetic=False))
    y = spec.forward(x, mean, bias, delta, SEED)
    grad = torch.randn_like(y)
    expected = torch.autograd.grad(y, leaves, grad)
    with torch.no_grad():
        torch.testing.assert_close(spec.gradients(grad, x, mean, delta, SEED, (True, True, True, True)), expected)
        assert spec.gradients(grad, x, mean, delta, SEED, (False, False, False, False)) == (None,) * 4


def test_weights_are_formed_where_many_rows_share_one() -> None:
    spec = Spec(Linear(5, 3), Linear(5, 3), Signs(11, 0, 4, antithetic=False))
    assert spec.forms(torch.zeros(4, 32, 5))
    assert not spec.forms(torch.zeros(4, 31, 5))
    assert not spec.forms(torch.zeros(4, 32, 5, dtype=torch.bfloat16))
