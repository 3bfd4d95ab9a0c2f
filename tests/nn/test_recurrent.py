"""Recurrent layers: their mean, torch's own fast path, precision, autograd and checkpoints."""

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.backend import choosing
from flipout.schemes import SchemeName
from tests.networks import gradients
from tests.nn.test_sequences import KINDS, NOISE, SCHEMES, call, states
from tests.oracles import Case, equal, loop, tensor

LEARNED = flipout.MeanField(std=0.3)

OPTIONS: dict[str, dict[str, Any]] = {
    "LSTM": {"num_layers": 2, "bidirectional": True, "proj_size": 3},
    "GRU": {"num_layers": 2, "bias": False},
    "RNN": {"num_layers": 1, "nonlinearity": "relu", "batch_first": True},
}


def plain_layer(kind: str) -> Any:
    return getattr(nn, kind)(3, 4, **OPTIONS[kind]).double()


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_torchs_layer(kind: str) -> None:
    plain, x = plain_layer(kind), tensor(5, 2, 3)
    layer = flipout.perturb(copy.deepcopy(plain), NOISE)
    assert isinstance(layer, type(plain))
    assert repr(layer).startswith(repr(plain)[:-1])
    assert "weight_hh_l0 ~ Gaussian(std=0.3)" in repr(layer)
    assert repr(layer).endswith("scheme=flipout)")
    layer.flatten_parameters()
    assert [name for name, _ in layer.named_parameters()] == [name for name, _ in plain.named_parameters()]
    other = plain_layer(kind)
    layer.load_state_dict(other.state_dict())
    plain.load_state_dict(layer.state_dict())
    for actual, expected in zip(call(layer.eval(), x), call(other, x), strict=True):
        assert torch.equal(actual, expected)
    for actual, expected in zip(call(plain, x), call(other, x), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_checkpoint_loads_into_mean_field(kind: str, assign: bool) -> None:
    plain, x = plain_layer(kind), tensor(5, 2, 3)
    layer = flipout.perturb(plain_layer(kind), flipout.MeanField(relative=0.5), where="*")
    spreads = {name: p.clone() for name, p in layer.named_parameters() if name.endswith("_rho")}
    assert len(spreads) == len(list(plain.parameters()))
    for _ in range(2):
        layer.load_state_dict(plain.state_dict(), assign=assign)
    assert all(torch.equal(layer.get_parameter(name), value) for name, value in spreads.items())
    assert torch.equal(layer.eval()(x)[0], plain(x)[0])
    layer.reset_parameters()
    for name, value in spreads.items():
        mean = layer.get_parameter(name.removesuffix("_rho"))
        assert not torch.equal(layer.get_parameter(name), value)
        torch.testing.assert_close(F.softplus(layer.get_parameter(name)), (0.5 * mean.abs()).clamp_min(1e-6))


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_copies(kind: str, how: Any) -> None:
    layer, x = flipout.perturb(plain_layer(kind), LEARNED, where="*"), tensor(5, 2, 3)
    other = how(layer)
    with flipout.hold(layer, seed=1), flipout.hold(other, seed=1):
        assert torch.equal(layer(x)[0], other(x)[0])
    with torch.no_grad():
        layer.weight_ih_l0.add_(1)
    for actual in (layer.eval()(x)[0], how(layer).eval()(x)[0]):
        assert not torch.equal(actual, other.eval()(x)[0])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_freeze(kind: str, scheme: Any) -> None:
    layer = flipout.perturb(plain_layer(kind), LEARNED, scheme=scheme, where="*")
    mean, x = copy.deepcopy(layer), tensor(5, 3, 3)
    dim = 0 if layer.batch_first else 1
    with flipout.hold(layer, seed=1, first=4):
        actual = layer(x)[0]
        flipout.freeze(layer, at="draw", example=2)
    assert type(layer) is type(flipout.freeze(mean)) is getattr(nn, kind)
    assert layer.state_dict().keys() == plain_layer(kind).state_dict().keys()
    equal([layer(x)[0].select(dim, 2)], [actual.select(dim, 2)])
    assert not torch.allclose(layer(x)[0], mean(x)[0])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "function"), [("LSTM", "lstm"), ("GRU", "gru"), ("RNN", "rnn_tanh")])
