"""Signs made where a tensor is flipped or added give the outputs of the definition."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.backend import choosing
from tests.networks import gradients_if_the_seed_changes
from tests.ops.triton.kernels import CLOSE, DEVICE, MARKS
from tests.ops.triton.populations import assert_forward, assert_trained

pytestmark = MARKS
FIELDS = [{}, {"first": 3}, {"antithetic": True}, {"rows": 3}, {"group": 4}, {"group": 5, "first": 2, "rows": 2}]


@pytest.mark.parametrize("where", [None, "*"], ids=["weight", "weight and bias"])
@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_outputs_are_those_of_the_definition(dtype: torch.dtype, fields: dict, where: str | None) -> None:
    """Features fill a block of 128 signs and part of a second, outputs are odd in number, groups have any layout."""
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(141, 7), flipout.MeanField(std=0.3), where=where)
    assert_forward(model, torch.randn(24, 141), dtype, **fields)


def test_inputs_of_other_layouts() -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Sequential(nn.Linear(9, 6), nn.LayerNorm(6)), flipout.Gaussian(0.3), where="*")
    for x in (torch.randn(5, 4, 9), torch.randn(9, 5).T, torch.randn(1, 9).expand(5, 9), torch.randn(0, 9)):
        assert_forward(model, x, torch.float64)
        assert_forward(model, x, torch.float32, group=2)


def test_a_negative_bit_is_respected() -> None:
    """torch negates the imaginary part of a conjugate when it reads it; a kernel that reads memory would not."""
    model = flipout.perturb(nn.Linear(1, 6), flipout.Gaussian(0.3)).to(DEVICE)
    x = torch.randn(1, 1, dtype=torch.complex64, device=DEVICE).conj().imag
    assert x.is_neg()
    assert x.is_contiguous()
    with torch.no_grad(), choosing("triton"), flipout.hold(model, 7):
        torch.testing.assert_close(model(x), model(x.resolve_neg()))


def test_a_seed_may_change_before_backward() -> None:
    layer = flipout.nn.Linear(9, 6, distribution=flipout.MeanField(), device=DEVICE)
    with choosing("triton"):
        gradients = gradients_if_the_seed_changes(layer, torch.randn(5, 9, device=DEVICE))
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_reused_signs() -> None:
    model = flipout.perturb(nn.Linear(9, 6), flipout.Gaussian(0.3), scheme=flipout.Flipout(reuse_signs=True), where="*")
    assert_forward(model, torch.randn(5, 9), torch.float32)


CONVOLUTIONS = {
    "one channel": (nn.Conv2d(3, 1, 3), (24, 3, 6, 5)),
    "one place": (nn.Conv2d(3, 4, 8), (24, 3, 8, 8)),
    "one place in time": (nn.Conv1d(3, 4, 5), (24, 3, 5)),
    "channels last": (nn.Conv2d(3, 4, 3), (24, 3, 6, 5)),
    "channels last, transposed": (nn.ConvTranspose2d(3, 4, 3), (24, 3, 6, 5)),
}


@pytest.mark.parametrize("fields", [FIELDS[0], FIELDS[-1]], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_biases_of_convolutions(name: str, fields: dict) -> None:
    """Channels are dimension 1, and adjacent in memory in each of these cases."""
    layer, shape = CONVOLUTIONS[name]
    model: Any = flipout.perturb(copy.deepcopy(layer), flipout.Gaussian(0.3), where="bias")
    x = torch.randn(shape)
    if "last" in name:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    assert_forward(model, x, torch.float32, **fields)


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_gradients_are_those_of_the_definition(dtype: torch.dtype, fields: dict) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(141, 7), flipout.MeanField(std=0.3))
    assert_trained(model, torch.randn(24, 141), dtype, **fields)


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_one_example(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(141, 7), flipout.MeanField(std=0.3))
    assert_forward(model, torch.randn(1, 141), dtype)
    assert_trained(model, torch.randn(1, 141), dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_gradients_of_tokens(dtype: torch.dtype) -> None:
    """In (N, time, features) all rows of an example have its signs."""
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(13, 150), flipout.MultiplicativeGaussian(0.3))
    assert_trained(model, torch.randn(4, 5, 13), dtype)
    assert_trained(model, torch.randn(4, 5, 2, 13), dtype, group=2)


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"stride": 2, "padding": 1}], ids=["plain", "groups", "stride"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_gradients_of_channels_last(dtype: torch.dtype, options: dict) -> None:
    torch.manual_seed(0)
    model: Any = flipout.perturb(nn.Conv2d(6, 10, 3, **options), flipout.DropConnect(0.5))
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(4, 6, 7, 5).to(memory_format=torch.channels_last)
    assert_trained(model, x, dtype)
    assert_trained(model, x.contiguous(), dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_second_derivatives_are_those_of_the_definition(dtype: torch.dtype) -> None:
    """In single precision the noise is made inside the product, in double precision before it."""
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(9, 6).to(DEVICE, dtype), flipout.MeanField(std=0.3))
    x = torch.randn(5, 9, device=DEVICE, dtype=dtype, requires_grad=True)
    found, inputs = [], [x, *model.parameters()]
    for backend in ("triton", "eager"):
        with choosing(backend), flipout.hold(model, 7):
            first = torch.autograd.grad(model(x).tanh().sum(), inputs, create_graph=True)
            second = torch.autograd.grad([grad.square().sum() for grad in first], inputs)
            found.append([*first, *second])
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected)
