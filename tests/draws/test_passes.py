"""A pass under a held draw: first, rows, group, antithetic, chunks, and the number of examples."""

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.draws.draw import from_seed
from flipout.draws.passes import Pass
from tests.networks import gradients, gradients_if_the_seed_changes, mlp

SCHEMES = ["shared", "flipout", flipout.Flipout(group=3), "independent"]
DISTRIBUTIONS = [flipout.Gaussian(0.4), flipout.MeanField(std=0.4), flipout.DropConnect(0.5)]


def model_of(scheme, distribution=DISTRIBUTIONS[0]) -> Any:
    return flipout.perturb(mlp().double(), distribution, scheme=scheme, where="*")


def seen_weights(model: Any, count: int, **options) -> Tensor:
    with flipout.hold(model, seed=11, **options):
        model(torch.zeros(count, 4, dtype=torch.float64))
        return flipout.example_weights(model[0])["weight"].detach()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sizes", [(7,), (1, 6), (3, 0, 4), (2, 2, 2, 1)])
def test_chunks_of_a_batch_equal_the_whole_batch(scheme, sizes):
    model, x = model_of(scheme), torch.randn(7, 4, dtype=torch.float64)
    with flipout.hold(model, seed=11, first=2):
        whole = model(x)
    parts = []
    for start, chunk in zip(itertools.accumulate(sizes, initial=2), x.split(sizes), strict=False):
        with flipout.hold(model, seed=11, first=start):
            parts.append(model(chunk))
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_first_selects_later_examples(scheme):
    model = model_of(scheme)
    assert torch.equal(seen_weights(model, 6)[2:], seen_weights(model, 4, first=2))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_of_an_example_see_the_same_weights(scheme):
    model, x = model_of(scheme), torch.randn(3, 4, dtype=torch.float64)
    with flipout.hold(model, seed=11, rows=2):
        repeated = model(x.repeat_interleave(2, 0))
        assert flipout.example_weights(model[0])["weight"].shape[0] == 3
    with flipout.hold(model, seed=11):
        single = model(x)
    torch.testing.assert_close(repeated, single.repeat_interleave(2, 0), rtol=0, atol=1e-12)


def test_a_group_shares_its_base():
    model = model_of("flipout")
    noise = (seen_weights(model, 6, group=2) - model[0].weight).abs()
    assert torch.allclose(noise[::2], noise[1::2])
    assert not torch.allclose(noise[0], noise[2])
    assert torch.equal(seen_weights(model, 6, group=2), seen_weights(with_scheme(model, flipout.Flipout(group=2)), 6))


def with_scheme(model: Any, scheme: flipout.Scheme) -> Any:
    other = model_of(scheme)
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_antithetic_negates_every_perturbation(scheme, distribution):
    model = model_of(scheme, distribution)
    mean = torch.stack((seen_weights(model, 5), seen_weights(model, 5, antithetic=True))).mean(0)
    torch.testing.assert_close(mean, model[0].weight.expand(5, -1, -1).detach(), rtol=0, atol=1e-12)


def test_sign_seed_changes_the_signs_only():
    model = model_of("flipout")
    a, b = (seen_weights(model, 5, sign_seed=seed) - model[0].weight for seed in (1, 2))
    assert torch.allclose(a.abs(), b.abs())
    assert not torch.allclose(a, b)


def test_a_seed_is_64_bits_and_may_live_in_a_tensor():
    model, x = model_of("flipout"), torch.randn(3, 4, dtype=torch.float64)
    outputs = []
    for seed in (7, torch.tensor(7), 7 + 2**64, 7 + 2**33, -7):
        with flipout.hold(model, seed=seed):
            outputs.append(model(x))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    assert not any(torch.equal(outputs[0], other) for other in outputs[3:])


@pytest.mark.parametrize(
    "options",
    [{"first": -1}, {"rows": 0}, {"group": 0}, {"rows": 1.5}, {"first": True}, {"seed": 1.0}, {"seed": torch.ones(2)}],
)
def test_bad_fields_are_refused(options):
    with pytest.raises(errors.InvalidArgument, match=next(iter(options))):
        from_seed(**{"seed": 1, **options})
    with pytest.raises(errors.InvalidArgument), flipout.hold(model_of("flipout"), **{"seed": 1, **options}):
        pass


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.decode = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.embed(x).flatten(0, 1))


def test_under_shared_nobody_counts():
    model = flipout.perturb(Folded(), flipout.Gaussian(0.1), scheme="shared")
    with flipout.hold(model, seed=1):
        y = model(torch.randn(2, 5, 4))
        assert flipout.example_weights(model.embed)["weight"].shape[0] == 2
    assert y.shape == (10, 3)


def test_a_shared_layer_does_not_bind_the_count():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = flipout.nn.Linear(4, 4, distribution=flipout.Gaussian(0.1), scheme="shared")
            self.second = flipout.nn.Linear(4, 4, distribution=flipout.Gaussian(0.1), scheme="flipout")

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x.flatten(0, 1)).view(x.shape))

    model, x, y = flipout.perturb(Mixed()), torch.randn(2, 5, 4), torch.empty(0)
    for _ in range(3):
        torch.manual_seed(4)
        y = model(x)
    with flipout.hold(model, seed=int((torch.manual_seed(4), torch.randint(2**63 - 1, ()))[1])):
        model(x)
        seen = flipout.example_weights(model.second)["weight"]
        hidden = torch.nn.functional.linear(x, flipout.example_weights(model.first)["weight"][0], model.first.bias)
    assert len(seen) == 2
    torch.testing.assert_close(y, torch.einsum("ntf,nof->nto", hidden, seen) + model.second.bias)


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_a_flattened_input_is_refused(scheme):
    model = flipout.perturb(Folded(), flipout.Gaussian(0.1), scheme=scheme)
    if scheme == "shared":  # one weight for all: nobody counts
        assert model(torch.randn(2, 5, 4)).shape == (10, 3)
        return
    with pytest.raises(errors.ExampleCount, match=r"decode \(Linear\).*10 examples.*has 2 \(fixed by embed.*batch_dim"):
        model(torch.randn(2, 5, 4))
    model.eval()(torch.randn(2, 5, 4))


