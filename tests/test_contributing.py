"""CONTRIBUTING.md: its examples run one after the other, and the files that it names exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import backend
from tests.lent_kernels import lent_kernels

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.fixture(scope="module")
def added() -> dict[str, Any]:
    """What the examples define. Their kernel is taken back afterwards."""
    names: dict[str, Any] = {"__name__": "contributing"}
    with lent_kernels():
        for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
            exec(compile(block, "CONTRIBUTING.md", "exec"), names)
        names["registered"] = backend._kernels["sum_rows"]
    return names


def test_the_distribution(added: dict[str, Any]) -> None:
    layer: Any = flipout.perturb(nn.Linear(8, 6), added["Uniform"](0.5))
    with flipout.hold(layer, seed=1):
        layer(torch.randn(400, 8))
        noise = flipout.example_weights(layer)["weight"] - layer.weight
    assert noise.abs().max() <= 0.5
    base = noise[0].abs().flatten()
    assert base.unique().numel() == base.numel()
    assert 0.1 < base.mean() < 0.4  # 0.25 in the mean of 48


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_the_layer(added: dict[str, Any], scheme: Any) -> None:
    layer = flipout.perturb(added["Gain"](), added["Uniform"](0.5), scheme=scheme)
    x = torch.randn(5, 4)
    with flipout.hold(layer, seed=1):
        expected = 2 * torch.einsum("ni,noi->no", x, (layer(x), flipout.example_weights(layer)["weight"])[1])
        torch.testing.assert_close(layer(x), expected)


def test_the_op(added: dict[str, Any]) -> None:
    x, weight, bias = torch.randn(6, 3), torch.randn(3, 2), torch.randn(2)
    op = added["Turned"](3, 2)
    torch.testing.assert_close(op.apply(x, weight, bias), x @ weight + bias)
    weights = torch.randn(3, 3, 2)
    expected = torch.cat([rows @ w for rows, w in zip(x.chunk(3), weights, strict=True)])
    torch.testing.assert_close(op.batched(3).apply(x, weights), expected)


def test_the_kernel(added: dict[str, Any]) -> None:
    kernel, x = added["registered"], torch.randn(4, 3, 5)
    assert not kernel.fits(x, 1)
    torch.testing.assert_close(kernel.call(x, 1), x.sum((0, 2)))


def test_what_it_names_exists() -> None:
    paths = set(re.findall(r"`((?:flipout|tests|docs|benchmarks)/[\w/.-]+)`", PAGE))
    assert len(paths) > 10
    missing = [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]
    assert not missing


def test_each_way_is_short() -> None:
    for section in re.findall(r"^## Add an? .*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL):
        steps = re.findall(r"^\d+\. ", section, re.MULTILINE)
        assert 4 <= len(steps) <= 10