def test_torchs_own_code_runs_where_all_sequences_share_a_weight(
    kind: str, function: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchs_function, seen = getattr(torch._VF, function), []  # pyright: ignore[reportAttributeAccessIssue]

    def counted(*args: Any) -> Any:
        seen.append(next(arg for arg in args if isinstance(arg, list)))
        return torchs_function(*args)

    monkeypatch.setattr(torch._VF, function, counted)
    layer: Any = getattr(flipout.nn, kind)(3, 4, 2, distribution=LEARNED, where="*")
    x: Any = torch.randn(5, 2, 3)
    x = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 2])) if packed else x
    layer(x)
    assert not seen
    with flipout.using(layer, scheme="shared"), flipout.hold(layer):
        call(layer, x)[1].sum().backward()
        weights = flipout.example_weights(layer)
    (formed,) = seen
    assert all(torch.equal(w, weights[name][0]) for w, name in zip(formed, layer._flat_weights_names, strict=True))
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())
    layer.eval()(x)
    assert len(seen) == 2
    assert all(w is layer.get_parameter(name) for w, name in zip(seen[1], layer._flat_weights_names, strict=True))


def relative(actual: Any, truth: Any) -> float:
    """Return the largest relative error of a tensor, measured by its norm."""
    with torch.no_grad():
        return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(actual, truth, strict=True))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_low_precision(kind: str, dtype: torch.dtype, scheme: Any) -> None:
    """At most twice the error of torch's own layer under each example's weights."""
    plain = getattr(nn, kind)(16, 12, 2, bidirectional=True).to(dtype)
    low: Any = flipout.perturb(copy.deepcopy(plain), flipout.MeanField(std=0.1), scheme=scheme, where="*weight*")
    exact = copy.deepcopy(low).double()
    inputs = [t.detach().to(dtype).requires_grad_() for t in (tensor(7, 5, 16), *states(plain, 5))]
    wide = [t.detach().double().requires_grad_() for t in inputs]
    with flipout.hold(low, seed=3), flipout.hold(exact, seed=3):
        actual, truth = call(low, *inputs), call(exact, *wide)
        torchs = loop(Case(plain, tuple(inputs), (1,) * len(inputs), (1, 1, 1), call), low)
    assert all(y.dtype == dtype for y in actual)
    upstream = [torch.randn_like(y) for y in actual]
    leaves, wide_leaves = [*inputs, *low.parameters()], [*wide, *exact.parameters()]
    grads, torchs_grads = (torch.autograd.grad(ys, leaves, upstream) for ys in (actual, torchs))
    true_grads = torch.autograd.grad(truth, wide_leaves, [up.double() for up in upstream])
    assert relative(actual, truth) <= 2 * relative(torchs, truth)
    assert relative(grads, true_grads) <= 2 * relative(torchs_grads, true_grads)


@pytest.mark.parametrize("scheme", SCHEMES[1:], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_c_adds_up_in_single_precision(dtype: torch.dtype, scheme: Any) -> None:
    """An LSTM that adds a little to c at each step: half precision would lose it once c is large."""
    layer: Any = flipout.nn.LSTM(1, 1, distribution=flipout.Gaussian(0.0), scheme=scheme).to(dtype)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        layer.bias_ih_l0.copy_(torch.tensor([0.0, 30.0, 2.0**-11, 0.0]))
    _, (_, c) = layer(torch.zeros(1500, 2, 1, dtype=dtype))
    assert c.dtype == dtype
    expected = torch.full((1, 2, 1), 1500 * 2.0**-12, dtype=torch.float64)
    torch.testing.assert_close(c.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=0.0)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast(kind: str, dtype: torch.dtype, scheme: Any) -> None:
    plain = getattr(nn, kind)(3, 4, 2)
    layer: Any = flipout.perturb(copy.deepcopy(plain), LEARNED, scheme=scheme, where="*")
    x = torch.randn(5, 2, 3, dtype=dtype)
    for state in ((), [torch.zeros(2, 2, 4)] * (1 + (kind == "LSTM"))):
        with torch.autocast("cpu", torch.bfloat16):
            actual, expected = call(layer, x, *state), call(plain, x, *state)
        assert [y.dtype for y in actual] == [y.dtype for y in expected]
        layer.zero_grad()
        torch.cat([y.float().flatten() for y in actual]).square().sum().backward()
        assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("where", [None, "weight_hh*"])
def test_single_precision_is_near_double(where: Any) -> None:
    """Sizes from which oneDNN multiplies, forward and backward."""
    layer: Any = flipout.perturb(nn.LSTM(64, 128), flipout.MeanField(std=0.1), where=where)
    exact, x = copy.deepcopy(layer).double(), torch.randn(20, 50, 64, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    with flipout.hold(layer, seed=3), flipout.hold(exact, seed=3):
        actual, truth = layer(x)[0], exact(wide)[0]
    upstream = torch.randn_like(actual)
    grads = torch.autograd.grad(actual, [x, *layer.parameters()], upstream)
    true_grads = torch.autograd.grad(truth, [wide, *exact.parameters()], upstream.double())
    assert relative([actual], [truth]) < 1e-5
    assert relative(grads, true_grads) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_double_backward(kind: str) -> None:
    layer = getattr(flipout.nn, kind)(2, 2, distribution=LEARNED, bias=False).double()
    names, values = zip(*layer.named_parameters(), strict=True)

    def f(x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        return call(lambda *args: torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), args), x)

    with flipout.hold(layer, seed=1):
        inputs = (tensor(3, 2, 2), *values)
        assert torch.autograd.gradcheck(f, inputs, fast_mode=True)
        assert torch.autograd.gradgradcheck(f, inputs, fast_mode=True)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_functional_transforms(kind: str, scheme: Any) -> None:
    layer, x = flipout.perturb(plain_layer(kind), LEARNED, scheme=scheme), tensor(3, 3, 3, grad=False)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], seed: Tensor) -> Tensor:
        with flipout.hold(layer, seed=seed):
            return torch.func.functional_call(layer, parameters, (x,))[0].square().sum()

    seeds = torch.arange(3)
    gradients_by_name = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, seeds)
    for i, seed in enumerate(seeds):
        layer.zero_grad()
        loss(dict(layer.named_parameters()), seed).backward()
        for name, gradient in gradients(layer).items():
            equal([gradients_by_name[name][i]], [gradient])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("wrap", ["ours", "reentrant", "modern"])
