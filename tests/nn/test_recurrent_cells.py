"""Recurrent cells against the per-example loop, and models that have cells and recurrent layers inside."""

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from flipout import errors
from tests.networks import gradients, same_state, state
from tests.nn.test_sequences import KINDS, NOISE, SCHEMES
from tests.oracles import Case, Draws, check, draws, equal, offsets, tensor

CELLS = tuple(f"{kind}Cell" for kind in KINDS)
LEARNED = flipout.MeanField(std=0.3)
sizes = st.integers(1, 3)


class Steps(nn.Module):
    """A cell, called at each time step of (N, time, features) or (time, features)."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """The output and the last states, one after the other."""
        outputs: list[Tensor] = []
        for step in x.unbind(-2):
            hx = [state if isinstance(self.cell, nn.LSTMCell) else state[0]] if state else []
            last = self.cell(step, *hx)
            state = last if isinstance(last, tuple) else (last,)
            outputs.append(state[0])
        return torch.stack(outputs, -2), *state


@st.composite
def cells(draw: Any) -> tuple[Any, Any]:
    """Steps of a cell with drawn options, and `where` to perturb it."""
    kind, bias = draw(st.sampled_from(CELLS)), draw(st.booleans())
    options = {"nonlinearity": draw(st.sampled_from(["tanh", "relu"]))} if kind == "RNNCell" else {}
    module = Steps(getattr(nn, kind)(draw(sizes), draw(sizes), bias, **options))
    globs = [None, "*", "*weight_hh", "*weight_ih", *(["*bias*"] if bias else [])]
    return module, draw(st.sampled_from(globs))


def states(steps: Any, *rows: int) -> tuple[Tensor, ...]:
    return tuple(tensor(*rows, steps.cell.hidden_size) for _ in range(1 + isinstance(steps.cell, nn.LSTMCell)))


@settings(max_examples=30)
@given(data=st.data(), draw=draws, offset=offsets)
def test_batches(data: st.DataObject, draw: Draws, offset: int) -> None:
    module, where = data.draw(cells())
    rows = draw.rows * data.draw(sizes)
    hx = states(module, rows) if data.draw(st.booleans()) else ()
    inputs = (tensor(rows, data.draw(sizes), module.cell.input_size), *hx)
    check(Case(module, inputs, (0,) * len(inputs), (0, 0, 0), where=where), draw, offset)


@settings(max_examples=8)
@given(data=st.data(), first=st.integers(0, 300), offset=offsets)
def test_unbatched(data: st.DataObject, first: int, offset: int) -> None:
    module, where = data.draw(cells())
    inputs = (tensor(2, module.cell.input_size), *(states(module) if data.draw(st.booleans()) else ()))
    check(Case(module, inputs, (None,) * len(inputs), (), where=where), Draws(first), offset)


class Beside(nn.Module):
    """A layer, and a cell that has its weights."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.steps = getattr(nn, kind)(3, 4, batch_first=True), Steps(getattr(nn, f"{kind}Cell")(3, 4))
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.steps.cell, name, getattr(self.layer, f"{name}_l0"))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x)[0], self.steps(x)[0]


