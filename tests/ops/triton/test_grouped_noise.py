"""Flipout with several bases, whose noise is made in registers, computes what the definition computes."""

import copy

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.backend import Backend, choosing, chosen
from flipout.nn.contexts import hold
from flipout.nn.held_weights import weighted_sums
from tests.ops.triton.kernels import DEVICE, MARKS
from tests.ops.triton.populations import assert_forward, assert_within_twice

pytestmark = MARKS
BACKENDS: tuple[Backend, Backend] = ("triton", "eager")
HALF = [torch.bfloat16, torch.float16]
# A GPU is admitted only for full blocks.
FAN_IN, FAN_OUT = (70, 6) if DEVICE.type == "cpu" else (130, 140)


def network() -> nn.Module:
    torch.manual_seed(0)
    return flipout.perturb(nn.Linear(FAN_IN, FAN_OUT), flipout.Gaussian(0.3), where="*")


def sums(model: nn.Module, fitness: Tensor, dtype: torch.dtype, backend: Backend, **fields) -> Tensor:
    """Return the weight's sum over the members, weighted by their fitness."""
    clone = copy.deepcopy(model).to(DEVICE, dtype)
    with choosing(backend), hold(clone, 7, **fields):
        return next(total for parameter, total in weighted_sums(clone, fitness) if parameter is clone.weight).cpu()


def is_served(dtype: torch.dtype, shape: tuple[int, int] = (FAN_OUT, FAN_IN), share: int = 5) -> bool:
    with choosing("triton"):
        tensor = torch.empty(1, device=DEVICE)
        kernel = chosen("add_grouped_product", tensor, dtype, None, torch.Size(shape), share, required=False)
        return kernel is not None


FIELDS = [
    {"group": 5},
    {"group": 5, "first": 3},
    {"group": 4, "rows": 3},
    {"group": 40},
    {"group": 5, "antithetic": True},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_has_at_most_twice_the_error_of_the_definition(dtype: torch.dtype, fields: dict) -> None:
    assert is_served(dtype)
    model, x, fitness = network(), torch.randn(48, FAN_IN), torch.randn(48).double()
    assert_forward(model, x, dtype, **fields)
    fields = {key: value for key, value in fields.items() if key != "rows"}
    actual, eager = (sums(model, fitness, dtype, backend, **fields).double() for backend in BACKENDS)
    assert_within_twice(actual, eager, sums(model, fitness, torch.float64, "eager", **fields))


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.skipif(DEVICE.type == "cuda", reason="single precision is left to cuBLAS")
def test_single_precision_in_the_interpreter(fields: dict) -> None:
    assert is_served(torch.float32)
    model, x, fitness = network(), torch.randn(48, FAN_IN), torch.randn(48).double()
    assert_forward(model, x, torch.float32, **fields)
    fields = {key: value for key, value in fields.items() if key != "rows"}
    actual, expected = (sums(model, fitness, torch.float32, backend, **fields) for backend in BACKENDS)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_sums_that_are_split_over_the_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.grouped_noise._PROGRAMS", 9)
    model, fitness = network(), torch.randn(48).double()
    dtype = torch.float32 if DEVICE.type == "cpu" else torch.bfloat16
    actual, expected = (sums(model, fitness, dtype, backend, group=5) for backend in BACKENDS)
    torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-5 if dtype == torch.float32 else 5e-2)


def test_what_no_kernel_serves_falls_back_even_if_kernels_are_requested() -> None:
    assert not is_served(torch.float64)
    assert not is_served(torch.bfloat16, shape=(FAN_OUT + 1, FAN_IN))
    assert not is_served(torch.bfloat16, share=200)
    assert_forward(network(), torch.randn(12, FAN_IN), torch.float64, group=5)


def test_a_fitness_of_zero_everywhere() -> None:
    dtype = torch.bfloat16
    assert torch.equal(
        sums(network(), torch.zeros(15).double(), dtype, "triton", group=5), torch.zeros(FAN_OUT, FAN_IN)
    )