def test_another_batch_size_inside_hold_is_refused():
    model = model_of("flipout")
    with flipout.hold(model):
        model(torch.zeros(3, 4, dtype=torch.float64))
        with pytest.raises(
            errors.ExampleCount, match=r"0 \(Linear\).*4 examples.*has 3.*hold\(model, seed=…, first=0 \+ 3\)"
        ):
            model(torch.zeros(4, 4, dtype=torch.float64))
        model(torch.zeros(3, 4, dtype=torch.float64))


class Last(nn.Module):
    """A head on what a recurrent layer has seen last, of inputs (N, time, features)."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.l, self.head = nn.LSTM(3, 4, **options), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.l(x)[0][:, -1])


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(errors.ExampleCount) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("context", [nullcontext, flipout.hold])
def test_a_recurrent_layer_that_is_not_batch_first_is_named(context: Any) -> None:
    model, x = flipout.perturb(Last(), flipout.Gaussian(0.1)), torch.randn(4, 5, 3)
    with context(model):
        said = refusal(lambda: model(x))
    assert said.startswith(
        "head (Linear): the input has 4 examples, but this draw has 5 (fixed by l (LSTM)). l (LSTM) has"
    )
    assert "batch_first=False: it takes dimension 1" in said
    assert "make it with batch_first=True" in said
    assert "folded" not in said
    assert flipout.perturb(Last(batch_first=True), flipout.Gaussian(0.1))(x).shape == (4, 2)


def test_the_advice_fits_what_is_known() -> None:
    """Rows that are a multiple of the examples may be a fold. Others are not, and one alone may be shared."""
    draw = from_seed(0)
    for rows, expected, other in (
        (12, "show perturb a batch, perturb(…, example_inputs=batch)", "'shared'"),
        (5, "say where: perturb(…, batch_dim=1)", "folded"),
        (1, "scheme={'fc.*': 'shared', '*': 'flipout'}", "folded"),
    ):
        session = Pass(draw)
        session.uses = set()  # as in one forward pass
        session.count(4, "first (Linear)")
        said = refusal(lambda session=session, rows=rows: session.count(rows, "fc (Linear)"))
        assert expected in said
        assert other not in said
        assert "hold(" not in said
        assert len(said) < 420


def test_who_counts_may_give_the_advice() -> None:
    session = Pass(from_seed(0))
    session.count(4, "a caller", advice="Call it otherwise.")
    for part in (session, session.folded(3)):
        said = refusal(lambda part=part: part.count(15, "fc (Linear)"))
        assert said.endswith("(fixed by a caller). Call it otherwise.")


def test_rows_that_do_not_split_into_examples_are_refused():
    model = model_of("flipout")
    with flipout.hold(model, rows=2), pytest.raises(errors.ExampleCount, match=r"3 rows.*rows=2"):
        model(torch.zeros(3, 4, dtype=torch.float64))


def test_a_seed_in_a_tensor_is_read_when_it_is_used():
    """So a captured graph draws new noise and new signs when its seed is overwritten."""
    layer = flipout.nn.Linear(4, 3, distribution=flipout.Gaussian(1.0))
    x, expected = torch.randn(5, 4), []
    for seed in (1, 2):
        with flipout.hold(layer, seed=seed):
            expected.append(layer(x))
    seed = torch.tensor(1)
    with flipout.hold(layer, seed=seed):
        first = layer(x)
        seed.add_(1)
        second = layer(x)
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])


def test_a_seed_may_change_before_backward():
    layer = flipout.nn.Linear(4, 3, distribution=flipout.MeanField())
    before_and_after = gradients_if_the_seed_changes(layer, torch.randn(5, 4))
    torch.testing.assert_close(*before_and_after, rtol=0, atol=0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("options", [{}, {"seed": 1}, {"sign_seed": 1}], ids=str)
def test_a_draw_opened_in_inference_mode_can_be_differentiated_outside(scheme, options):
    layer = flipout.nn.Linear(4, 3, distribution=flipout.MeanField(), scheme=scheme)
    with torch.inference_mode():
        held = flipout.hold(layer, **options)
        held.__enter__()
        layer(torch.randn(5, 4))
    layer(torch.randn(5, 4)).sum().backward()
    held.__exit__(None, None, None)
    assert gradients(layer)["weight_rho"].any()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_default_device_does_not_move_the_draw(scheme, distribution):
    model, x = model_of(scheme, distribution), torch.randn(5, 4, dtype=torch.float64)
    with flipout.hold(model, seed=1):
        expected = model(x)
        with torch.device("meta"):
            assert torch.equal(model(x), expected)


def test_examples_are_numbered_below_two_to_the_32():
    layer = flipout.nn.Linear(4, 3, distribution=flipout.Gaussian(1.0))
    with flipout.hold(layer, seed=1, first=2**32 - 5):
        assert layer(torch.randn(5, 4)).shape == (5, 3)
    with flipout.hold(layer, seed=1, first=2**32 - 4), pytest.raises(errors.InvalidArgument, match="below 2³²"):
        layer(torch.randn(5, 4))
