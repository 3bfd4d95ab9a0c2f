"""The LSTM by kernels computes what the definition computes, with its gradients, in every dtype."""

import copy
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import flipout
from flipout.backend import choosing
from flipout.errors import BackendUnavailable
from flipout.ops.base import Flipped, Straight
from flipout.ops.linear import Linear
from flipout.ops.recurrent import LSTM, Scan
from tests.ops.triton.kernels import DEVICE, MARKS

pytestmark = MARKS
NAMES = ("x", "h", "c", "mean", "delta", "bias")


def operands(count: int, steps: int, width: int, biased: bool, seed: int = 0, lengths: bool = False) -> dict[str, Any]:
    """Return an LSTM's operands in double precision. With `lengths`, sequences end at random steps."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(steps + 1, (count,), generator=generator)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "x": normal(count, steps, 4 * width),
        "h": normal(count, width),
        "c": normal(count, width),
        "mean": normal(4 * width, width) / width**0.5,
        "delta": normal(4 * width, width) / width**0.5,
        "bias": normal(4 * width) if biased else None,
        "r": normal(count, 4 * width).sign(),
        "s": normal(count, width).sign(),
        "alive": (torch.arange(steps).unsqueeze(1) < ends).unsqueeze(2) if lengths else None,
    }


def with_one_weight(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the operands without the perturbation."""
    return {**arguments, "delta": None, "r": None, "s": None}


def results(
    arguments: dict[str, Any], dtype: torch.dtype, backend: str, reverse: bool, needs: tuple[str, ...] = NAMES
) -> list[Tensor]:
    """Return outputs, states and gradients, in double precision on the CPU."""
    device = DEVICE if backend == "triton" else torch.device("cpu")
    kinds = {"c": torch.promote_types(dtype, torch.float32), "alive": torch.bool}
    there: dict[str, Any] = {
        name: None if tensor is None else tensor.to(device, kinds.get(name, dtype))
        for name, tensor in arguments.items()
    }
    leaves = [there[name].requires_grad_() for name in needs if there[name] is not None]
    product = recurrent_product(there, there["bias"])
    with choosing(backend):  # pyright: ignore[reportArgumentType]
        y, (h, c) = Scan(LSTM(), product, reverse=reverse)(there["x"], (there["h"], there["c"]), there["alive"])
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
        loss = (y.double() * weights).sum() + h.double().square().sum() + (c.double() * weights[0]).sum()
        tensors = [y, h, c, *torch.autograd.grad(loss, leaves)] if leaves else [y, h, c]
    return [tensor.detach().double().cpu() for tensor in tensors]


def recurrent_product(tensors: dict[str, Any], bias: Tensor | None) -> Straight | Flipped:
    """Return the product of a step, flipped if there is a ΔŴ."""
    op = Linear(tensors["mean"].shape[1], tensors["mean"].shape[0])
    if tensors["delta"] is None:
        return Straight(op, tensors["mean"], bias)
    return Flipped(op, op, tensors["mean"], tensors["delta"], tensors["r"], tensors["s"], bias)


def relative_error(actual: Tensor, exact: Tensor) -> float:
    return float((actual - exact).norm() / exact.norm().clamp_min(1e-9))


def assert_as_close(
    arguments: dict[str, Any], dtype: torch.dtype, reverse: bool, needs: tuple[str, ...] = NAMES
) -> None:
    """Allow at most twice the error of eager code in that dtype, plus a few roundings."""
    exact = results(arguments, torch.float64, "eager", reverse, needs)
    by_definition = results(arguments, dtype, "eager", reverse, needs)
    by_kernel = results(arguments, dtype, "triton", reverse, needs)
    assert len(by_kernel) == len(exact)
    for actual, eager, truth in zip(by_kernel, by_definition, exact, strict=True):
        assert relative_error(actual, truth) <= 2 * relative_error(eager, truth) + 4 * torch.finfo(dtype).eps