@pytest.mark.parametrize("distribution", [NOISE, LEARNED], ids=["fixed", "learned"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_in_a_loop_is_the_layer(kind: str, scheme: Any, distribution: flipout.Distribution) -> None:
    model: Any = flipout.perturb(Beside(kind).double(), distribution, scheme=scheme, where="*")
    x = tensor(3, 4, 3)
    first, second = model(x)
    equal([first], [second])
    assert not torch.allclose(first, model(x)[0])
    assert not (model.steps.cell(x[:, 0])[0] == model.steps.cell(x[:, 0])[0]).all()  # outside its root: its own root
    grads = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (first, second)]
    equal(*grads)


@pytest.mark.parametrize("kind", CELLS)
def test_the_mean_is_torchs_cell(kind: str) -> None:
    plain, x = getattr(nn, kind)(3, 4, bias=False), torch.randn(2, 3)
    layer = flipout.perturb(copy.deepcopy(plain), LEARNED)
    assert isinstance(layer, type(plain))
    assert repr(layer).startswith(repr(plain)[:-1])
    layer.reset_parameters()
    assert torch.equal(layer.weight_hh_rho, flipout.perturb(copy.deepcopy(plain), LEARNED).weight_hh_rho)
    layer.load_state_dict(plain.state_dict())
    others = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    for other in (layer, *others):
        for actual, expected in zip(other.eval()(x), plain(x), strict=True):
            assert torch.equal(actual, expected)
    with flipout.hold(layer, seed=1):
        seen = layer(x)
        with flipout.hold(others[0], seed=1):
            assert torch.equal(others[0](x)[0], seen[0])
        flipout.freeze(layer, at="draw", example=1)
    flipout.freeze(others[1])
    assert type(layer) is type(others[1]) is type(plain)
    assert torch.equal(others[1](x)[0], plain(x)[0])
    pick = (lambda y: y[0][1]) if kind == "LSTMCell" else (lambda y: y[1])
    torch.testing.assert_close(pick(layer(x)), pick(seen))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", CELLS)
def test_bad_inputs_are_named(kind: str, scheme: Any) -> None:
    cell = getattr(flipout.nn, kind)(3, 4, distribution=NOISE, scheme=scheme)
    x, h, pair = torch.randn(2, 3), torch.zeros(2, 4), kind == "LSTMCell"
    both = (lambda part: (part, part)) if pair else (lambda part: part)
    shapes = r"\[\(2, 4\), \(2, 4\)\]" if pair else r"\[\(2, 4\)\]"
    bad: list[tuple[str, Any, Any]] = [
        (r"input of shape \(2, 4\); expected \(N, 3\), or \(3,\)", torch.randn(2, 4), None),
        (r"input of shape \(1, 2, 3\)", x[None], None),
        (r"input of dtype torch\.float64; expected torch\.float32", x.double(), None),
        (r"hx of dtype torch\.float64; expected torch\.float32", x, both(h.double())),
        *((f"hx of shapes .* expected {shapes}", x, hx) for hx in (both(h[:1]), both(h[:, :3]), h if pair else (h,))),
        (r"hx of shapes .* expected \[\(4,\)", x[0], both(h)),
    ]
    with flipout.hold(cell):
        for message, x, hx in bad:
            with pytest.raises(errors.InvalidInput, match=f"{kind}: {message}"):
                cell(x, hx)
        assert cell(torch.randn(7, 3))[0].shape == ((7, 4) if pair else (4,))


def test_an_unknown_nonlinearity_is_refused() -> None:
    cell = flipout.perturb(nn.RNNCell(3, 4, nonlinearity="sigmoid"), NOISE)
    with pytest.raises(errors.InvalidArgument, match="nonlinearity='sigmoid'; expected 'tanh' or 'relu'"):
        cell(torch.randn(2, 3))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", CELLS)
def test_autocast(kind: str, dtype: torch.dtype, scheme: Any) -> None:
    plain = Steps(getattr(nn, kind)(3, 4))
    model: Any = flipout.perturb(copy.deepcopy(plain), LEARNED, scheme=scheme, where="*")
    x = torch.randn(2, 5, 3, dtype=dtype)
    for hx in ((), [torch.zeros(2, 4)] * (1 + (kind == "LSTMCell"))):
        with torch.autocast("cpu", torch.bfloat16):
            actual, expected = model(x, *hx), plain(x, *hx)
        assert [y.dtype for y in actual] == [y.dtype for y in expected]
        actual[0].float().square().sum().backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())