@pytest.mark.parametrize("scheme", ["shared", "flipout"])
def test_checkpoints(scheme: SchemeName, wrap: str, inside: bool) -> None:
    def checkpoint(f: Any, x: Tensor) -> Any:
        if wrap == "ours":
            return flipout.checkpoint(call, f, x)
        return torch.utils.checkpoint.checkpoint(call, f, x, use_reentrant=wrap == "reentrant")

    results = []
    for around in (call, checkpoint):
        torch.manual_seed(1)
        model: Any = flipout.perturb(nn.Sequential(nn.LSTM(3, 4, 2, dropout=0.3)), LEARNED, scheme=scheme)
        x = torch.ones(5, 2, 3, requires_grad=True)
        if inside:
            model.forward = lambda x, around=around, layer=model[0]: around(layer, x)
        y, h, _ = model(x) if inside else around(model, x)
        (y.square().sum() + h.sum()).backward()
        results.append(gradients(model))
    torch.testing.assert_close(results[0], results[1])


@pytest.fixture
def compiling() -> Any:
    torch.compiler.reset()
    with torch._dynamo.config.patch(allow_rnn=True):  # torch leaves recurrent layers to eager unless told
        yield
    torch.compiler.reset()


@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize("kind", ["LSTM", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_compile(kind: str) -> None:
    layer, x, results = flipout.perturb(getattr(nn, kind)(3, 4), NOISE), torch.randn(2, 2, 3), []
    for f in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.zero_grad()
        with flipout.hold(layer, seed=1):
            y, _ = f(x)
        y.square().sum().backward()
        results.append((y.detach(), gradients(layer)))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_without_sequences(dtype: torch.dtype) -> None:
    layer = flipout.perturb(nn.LSTM(3, 4).to(dtype), flipout.MultiplicativeGaussian(0.5))
    y, (h, c) = layer(torch.randn(5, 0, 3, dtype=dtype))
    assert (y.shape, h.shape, c.shape) == ((5, 0, 4), (1, 0, 4), (1, 0, 4))


def test_a_backward_pass_that_is_written_out_refuses_to_be_differentiated() -> None:
    """Even if the gradient it receives is a constant, which torch's own check lets pass, with wrong numbers."""
    layer = flipout.perturb(nn.LSTM(3, 4), flipout.Gaussian(0.1), where="weight_hh*")
    x = torch.randn(5, 2, 3, requires_grad=True)
    with pytest.raises(errors.Unsupported, match="double precision"):
        torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
    with choosing("eager"), flipout.hold(layer, seed=1):
        (grad,) = torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
    grad.square().sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_a_packed_sequence_with_rows_too_many() -> None:
    layer = flipout.perturb(nn.LSTM(3, 4), flipout.Gaussian(0.1))
    packed = nn.utils.rnn.PackedSequence(torch.randn(10, 3), torch.tensor([3, 3, 3]))
    with pytest.raises(errors.InvalidInput, match="10 rows with batch_sizes for 9"):
        layer(packed)


@pytest.mark.parametrize("kind", KINDS)
def test_shared_weights_under_vmap(kind: str) -> None:
    """torch's own layers have no batching rule."""
    layer: Any = flipout.perturb(getattr(nn, kind)(3, 4).double(), NOISE, scheme="shared")
    x, seeds = torch.randn(5, 2, 3, dtype=torch.float64), torch.arange(3)

    def output(seed: Tensor) -> Tensor:
        with flipout.hold(layer, seed=seed):
            return layer(x)[0]

    together = torch.func.vmap(output)(seeds)
    torch.testing.assert_close(together, torch.stack([output(seed) for seed in seeds]))
