"""One forward pass has one draw, and copies of a model are independent of it."""

import copy
import io
import pickle
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import flipout
from tests.networks import GAUSSIAN, Siamese, TiedLM, convnet, encoder, mlp

X = torch.linspace(-1, 1, 12).view(3, 4)
ROUND_TRIPS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": lambda model: _saved(model),
}


def _saved(model: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("distribution", [GAUSSIAN, flipout.MeanField(std=0.3)])
@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"])
def test_a_layer_called_twice_in_one_forward_sees_one_draw(scheme, distribution):
    model = flipout.perturb(Siamese(), distribution, scheme=scheme)
    a, b = model(X, X)
    assert torch.equal(a, b)
    assert not torch.equal(a, model(X, X)[0])


def test_a_layer_called_outside_its_root_is_its_own_root():
    model = flipout.perturb(Siamese(), GAUSSIAN)
    assert not torch.equal(model.tower(X), model.tower(X))
    assert not torch.equal(model(X, X)[0], model.tower(X))


@pytest.mark.filterwarnings("ignore::flipout.errors.NeverRead")  # nobody calls the last layer
def test_roots_inside_roots_share_the_outer_draw():
    inner = flipout.perturb(Siamese(), GAUSSIAN)
    outer = nn.Sequential(inner, nn.Linear(3, 3))
    outer.forward = lambda x: (*inner(x, x), *inner(x, x))  # pyright: ignore
    flipout.perturb(outer, GAUSSIAN)
    outputs = outer(X)
    assert all(torch.equal(outputs[0], y) for y in outputs)


def test_a_root_that_calls_itself_has_one_draw():
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor, depth: int = 2) -> list[Tensor]:
            return [self.layer(x), *(self(x, depth - 1) if depth else [])]

    a, b, c = flipout.perturb(Recursive(), GAUSSIAN)(X)
    assert torch.equal(a, b)
    assert torch.equal(a, c)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["layer", "hook"])
def test_an_exception_in_forward_leaves_the_root_usable(error, place):
    model, broken = Siamese(), True

    def interrupt(*_: object) -> None:
        if broken:
            raise error

    (model if place == "hook" else model.tower).register_forward_pre_hook(interrupt)
    flipout.perturb(model, GAUSSIAN)
    for _ in range(2):
        with pytest.raises(error):
            model(X, X)
    broken = False
    a, b = model(X, X)
    assert torch.equal(a, b)
    assert not torch.equal(a, model(X, X)[0])
    assert not torch.equal(model.tower(X), model.tower(X))


def test_eval_reads_nothing_from_the_generator_and_equals_the_plain_network():
    for make, x in ((mlp, X), (convnet, torch.randn(2, 2, 8, 8)), (encoder, torch.randn(2, 3, 8))):
        plain = make().eval()
        model = flipout.perturb(copy.deepcopy(plain), flipout.MeanField(), where="*").eval()
        before = torch.get_rng_state()
        assert torch.equal(model(x), plain(x))
        assert torch.equal(torch.get_rng_state(), before)


def test_a_forward_reads_one_number_and_manual_seed_repeats_it():
    model = flipout.perturb(mlp(), GAUSSIAN)
    torch.manual_seed(1)
    torch.randint(2**63 - 1, ())
    once = torch.get_rng_state()
    torch.manual_seed(1)
    y = model(X)
    assert torch.equal(torch.get_rng_state(), once)
    torch.manual_seed(1)
    assert torch.equal(model(X), y)


def test_part_of_a_model_in_training_mode():
    model = flipout.perturb(nn.Sequential(mlp(), nn.Linear(3, 3)), GAUSSIAN).eval()
    model[1].train()
    assert torch.equal(model[0](X), model[0](X))
    assert not torch.equal(model(X), model(X))
    model.train()
    model[1].eval()
    assert torch.equal(model[1](x := torch.randn(2, 3)), model[1](x))


@dataclass
class Output:
    logits: Tensor
    hidden: dict[str, tuple[Tensor, ...]]


@pytest.mark.parametrize(
    "wrap", [lambda y: y, lambda y: (y, y), lambda y: {"y": y}, lambda y: Output(y, {"h": (y,)}), lambda y: None]
)
def test_any_kind_of_output(wrap):
    model = flipout.perturb(mlp(), GAUSSIAN)
    inner = model.forward
    model.forward = lambda x: wrap(inner(x))  # pyright: ignore
    assert type(model(X)) is type(wrap(X))
    assert type(model(X)) is type(wrap(X))


@pytest.mark.parametrize("distribution", [GAUSSIAN, flipout.MeanField()])
@pytest.mark.parametrize("make", [mlp, convnet, encoder, TiedLM, Siamese])
@pytest.mark.parametrize("how", ROUND_TRIPS)
def test_copies_are_equal_and_independent(make, distribution, how):
    model = flipout.perturb(make(), distribution)
    other = ROUND_TRIPS[how](model)
    assert flipout.summary(other).rows == flipout.summary(model).rows or how != "deepcopy"
    assert other.state_dict().keys() == model.state_dict().keys()
    shapes = {mlp: (3, 4), convnet: (2, 2, 8, 8), encoder: (2, 3, 8), Siamese: (3, 4)}
    x = torch.randint(7, (2, 3)) if make is TiedLM else torch.randn(shapes[make])
    inputs = (x, x) if make is Siamese else (x,)
    with flipout.hold(model, seed=3), flipout.hold(other, seed=3):
        torch.testing.assert_close(model(*inputs), other(*inputs))
    assert not {id(p) for p in model.parameters()} & {id(p) for p in other.parameters()}
    ours, theirs = (
        {id(root) for m in both.modules() if isinstance(m, flipout.nn.Perturbed) for root, _ in m.flipout.roots}
        for both in (model, other)
    )
    assert len(ours) == len(theirs) == 1
    assert not ours & theirs


def test_copies_made_inside_contexts_start_outside_them():
    model = flipout.perturb(mlp(), GAUSSIAN)
    with flipout.hold(model), flipout.using(model, scheme="shared"), flipout.sampling(model):
        model(X)
        other, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        for copied in (other, pickled):
            assert not torch.equal(copied(X), copied(X))
            assert torch.equal(copied.eval()(X), copied(X))
            assert copied[0].flipout.scheme == flipout.Flipout()
        assert torch.equal(model(X), model(X))


def test_copies_made_inside_forward_start_outside_it():
    model, copies = flipout.perturb(Siamese(), GAUSSIAN), []
    hook = model.tower.register_forward_hook(lambda *_: copies.append(copy.deepcopy(model)))
    model(X, X)
    hook.remove()
    copied = copies[0]
    copied.tower._forward_hooks.clear()
    assert not torch.equal(copied(X, X)[0], copied(X, X)[0])
    assert not torch.equal(copied.tower(X), copied.tower(X))


def test_a_copied_layer_is_its_own_root():
    model = flipout.perturb(mlp(), GAUSSIAN)
    layer = copy.deepcopy(model[0])
    assert not torch.equal(layer(X), layer(X))
    with flipout.hold(layer, seed=1), flipout.hold(model, seed=1):
        assert torch.equal(layer(X), model[0](X))


@pytest.mark.parametrize("distribution", [GAUSSIAN, flipout.MeanField(relative=0.5)])
def test_state_dict_round_trip(distribution):
    model, other = (flipout.perturb(TiedLM(), distribution, where="*") for _ in range(2))
    other.load_state_dict(model.state_dict())
    x = torch.randint(7, (2, 3))
    with flipout.hold(model, seed=3), flipout.hold(other, seed=3):
        assert torch.equal(model(x), other(x))
