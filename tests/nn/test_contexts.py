"""What `hold`, `sampling`, `using` and `example_weights` do."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.nn.contexts import draw_and_mirror
from tests.networks import GAUSSIAN, Siamese, convnet, mlp

X = torch.linspace(-1, 1, 12).view(3, 4)


def held(model: nn.Module, x: Tensor = X, **options) -> Tensor:
    with flipout.hold(model, **options):
        return model(x).detach()


def test_hold_is_one_draw_and_another_each_time(model):
    with flipout.hold(model):
        first = model(X)
        assert torch.equal(first, model(X))
        assert torch.equal(first, model.eval()(X))
        model.train()
    assert not torch.equal(first, held(model))
    assert not torch.equal(first, model(X))


def test_hold_with_a_seed_reads_no_generator(model):
    before = torch.get_rng_state()
    assert torch.equal(held(model, seed=7), held(model, seed=7))
    assert not torch.equal(held(model, seed=7), held(model, seed=8))
    assert torch.equal(torch.get_rng_state(), before)


def test_hold_without_a_seed_reads_the_generator_once(model):
    with flipout.hold(model):
        before = torch.get_rng_state()
        model(X)
        assert torch.equal(torch.get_rng_state(), before)


def test_first_is_the_index_in_the_batch(model):
    torch.testing.assert_close(held(model, X[1:], seed=7, first=1), held(model, seed=7)[1:])


def test_nested_holds_restore_the_outer_one(model):
    with flipout.hold(model, seed=1):
        outer = model(X)
        with flipout.hold(model, seed=2):
            assert torch.equal(model(X), held(copy.deepcopy(model), seed=2))
        with flipout.hold(model[0], seed=2):
            assert not torch.equal(model(X), outer)
        assert torch.equal(model(X), outer)


def test_hold_on_a_submodule_uses_the_names_of_the_root(model):
    with flipout.hold(model, seed=3):
        expected = model[0](X)
    with flipout.hold(model[0], seed=3):
        assert torch.equal(model[0](X), expected)


def test_hold_on_a_part_that_is_a_root_too_replays_a_call_of_that_part() -> None:
    part = nn.Sequential(nn.Linear(4, 4))
    whole = flipout.perturb(nn.Sequential(part, nn.Linear(4, 4)), flipout.Gaussian(0.3))
    flipout.perturb(part)
    for model in (part, whole):
        x = torch.randn(3, 4)
        torch.manual_seed(0)
        y = model(x)
        torch.manual_seed(0)
        with flipout.hold(model, seed=int(torch.randint(2**63 - 1, ()))):
            assert torch.equal(model(x), y)


def test_layers_outside_a_hold_have_one_draw_per_forward():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.towers = nn.Linear(4, 4), Siamese()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.towers(x := self.first(x), x)

    model = flipout.perturb(Net(), GAUSSIAN)
    with flipout.hold(model.first):
        a, b = model(X)
        assert torch.equal(a, b)
        assert not torch.equal(a, model(X)[0])
        assert torch.equal(model.first(X), model.first(X))


def test_hold_on_layers_made_by_hand_gives_each_its_own_noise():
    layers = [flipout.nn.Linear(4, 4, distribution=GAUSSIAN) for _ in range(2)]
    model = nn.Sequential(*layers)
    with flipout.hold(model, seed=1):
        model(X)
        a, b = (flipout.example_weights(layer)["weight"] - layer.weight for layer in layers)
    assert not torch.allclose(a.abs(), b.abs(), atol=1e-3)
    assert torch.equal(held(model, seed=1), held(flipout.perturb(model), seed=1))


def test_hold_over_several_roots_gives_each_its_own_noise():
    parts = [flipout.perturb(nn.Linear(4, 4), GAUSSIAN) for _ in range(2)]
    model = nn.Sequential(*parts)
    with flipout.hold(model, seed=1):
        first = model(X)
        assert torch.equal(first, model(X))
        a, b = (flipout.example_weights(part)["weight"] - part.weight for part in parts)
    assert not torch.allclose(a.abs(), b.abs(), atol=1e-3)


def test_hold_ends_after_an_exception(model):
    with pytest.raises(KeyError), flipout.hold(model), flipout.sampling(model), flipout.using(model, scheme="shared"):
        raise KeyError
    assert not torch.equal(model(X), model(X))
    assert torch.equal(model.eval()(X), model(X))
    assert isinstance(model[0].flipout.scheme, flipout.Flipout)
    assert torch.backends.mha.get_fastpath_enabled()


def test_sampling_draws_in_eval_and_leaves_other_layers_in_eval():
    model: Any = flipout.perturb(nn.Sequential(convnet(), nn.Dropout(0.9)), GAUSSIAN).eval()
    x = torch.randn(3, 2, 8, 8)
    mean, statistics = model(x), model[0][1].running_mean.clone()
    with flipout.sampling(model):
        a, b = model(x), model(x)
        assert not torch.equal(a, b)
        assert not (a == 0).any()
        with flipout.hold(model):
            assert torch.equal(model(x), model(x))
    assert torch.equal(model[0][1].running_mean, statistics)
    assert torch.equal(model(x), mean)


def test_sampling_a_part(model):
    model.eval()
    with flipout.sampling(model[2]):
        assert torch.equal(model[0](X), model[0](X))
        assert not torch.equal(model(X), model(X))


def test_using_shares_the_same_noise_in_another_way(model):
    with flipout.using(model, scheme="shared"):
        with flipout.hold(model, seed=1):
            model(X)
            shared = flipout.example_weights(model[0])["weight"] - model[0].weight
        with flipout.using(model, scheme=flipout.Flipout(group=1)):
            assert model[0].flipout.scheme == flipout.Flipout(group=1)
        assert model[0].flipout.scheme == flipout.Shared()
    with flipout.hold(model, seed=1):
        model(X)
        flipped = flipout.example_weights(model[0])["weight"] - model[0].weight
    torch.testing.assert_close(shared.abs(), flipped.abs())


def test_using_refuses_before_it_changes_anything():
    model = flipout.perturb(mlp(), flipout.DropConnect(0.3), scheme="shared")
    with pytest.raises(errors.AsymmetricDistribution, match=r"0\.weight"), flipout.using(model, scheme="flipout"):
        pass
    with pytest.raises(errors.InvalidArgument, match="scheme='nope'"), flipout.using(model, scheme="nope"):  # pyright: ignore[reportArgumentType]
        pass
    assert model[0].flipout.scheme == flipout.Shared()
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    flipout.perturb(tied, GAUSSIAN)
    with pytest.raises(errors.WeightReused), flipout.using(tied, scheme="local_reparam"):
        pass


@pytest.mark.parametrize("context", [flipout.hold, flipout.sampling, lambda m: flipout.using(m, scheme="shared")])
def test_plain_models_are_refused(context):
    with (
        pytest.raises(errors.NotPerturbed, match=r"Sequential has no perturbed layers.*flipout\.perturb"),
        context(mlp()),
    ):
        pass


def test_a_draw_and_its_mirror_image(model):
    plain = flipout.using(model, scheme="independent")
    torch.manual_seed(3)
    contexts = draw_and_mirror(model)
    torch.manual_seed(3)
    seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64))
    for context, antithetic in zip(contexts, (False, True), strict=True):
        with context:
            assert torch.equal(model(X), held(model, seed=seed, antithetic=antithetic))
    with plain:
        assert not torch.equal(held(model, seed=seed), held(model, seed=seed, antithetic=True))