class LanguageModel(nn.Module):
    """Takes words (time, N)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.decoder = nn.Embedding(7, 4), nn.Linear(4, 7)
        self.decoder.weight = self.embedding.weight
        self.lstm = nn.LSTM(4, 4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.lstm(self.embedding(x))[0])


@pytest.mark.parametrize("where", ["*", None, ["decoder.weight", "lstm.weight_hh*"]])
@pytest.mark.parametrize("offset", range(0, 8, 2))
def test_a_language_model_with_a_tied_embedding(where: Any, offset: int) -> None:
    x = torch.randint(7, (3, 4))
    check(Case(LanguageModel(), (x,), (1,), (1,), where=where, batch_dim=1), Draws(offset, 1 + offset % 4 // 2), offset)


def test_conversion_of_a_language_model() -> None:
    model: Any
    counts = {None: (5, 10), "*": (10, 10), "lstm.*_l1": (4, 10), "embedding.weight": (1, 10)}
    for where, (noisy, all_of_them) in counts.items():
        for distribution, spreads in ((NOISE, 0), (LEARNED, noisy)):
            model = flipout.perturb(LanguageModel(), distribution, where=where, batch_dim=1)
            assert model.decoder.weight is model.embedding.weight
            report = str(flipout.summary(model)).splitlines()[-1]
            learned = f"; perturb added {spreads} learned spread{'s' * (spreads > 1)}" if spreads else ""
            assert report == f"{noisy} of {all_of_them} Parameters are perturbed{learned}."
    model = flipout.perturb(LanguageModel(), LEARNED, where="embedding.weight")
    assert model.decoder.weight_rho is model.embedding.weight_rho
    assert type(model.lstm) is nn.LSTM
    model = flipout.perturb(LanguageModel(), NOISE, where="*")
    with pytest.raises(errors.ExampleCount, match=r"lstm \(LSTM\): the input has 4 examples, but this draw has 3"):
        model(torch.randint(7, (3, 4)))


class Towers(nn.Module):
    """Two layers with some weights in common."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.second = (getattr(nn, kind)(4, 4, 2, batch_first=True) for _ in range(2))
        self.second.weight_hh_l0, self.second.weight_ih_l1 = self.first.weight_hh_l0, self.first.weight_hh_l1

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)[0])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_tied_between_layers(kind: str) -> None:
    for offset in range(0, 8, 2):
        check(Case(Towers(kind), (tensor(4, 2, 4),), where="*weight_hh*"), Draws(1), offset)
    model: Any = flipout.perturb(Towers(kind), NOISE)
    with flipout.hold(model):
        model(torch.randn(3, 2, 4))
        first, second = (flipout.example_weights(layer) for layer in (model.first, model.second))
    assert torch.equal(first["weight_hh_l0"], second["weight_hh_l0"])
    assert torch.equal(first["weight_hh_l1"], second["weight_ih_l1"])


@pytest.mark.parametrize("kind", [*KINDS, *CELLS])
def test_refused_conversions_change_nothing(kind: str) -> None:
    model = nn.ModuleDict({"rnn": getattr(nn, kind)(4, 4), "fc": nn.Linear(4, 4)})
    before = state(model)
    with pytest.raises(errors.Unsupported, match=r"rnn: scheme 'local_reparam' given; it can never .* every time step"):
        flipout.perturb(model, NOISE, scheme="local_reparam")
    with pytest.raises(errors.InvalidArgument, match=rf"names rnn, a {kind}, whose layout is .* Leave it out"):
        flipout.perturb(model, NOISE, batch_dim={"rnn": 1})
    assert same_state(before, state(model))
    flipout.perturb(model, NOISE, batch_dim=1)
    assert isinstance(model["rnn"], getattr(flipout.nn, kind))
    with (
        pytest.raises(errors.Unsupported, match="never"),
        flipout.using(model["rnn"], scheme="local_reparam"),
    ):
        pass
    name = "weight_hh" if kind in CELLS else "weight_hh_l0"
    computed = nn.ModuleDict({"rnn": nn.utils.parametrizations.weight_norm(getattr(nn, kind)(4, 4), name)})
    with pytest.raises(errors.Unsupported, match=rf"rnn\.{name} is parametrised \(weight_norm"):
        flipout.perturb(computed, NOISE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CELLS)
def test_compile(kind: str) -> None:
    torch.compiler.reset()
    model, x, results = flipout.perturb(Steps(getattr(nn, kind)(3, 4)), NOISE), torch.randn(2, 2, 3), []
    for f in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        with flipout.hold(model, seed=1):
            y = f(x)[0]
        y.square().sum().backward()
        results.append((y.detach(), gradients(model)))
    torch.testing.assert_close(results[1], results[0])
