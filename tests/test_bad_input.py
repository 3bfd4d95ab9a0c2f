"""Bad input raises an error that names the layer, what was given, what was expected and the fix."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors
from tests.networks import GAUSSIAN, encoder, mlp, same_state, state

SCHEMES = ["shared", "flipout", flipout.Flipout(group=2), "independent", flipout.LocalReparam(per_position=True)]


LAYERS: dict[str, tuple] = {
    "linear": (lambda: nn.Linear(4, 3), (0, 4)),
    "tokens": (lambda: nn.Linear(4, 3), (0, 5, 4)),
    "no tokens": (lambda: nn.Linear(4, 3), (2, 0, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2), (0, 4, 7)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (0, 2, 6, 6)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (0, 2, 4, 4, 4)),
    "transposed1d": (lambda: nn.ConvTranspose1d(4, 3, 3), (0, 4, 5)),
    "transposed2d": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2), (0, 2, 4, 4)),
    "transposed3d": (lambda: nn.ConvTranspose3d(2, 3, 2), (0, 2, 3, 3, 3)),
    "embedding": (lambda: nn.Embedding(7, 5, padding_idx=1), (0, 4)),
    "bag": (lambda: nn.EmbeddingBag(7, 5, mode="mean"), (0, 4)),
    "layer norm": (lambda: nn.LayerNorm(5), (0, 5)),
    "rms norm": (lambda: nn.RMSNorm(5), (0, 3, 5)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (0, 4, 3)),
    "batch norm": (lambda: nn.BatchNorm1d(4).eval(), (0, 4)),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), (0, 3, 8)),
    "attention, time first": (lambda: nn.MultiheadAttention(8, 2), (3, 0, 8)),
    "encoder": (lambda: encoder(layers=1), (0, 3, 8)),
}


@pytest.mark.parametrize("distribution", [GAUSSIAN, flipout.MeanField()], ids=["fixed", "learned"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_an_empty_batch_gives_an_empty_output(name, scheme, distribution):
    make, shape = LAYERS[name]
    if name == "bag" and isinstance(scheme, flipout.LocalReparam):
        pytest.skip("refused")
    plain = make()
    x = torch.zeros(shape, dtype=torch.long) if name in ("embedding", "bag") else torch.zeros(shape, requires_grad=True)
    inputs = (x, x, x) if "attention" in name else (x,)
    expected = _first(plain(*inputs))
    model = flipout.perturb(plain, distribution, scheme=scheme, where="*")
    with flipout.hold(model, seed=1):
        y = _first(model(*inputs))
    assert y.shape == expected.shape
    assert y.numel() == 0
    y.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def _first(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


WRONG_SIZES = [
    ("linear", (5, 3), r"fc \(Linear\): input of shape \(5, 3\); expected \(…, 4\)"),
    ("linear", (), r"fc \(Linear\): input of shape \(\)"),
    ("conv1d", (5, 3, 7), r"fc \(Conv1d\): input of shape \(5, 3, 7\); expected \(N, 4, …\)"),
    ("conv2d", (5, 2, 6), r"fc \(Conv2d\): input of shape \(5, 2, 6\); expected \(N, 2, …\) with 2 spatial"),
    ("conv2d", (2,), r"fc \(Conv2d\)"),
    ("transposed2d", (5, 3, 4, 4), r"fc \(ConvTranspose2d\): input of shape \(5, 3, 4, 4\); expected \(N, 2"),
    ("attention", (5, 3, 6), r"fc \(MultiheadAttention\): query of shape \(5, 3, 6\); expected \(N, L, 8\)"),
]


@pytest.mark.parametrize(("name", "shape", "message"), WRONG_SIZES)
def test_wrong_feature_size(name, shape, message):
    model = flipout.perturb(nn.ModuleDict({"fc": LAYERS[name][0]()}), GAUSSIAN)
    x = torch.randn(shape)
    with pytest.raises(errors.InvalidInput, match=message):
        model["fc"](*((x, x, x) if name == "attention" else (x,)))


@pytest.mark.parametrize(
    ("shape", "name"), [((3, 4), "layer norm"), ((3, 4, 4), "rms norm"), ((3, 3, 2), "group norm")]
)
def test_wrong_feature_size_of_norms(shape, name):
    model = flipout.perturb(LAYERS[name][0](), GAUSSIAN, where="*")
    with pytest.raises((errors.InvalidInput, RuntimeError)):
        model(torch.randn(shape))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", ["linear", "conv2d", "attention", "transposed2d"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16, torch.bool])
def test_wrong_dtype(name, dtype, scheme):
    make, shape = LAYERS[name]
    model = flipout.perturb(make(), GAUSSIAN, scheme=scheme)
    x = torch.ones(3, *shape[1:]).to(dtype)
    with pytest.raises(errors.InvalidInput, match=f"input of dtype {dtype}; expected torch.float32.*Convert it, .to"):
        model(*((x, x, x) if name == "attention" else (x,)))


@pytest.mark.parametrize("name", ["linear", "conv2d"])
def test_integer_input_under_autocast(name):
    make, shape = LAYERS[name]
    model = flipout.perturb(make(), GAUSSIAN)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(errors.InvalidInput, match=r"input of dtype torch\.int64"),
    ):
        model(torch.ones(3, *shape[1:], dtype=torch.int64))


@pytest.mark.parametrize("name", ["embedding", "bag"])
def test_indices_that_are_not_integers(name):
    model = flipout.perturb(LAYERS[name][0](), GAUSSIAN, where="*")
    with pytest.raises(errors.InvalidInput, match=r"indices of dtype torch.float32; expected int64 or int32: x.long"):
        model(torch.ones(3, 4))


TENSOR_LAYERS: dict[str, Any] = {name: make for name, (make, _) in LAYERS.items() if name != "encoder"} | {
    "lstm": lambda: nn.LSTM(4, 3),
    "gru cell": lambda: nn.GRUCell(4, 3),
}


@pytest.mark.parametrize("name", TENSOR_LAYERS)
@pytest.mark.parametrize("value", [np.ones((3, 4), np.float32), np.ones((3, 4), np.int64), [[1.0] * 4]], ids=str)
def test_arrays_and_lists_are_refused(name, value):
    model = flipout.perturb(TENSOR_LAYERS[name](), GAUSSIAN, where="*")
    argument = "query" if "attention" in name else "input"
    kind = re.escape(str(type(value)))
    message = rf"\w+: {argument} of {kind}; expected a tensor: torch.as_tensor\({argument}\)"
    with flipout.sampling(model), pytest.raises(errors.InvalidInput, match=message):
        model(*([value] * (3 if "attention" in name else 1)))


@pytest.mark.parametrize("index", [7, -1])
@pytest.mark.parametrize("scheme", SCHEMES[:4], ids=str)
@pytest.mark.parametrize("name", ["embedding", "bag"])
def test_indices_out_of_range(name, scheme, index):
    model = flipout.perturb(LAYERS[name][0](), GAUSSIAN, where="*", scheme=scheme)
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((3, 4), index))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_another_batch_size_inside_hold(scheme):
    model = flipout.perturb(mlp(), GAUSSIAN, scheme=scheme)
    with flipout.hold(model):
        model(torch.randn(3, 4))
        if scheme == "shared":  # one weight for all: nobody counts
            assert model(torch.randn(5, 4)).shape == (5, 3)
            return
        with pytest.raises(errors.ExampleCount, match=r"0 \(Linear\): the input has 5 examples, but this draw has 3"):
            model(torch.randn(5, 4))


def test_an_asymmetric_distribution_under_flipout():
    model = mlp()
    before = state(model)
    message = r"0\.weight: flipout can never serve DropConnect\(p=0\.2\).*Use DropConnect\(p=0\.5\).*'independent'"
    with pytest.raises(errors.AsymmetricDistribution, match=message):
        flipout.perturb(model, flipout.DropConnect(0.2))
    assert same_state(before, state(model))
    with pytest.raises(errors.AsymmetricDistribution, match=r"Linear\.weight"):
        flipout.nn.Linear(4, 3, distribution=flipout.DropConnect(0.2))
    flipout.perturb(model, flipout.DropConnect(0.2), scheme="independent")


BAD_STDS = [-0.1, math.nan, math.inf, torch.tensor([0.1, -1.0]), {"*": -0.1}]


@pytest.mark.parametrize("std", BAD_STDS, ids=str)
@pytest.mark.parametrize("kind", [flipout.Gaussian, flipout.MultiplicativeGaussian, flipout.Rademacher])
def test_invalid_standard_deviations(kind, std):
    with pytest.raises(
        errors.InvalidArgument, match=rf"{kind.__name__}: std=.*; expected a finite standard deviation ≥ 0"
    ):
        kind(std)


@pytest.mark.parametrize(
    "options", [{"std": -1.0}, {"std": math.nan}, {"std": 0.0}, {"relative": -1.0}, {"least": 0.0}], ids=str
)
def test_invalid_initial_spreads(options):
    with pytest.raises(errors.InvalidArgument, match=r"MeanField: .* given; .* finite number > 0"):
        flipout.MeanField(**options)


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, math.nan, {"*": 1.0}], ids=str)
def test_invalid_drop_probabilities(p):
    with pytest.raises(errors.InvalidArgument, match=r"DropConnect: p=.*; expected a drop probability in \[0, 1\)"):
        flipout.DropConnect(p)


def test_a_std_that_does_not_fit_its_parameter():
    model = mlp()
    before = state(model)
    with pytest.raises(errors.InvalidArgument, match=r"0\.weight: std of shape \(5,\) given.*Parameter's \(6, 4\)"):
        flipout.perturb(model, flipout.Gaussian(torch.ones(5)))
    assert same_state(before, state(model))
    with pytest.raises(errors.InvalidArgument, match=r"Linear\.weight: std of shape \(2, 4\)"):
        flipout.nn.Linear(4, 3, distribution=flipout.Gaussian(torch.ones(2, 4)))
    flipout.perturb(model, flipout.Gaussian(torch.rand(6, 1)), where="0.weight")(torch.randn(2, 4))


def test_local_reparam_over_tokens():
    model = flipout.perturb(nn.Linear(4, 3), GAUSSIAN, scheme="local_reparam")
    with pytest.raises(errors.SampledPerPosition, match=r"shape \(2, 5, 4\).*5 times.*per_position=True"):
        model(torch.randn(2, 5, 4))


def test_data_parallel_threads_are_refused():
    layer: nn.Module = flipout.perturb(nn.Linear(4, 3), GAUSSIAN)
    layer._is_replica = True  # pyright: ignore[reportArgumentType]  # nn.DataParallel marks its copies so
    with pytest.raises(errors.Unsupported, match="DistributedDataParallel"):
        layer(torch.randn(2, 4))


def test_complex_parameters_are_refused():
    with pytest.raises(errors.Unsupported, match=r"complex64.*only real"):
        flipout.perturb(nn.Linear(4, 3, dtype=torch.complex64), flipout.Gaussian(1.0))


@pytest.mark.parametrize("where", [nn.Linear, nn.Linear(2, 2)])
def test_a_layer_or_a_type_as_where(where):
    with pytest.raises(errors.InvalidArgument, match="expected a glob"):
        flipout.perturb(nn.Sequential(nn.Linear(4, 3)), flipout.Gaussian(1.0), where=where)


def test_a_scheme_without_a_distribution():
    layer = flipout.nn.Linear(4, 3, distribution=flipout.Gaussian(0.1))
    with pytest.raises(errors.InvalidArgument, match="scheme='shared' given without a distribution"):
        flipout.perturb(nn.Sequential(layer), scheme="shared")


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("gaussian", "flipout.Gaussian(0.1)"),
        (0.1, "flipout.Gaussian(0.1)"),
        (flipout.MeanField, "flipout.MeanField(…)"),
    ],
)
def test_anything_but_a_distribution_is_refused(value: Any, fix: str) -> None:
    message = rf"distribution={re.escape(repr(value))}: expected a Distribution, such as {re.escape(fix)}"
    for make in (flipout.nn.Linear, flipout.nn.LSTM):
        with pytest.raises(errors.InvalidArgument, match=message):
            make(4, 3, distribution=value)
    with pytest.raises(errors.InvalidArgument, match=message):
        flipout.perturb(nn.Linear(4, 3), value)


def test_a_layer_without_a_distribution_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"flipout\.nn\.LSTM\(…, distribution="):
        flipout.nn.LSTM(4, 5)


def test_a_glob_that_matches_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    with pytest.raises(errors.InvalidArgument, match=r"'O\.\*' matches none .* 0\.weight, 0\.bias"):
        flipout.perturb(model, flipout.Gaussian({"O.*": 0.1, "*": 0.2}))
    assert type(model[0]) is nn.Linear
    flipout.perturb(model, flipout.Gaussian({"0.*": 0.1, "*": 0.2}))
