"""Products by oneDNN against torch's own, on both sides of the size from which oneDNN multiplies."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from flipout.ops import onednn

SIZES = [(3, 4, 5), (300, 40, 100), (2000, 64, 96)]
DTYPES = [torch.float32, torch.float64]


@contextmanager
def onednn_enabled(is_enabled: bool) -> Iterator[None]:
    """`torch.backends.mkldnn.flags` without its warning about TF32, which is an error in these tests."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(is_enabled)
    yield
    torch._C._set_mkldnn_enabled(before)


@pytest.fixture(params=[True, False], ids=["enabled", "disabled"])
def switch(request: pytest.FixtureRequest) -> Iterator[None]:
    with onednn_enabled(request.param):
        yield


def close(actual: torch.Tensor, truth: torch.Tensor) -> None:
    """Within what summing in another order changes."""
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-11}[actual.dtype]
    torch.testing.assert_close(actual.double(), truth, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.usefixtures("switch")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
@pytest.mark.parametrize("turned", [False, True])
def test_products(rows: int, inputs: int, outputs: int, turned: bool, dtype: torch.dtype) -> None:
    x = (
        torch.randn(inputs, 2, rows, dtype=dtype).permute(2, 1, 0)
        if turned
        else torch.randn(rows, 2, inputs, dtype=dtype)
    )
    weight, bias = torch.randn(inputs, outputs, dtype=dtype).T, torch.randn(outputs, dtype=dtype)
    weight = weight if turned else weight.contiguous()
    truth = x.double() @ weight.double().T
    close(onednn.linear(x, weight), truth)
    close(onednn.linear(x, weight, bias), truth + bias.double())
    grad = torch.randn(rows, 2, outputs, dtype=dtype)
    expected = grad.double().flatten(0, 1).T @ x.double().flatten(0, 1)
    close(onednn.outer_sum(grad, x), expected)


@pytest.mark.usefixtures("switch")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_a_weight_that_is_bound(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> None:
    weight, out = torch.randn(outputs, inputs, dtype=dtype), torch.full((rows, outputs), torch.nan, dtype=dtype)
    for matrix in (weight, weight.T.contiguous().T):
        put, add = onednn.bind(matrix, rows)
        for _ in range(2):
            x, base = torch.randn(rows, inputs, dtype=dtype), torch.randn(rows, outputs, dtype=dtype)
            truth = x.double() @ weight.double().T
            put(x, out)
            close(out, truth)
            total = base.clone()
            add(x, total)
            close(total, base.double() + truth)


@pytest.mark.skipif(not onednn.IS_BUILT, reason="torch was built without oneDNN")
def test_who_multiplies() -> None:
    """Large products in fp32 alone, and none where oneDNN is switched off."""
    x, weight = torch.randn(2000, 64), torch.randn(96, 64)
    assert onednn.serves(x, x.numel() * 96)
    assert not onednn.serves(x[:10], 10 * 64 * 96)
    assert not onednn.serves(x.double(), x.numel() * 96)
    with onednn_enabled(False):
        assert not onednn.serves(x, x.numel() * 96)
    assert torch.equal(onednn.linear(x[:10], weight), torch.nn.functional.linear(x[:10], weight))