@settings(max_examples=12)
@given(
    st.integers(1, 20) | st.sampled_from([64, 65, 70]),
    st.integers(1, 3),
    st.integers(1, 40) | st.sampled_from([63, 64, 130]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.integers(0, 100),
    st.booleans(),
)
def test_any_shape(count, steps, width, biased, reverse, dtype, seed, lengths) -> None:
    assert_as_close(operands(count, steps, width, biased, seed, lengths), dtype, reverse)


@settings(max_examples=8)
@given(
    st.integers(1, 20) | st.just(64),
    st.integers(1, 3),
    st.integers(1, 40) | st.sampled_from([63, 64, 130]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.booleans(),
)
def test_any_shape_with_one_weight(count, steps, width, biased, reverse, dtype, lengths) -> None:
    assert_as_close(with_one_weight(operands(count, steps, width, biased, 0, lengths)), dtype, reverse)


@pytest.mark.parametrize("count", [5, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gates_that_are_nearly_open(count: int, dtype: torch.dtype) -> None:
    arguments = operands(count, 3, 17, False)
    arguments["x"][..., 17:34] += 7  # so that half precision rounds 1 − f of the forget gate away
    assert_as_close(arguments, dtype, False)


@pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-6])
def test_small_numbers_have_small_errors(size: float) -> None:
    arguments = operands(4, 3, 17, True)
    for name in ("x", "h", "c", "bias"):
        arguments[name] *= size
    assert_as_close(arguments, torch.float32, False)
    assert_as_close(with_one_weight(arguments), torch.float32, False)


@pytest.mark.parametrize("needs", [("mean",), ("x", "h", "c"), ("bias",), ()], ids=str)
def test_only_the_needed_gradients_with_one_weight(needs: tuple[str, ...]) -> None:
    assert_as_close(with_one_weight(operands(4, 3, 17, True)), torch.float32, False, needs)


@pytest.mark.parametrize("scheme", ["shared", "flipout"])
@pytest.mark.parametrize("where", ["weight_hh*", "weight_ih*", "weight_*"])
def test_a_layer_whose_sequences_share_the_recurrent_weight(
    scheme: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share it under `shared`, or if it has no noise. One case alone has two layers, which are slow here."""
    layers = 2 if DEVICE.type == "cuda" or (scheme, where) == ("shared", "weight_hh*") else 1
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    served: list[str] = []
    fused = import_module("flipout.ops.triton.lstm").FusedLSTM
    kernel = fused.apply
    monkeypatch.setattr(fused, "apply", lambda *arguments: served.append("kernel") or kernel(*arguments))
    torch.manual_seed(0)
    plain = nn.LSTM(6, 10, layers, bidirectional=True).to(DEVICE)
    model = flipout.perturb(plain, flipout.Gaussian(0.1), scheme=scheme, where=where)
    x, found = torch.randn(4, 3, 6, device=DEVICE, requires_grad=True), []
    for backend in ("triton", "eager"):
        with choosing(backend), flipout.hold(model, 5):  # pyright: ignore[reportArgumentType]
            y, (h, c) = model(x)
            (y.sum() + h.square().sum() + c.sum()).backward()
        found.append([y, h, c, x.grad, *(parameter.grad for parameter in model.parameters())])
        x.grad = None
        model.zero_grad()
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert (len(served) > 0) == (scheme == "shared" or where == "weight_ih*")


@pytest.mark.parametrize("count", [5, 70])  # a few sequences, and many
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reverse", [False, True])
def test_both_ways_in_every_dtype(count: int, dtype: torch.dtype, reverse: bool) -> None:
    assert_as_close(operands(count, 3, 33, True), dtype, reverse)


@pytest.mark.parametrize("count", [5, 70])
@pytest.mark.parametrize("reverse", [False, True])
def test_sequences_that_end_early_keep_their_state(count: int, reverse: bool) -> None:
    assert_as_close(operands(count, 4, 20, True, lengths=True), torch.float32, reverse)


@pytest.mark.parametrize("needs", [("mean",), ("delta",), ("x", "h", "c"), ("bias",), ()], ids=str)
def test_only_the_needed_gradients(needs: tuple[str, ...]) -> None:
    assert_as_close(operands(6, 2, 12, True), torch.float32, False, needs)


def test_kernels_for_few_and_for_many_sequences_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = operands(9, 3, 20, True)
    persistent = results(arguments, torch.float32, "triton", False)
    monkeypatch.setattr("flipout.ops.triton.lstm_persistent._LARGEST_COUNT", 0)
    stepwise = results(arguments, torch.float32, "triton", False)
    torch.testing.assert_close(persistent, stepwise, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("limit", [2**30, 0], ids=["int32", "int64"])
def test_either_index_type(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.base._INT32_PLACES", limit)
    for count in (5, 66):
        assert_as_close(operands(count, 2, 9, True), torch.float32, True)


@pytest.mark.parametrize(("batch_first", "where"), [(False, "weight_hh*"), (True, "weight_*")])
def test_two_layers_in_two_directions(batch_first: bool, where: str) -> None:
    layer = nn.LSTM(7, 10, num_layers=2, bidirectional=True, batch_first=batch_first)
    here = flipout.perturb(layer, flipout.MeanField(std=0.3), where=where)
    there = copy.deepcopy(here).to(DEVICE)
    x = torch.randn(*((5, 3, 7) if batch_first else (3, 5, 7)))
    found = []
    for model, backend in ((here, "eager"), (there, "triton")):
        inputs = x.to(next(model.parameters()).device, copy=True).requires_grad_()
        with choosing(backend), flipout.hold(model, seed=5):  # pyright: ignore[reportArgumentType]
            y, (h, c) = model(inputs)
            (y.square().sum() + h.sum() + c.square().sum()).backward()
        grads = [inputs.grad, *(parameter.grad for parameter in model.parameters())]
        found.append([tensor.detach().cpu() for tensor in (y, h, c, *grads) if tensor is not None])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-5)


def test_packed_sequences_of_a_layer() -> None:
    layer = flipout.perturb(nn.LSTM(5, 8, bidirectional=True), flipout.MultiplicativeGaussian(0.5))
    x, lengths = torch.randn(6, 4, 5), torch.tensor([2, 6, 1, 4])
    found = []
    for model, backend in ((layer, "eager"), (copy.deepcopy(layer).to(DEVICE), "triton")):
        packed = pack_padded_sequence(x.to(next(model.parameters()).device), lengths, enforce_sorted=False)
        with choosing(backend), flipout.hold(model, seed=5):  # pyright: ignore[reportArgumentType]
            y, (h, c) = model(packed)
            (y.data.square().sum() + h.sum() + c.square().sum()).backward()
        grads = [parameter.grad for parameter in model.parameters()]
        found.append([tensor.detach().cpu() for tensor in (y.data, h, c, *grads) if tensor is not None])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-5)


def test_a_second_backward_pass_gives_equal_gradients() -> None:
    layer = flipout.perturb(nn.LSTM(4, 6), flipout.MultiplicativeGaussian(0.5), where="weight_hh*").to(DEVICE)
    with choosing("triton"):
        y, _ = layer(torch.randn(3, 5, 4, device=DEVICE))
        first, second = (
            torch.autograd.grad(y.square().sum(), list(layer.parameters()), retain_graph=True) for _ in range(2)
        )
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@pytest.mark.parametrize("count", [5, 70])
def test_only_the_sequences_of_h_c_and_gates_are_kept(count: int) -> None:
    """In addition to the weights, the first state, and one byte of signs for each sequence and unit."""
    steps, width = 7, 12
    arguments = operands(count, steps, width, True)
    there = {name: tensor.float().to(DEVICE) for name, tensor in arguments.items() if tensor is not None}
    there["mean"].requires_grad_()
    product = recurrent_product(there, there["bias"])
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with choosing("triton"), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y, _ = Scan(LSTM(), product)(there["x"], (there["h"], there["c"]))
    sequences = steps * count * (1 + 4) * width + (steps + 1) * count * width
    assert y.requires_grad
    assert sum(kept.values()) == 4 * (sequences + count * width + 2 * 4 * width * width) + count * width


def test_double_precision_is_refused_if_kernels_are_requested() -> None:
    layer = flipout.perturb(nn.LSTM(4, 6), flipout.MultiplicativeGaussian(0.5)).to(DEVICE).double()
    with choosing("triton"), pytest.raises(BackendUnavailable, match="'lstm'"):
        layer(torch.randn(3, 5, 4, dtype=torch.float64, device=DEVICE))


@pytest.mark.parametrize("change", [dict, with_one_weight], ids=["flipout", "one weight"])
def test_a_bias_need_not_be_contiguous(change: Any) -> None:
    there = change(
        {
            name: tensor if tensor is None else tensor.to(DEVICE, torch.float32)
            for name, tensor in operands(3, 2, 5, True).items()
        }
    )
    outputs = []
    for bias in (there["bias"], there["bias"].repeat_interleave(2)[::2]):
        with torch.no_grad(), choosing("triton"):
            y, _ = Scan(LSTM(), recurrent_product(there, bias))(there["x"], (there["h"], there["c"]))
            outputs.append(y)
    assert torch.equal(*outputs)
