"""Convolutions and transposed convolutions equal a loop over examples."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from tests.oracles import Case, Draws, check, draws, equal, offsets, tensor

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

# torch warns of its own even kernels.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")


def ints(low: int, high: int, count: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(low, high)] * count)


def with_input(draw: Any, module: Any, rows: int, sizes: list[int], call: Any = None) -> Case:
    """Return the module with an input of these sizes, with or without a batch, in any memory format."""
    where = draw(st.sampled_from([None, "*"] if module.bias is None else [None, "*", "bias"]))
    extra = {} if call is None else {"call": call}
    if rows == 1 and draw(st.integers(0, 5)) == 0:
        return Case(module, (tensor(module.in_channels, *sizes),), (None,), where=where, **extra)
    x = tensor(rows * draw(st.integers(1, 4)), module.in_channels, *sizes, grad=False)
    if len(sizes) > 1 and draw(st.booleans()):
        x = x.to(memory_format=torch.channels_last if len(sizes) == 2 else torch.channels_last_3d)
    return Case(module, (x.requires_grad_(),), where=where, **extra)


@st.composite
def convs(draw: Any, kind: type, rows: int) -> Case:
    spatial = CONVS.index(kind) + 1
    groups = draw(st.integers(1, 2))
    inside, outside = (groups * draw(st.integers(1, 2)) for _ in range(2))
    kernel, dilation = draw(ints(1, 3 if spatial < 3 else 2, spatial)), draw(ints(1, 2, spatial))
    padding = draw(st.one_of(st.sampled_from(["same", "valid"]), ints(0, 2, spatial)))
    stride = (1,) * spatial if padding == "same" else draw(ints(1, 2, spatial))
    mode = draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    bias = draw(st.booleans())
    module = kind(inside, outside, kernel, stride, padding, dilation, groups, bias, mode)
    # Large enough for the kernel, and for two pixels of reflected padding.
    sizes = [max(d * (k - 1) + 1, 3) + draw(st.integers(0, 1)) for k, d in zip(kernel, dilation, strict=True)]
    return with_input(draw, module, rows, sizes)


@st.composite
def transposed(draw: Any, kind: type, rows: int) -> Case:
    spatial = TRANSPOSED.index(kind) + 1
    groups = draw(st.integers(1, 2))
    inside, outside = (groups * draw(st.integers(1, 2)) for _ in range(2))
    kernel, dilation, stride = (draw(ints(1, 2, spatial)) for _ in range(3))
    padding = tuple(draw(st.integers(0, min(1, k - 1))) for k in kernel)
    output_padding = tuple(draw(st.integers(0, s - 1)) for s in stride)
    bias, sizes = draw(st.booleans()), [draw(st.integers(2, 3)) for _ in range(spatial)]
    if draw(st.booleans()):
        module = kind(inside, outside, kernel, stride, padding, output_padding, groups, bias, dilation)
        return with_input(draw, module, rows, sizes)
    module = kind(inside, outside, kernel, stride, padding, 0, groups, bias, dilation)
    least = module(torch.zeros(1, inside, *sizes)).shape[2:]
    output_size = [size + extra for size, extra in zip(least, output_padding, strict=True)]

    def call(f: Any, x: Tensor) -> Tensor:
        return f(x, output_size=output_size)

    return with_input(draw, module, rows, sizes, call)


@pytest.mark.parametrize("kind", CONVS)
@settings(max_examples=60)
@given(data=st.data(), draw=draws, offset=offsets)
def test_convolutions(kind: type, data: st.DataObject, draw: Draws, offset: int) -> None:
    check(data.draw(convs(kind, draw.rows)), draw, offset)


@pytest.mark.parametrize("kind", TRANSPOSED)
@settings(max_examples=60)
@given(data=st.data(), draw=draws, offset=offsets)
def test_transposed_convolutions(kind: type, data: st.DataObject, draw: Draws, offset: int) -> None:
    check(data.draw(transposed(kind, draw.rows)), draw, offset)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", ["same", "valid", (1, 0), 2])
def test_every_padding(mode: Any, padding: Any) -> None:
    """Even kernels too, for which `same` pads one pixel more on the right."""
    for kernel, dilation in (((2, 3), 1), ((4, 1), 1), ((2, 3), (1, 2)), ((4, 2), (1, 3))):
        module = nn.Conv2d(2, 3, kernel, padding=padding, dilation=dilation, padding_mode=mode)
        check(Case(module, (tensor(3, 2, 5, 6),)), Draws(first=1), kernel[0])


def test_wide_kernels_with_groups() -> None:
    """A grouped kernel has signs over its real input channels, more here than one word has bits."""
    check(Case(nn.Conv1d(132, 4, 1, groups=2), (tensor(3, 132, 2),)), Draws(1), 2)
    check(Case(nn.ConvTranspose1d(4, 132, 1, groups=2), (tensor(3, 4, 2),)), Draws(1), 2)


@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 16), (torch.bfloat16, 4), (torch.float16, 4)])
def test_low_precision(scheme: Any, dtype: torch.dtype, error: float) -> None:
    low = flipout.nn.Conv2d(8, 6, 3, groups=2, distribution=flipout.Gaussian(0.1), scheme=scheme, where="*").to(dtype)
    exact = copy.deepcopy(low).double()
    x = torch.randn(5, 8, 6, 5).to(dtype)
    with flipout.hold(low, seed=3), flipout.hold(exact, seed=3):
        y, truth = low(x), exact(x.double())
        weights = flipout.example_weights(exact)
    size = [exact.get_parameter(name).abs() + (w - exact.get_parameter(name)).abs() for name, w in weights.items()]
    each = zip(x.double().abs(), *size, strict=True)
    bound = torch.stack([torch.conv2d(row, w, b, groups=2) for row, w, b in each])
    assert y.dtype == dtype
    assert ((y.double() - truth).abs() <= error * torch.finfo(dtype).eps * bound).all()


@pytest.mark.parametrize("kind", [flipout.nn.Conv2d, flipout.nn.ConvTranspose2d])
@pytest.mark.parametrize("scheme", [flipout.Flipout(), flipout.Flipout(group=2)])
@pytest.mark.parametrize("groups", [1, 2])
def test_double_backward(kind: Any, scheme: flipout.Scheme, groups: int) -> None:
    distribution = flipout.MeanField(std=0.3)
    layer = kind(2, 2, (1, 2), groups=groups, distribution=distribution, scheme=scheme, where="*").double()
    names, values = zip(*layer.named_parameters(), strict=True)

    def f(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    with flipout.hold(layer, first=1):
        inputs = (tensor(3, 2, 1, 2), *values)
        assert torch.autograd.gradcheck(f, inputs)
        assert torch.autograd.gradgradcheck(f, inputs)


def test_made_by_hand_equals_converted() -> None:
    layer = flipout.nn.Conv2d(2, 3, 2, padding="same", distribution=flipout.Gaussian(0.3)).double()
    converted = nn.Conv2d(2, 3, 2, padding="same").double()
    converted.load_state_dict(layer.state_dict())
    flipout.perturb(converted, flipout.Gaussian(0.3))
    x = tensor(3, 2, 4, 4)
    with flipout.hold(layer, seed=1), flipout.hold(converted, seed=1):
        equal([layer(x)], [converted(x)])


def test_local_reparameterisation_of_pixels_is_refused() -> None:
    for kind in (flipout.nn.Conv2d, flipout.nn.ConvTranspose2d):
        layer: Any = kind(2, 3, 2, distribution=flipout.Gaussian(0.3), scheme="local_reparam")
        with pytest.raises(flipout.errors.SampledPerPosition):
            layer(torch.randn(5, 2, 4, 4))
        with flipout.using(layer, scheme=flipout.LocalReparam(per_position=True)):
            assert layer(torch.randn(5, 2, 4, 4)).isfinite().all()
