"""Products by oneDNN are those of F.linear, and only where nothing else is asked for."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flipout.ops import onednn
from flipout.ops.linear import Linear

needs_onednn = pytest.mark.skipif(onednn._product() is None, reason="no oneDNN with AVX-512")


def operands(rows: int = 800, inputs: int = 70, outputs: int = 50, **how: Any) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((rows, inputs), (outputs, inputs), (outputs,))
    return [torch.randn(shape, generator=generator).to(**how) for shape in shapes]


@needs_onednn
@torch.no_grad()
@pytest.mark.parametrize("has_bias", [True, False])
def test_it_is_the_product(has_bias: bool) -> None:
    x, weight, bias = operands()
    made = onednn.linear(x, nn.Parameter(weight), bias if has_bias else None)
    assert made is not None
    exact = F.linear(x.double(), weight.double(), bias.double() if has_bias else None)
    error = (F.linear(x, weight, bias if has_bias else None) - exact).abs().max()
    assert (made - exact).abs().max() <= 4 * error


@pytest.mark.parametrize(
    "change",
    [{"rows": 8}, {"outputs": 1, "rows": 100_000}, {"dtype": torch.float64}, {"dtype": torch.bfloat16}],
    ids=["small", "one output", "double", "half"],
)
@torch.no_grad()
def test_others_are_left_to_torch(change: dict[str, Any]) -> None:
    x, weight, bias = operands(**change)
    assert onednn.linear(x, weight, bias) is None
    torch.testing.assert_close(Linear(x.shape[1], weight.shape[0]).infer(x, weight, bias), F.linear(x, weight, bias))


def test_what_is_differentiated_or_traced_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = operands()
    assert onednn.linear(x, weight, bias) is None
    with torch.no_grad():
        assert onednn.linear(x.T.contiguous().T, weight, bias) is None
        with torch.autocast("cpu"):
            assert onednn.linear(x, weight, bias) is None
        torch.func.vmap(lambda row: _refused(x, weight, row))(bias.expand(2, -1))
        monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
        assert onednn.linear(x, weight, bias) is None


def _refused(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    assert onednn.linear(x, weight, bias) is None
    return bias
