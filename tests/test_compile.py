"""torch.compile(fullgraph=True): fresh noise at each call, and eager's numbers under a held draw."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import flipout
from flipout.draws.noise import NOISE, stream_starts
from tests.networks import Blocks, Siamese, TiedLM, convnet, encoder, gradients, mlp

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
FIXED, LEARNED = flipout.Gaussian(0.3), flipout.MeanField(std=0.3)
CASES = {
    "mlp": (mlp, lambda n: torch.randn(n, 4)),
    "convnet": (convnet, lambda n: torch.randn(n, 2, 6, 6)),
    "transformer": (lambda: encoder(layers=1), lambda n: torch.randn(n, 3, 8)),
    "tied": (TiedLM, lambda n: torch.randint(7, (n, 3))),
}
WHERE = {"tied": "*.weight"}


@pytest.fixture(autouse=True)
def afresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(model: nn.Module, backend: str = "aot_eager", **options) -> nn.Module:
    return torch.compile(model, fullgraph=True, backend=backend, **options)  # pyright: ignore[reportReturnType]


def check(model: nn.Module, fast: nn.Module, x: Tensor, **tolerance: Any) -> None:
    """Fresh noise at each call, repeatable by torch's seed; output and gradients of eager under a held draw."""
    assert not torch.equal(fast(x), fast(x))
    torch.manual_seed(3)
    y = fast(x)
    torch.manual_seed(3)
    assert torch.equal(fast(x), y)
    results = []
    for call in (model, fast):
        model.zero_grad()
        with flipout.hold(model, seed=7):
            y = call(x)
        y.square().sum().backward()
        results.append((y.detach(), gradients(model)))
    torch.testing.assert_close(results[1], results[0], **tolerance)


@pytest.mark.parametrize(("name", "distribution"), list(zip(CASES, [FIXED, LEARNED, LEARNED, FIXED], strict=True)))
def test_compiled_models(name, distribution):
    make, inputs = CASES[name]
    model = flipout.perturb(make(), distribution, where=WHERE.get(name))
    check(model, compiled(model), inputs(4))


@pytest.mark.parametrize("scheme", ["independent", "local_reparam", flipout.Flipout(group=2, reuse_signs=True)])
def test_compiled_schemes(scheme):
    model = flipout.perturb(nn.Linear(4, 3), LEARNED, scheme=scheme, where="*")
    check(model, compiled(model), torch.randn(5, 4))


@pytest.mark.parametrize("dynamic", [True, None])
def test_any_batch_size(dynamic):
    model = flipout.perturb(nn.Linear(4, 3), FIXED)
    fast = compiled(model, dynamic=dynamic)
    for count in (3, 7, 5, 2):
        x = torch.randn(count, 4)
        with flipout.hold(model, seed=torch.tensor(count)):
            torch.testing.assert_close(fast(x), model(x))


def test_contexts_around_a_compiled_model():
    model = flipout.perturb(mlp(), FIXED).eval()
    fast, x = compiled(model), torch.randn(4, 4)
    mean = fast(x)
    with flipout.sampling(model):
        assert not torch.equal(fast(x), fast(x))
    with flipout.hold(model, seed=1), flipout.using(model, scheme="shared"):
        torch.testing.assert_close(fast(x), model(x))
    assert torch.equal(fast(x), mean)


def test_seeds_in_tensors_do_not_recompile():
    model, x = flipout.perturb(nn.Linear(4, 3), FIXED), torch.randn(4, 4)
    fast = compiled(model)
    outputs = []
    for seed in range(3):
        stance = torch.compiler.set_stance("default" if seed == 0 else "fail_on_recompile")
        with flipout.hold(model, seed=torch.tensor(seed)), stance:
            outputs.append(fast(x))
            torch.testing.assert_close(outputs[-1], model(x))
    assert not torch.equal(outputs[0], outputs[1])


def test_a_loss_around_the_model():
    model, x = flipout.perturb(nn.Linear(4, 3), FIXED), torch.randn(4, 4)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def loss(x: Tensor) -> Tensor:
        return model(x).square().sum()

    assert loss(x) != loss(x)


def test_a_compiled_layer_inside_an_eager_model():
    model = flipout.perturb(mlp(), FIXED)
    x = torch.randn(4, 4)
    with flipout.hold(model, seed=1):
        expected = model(x)
    model[2].compile(fullgraph=True, backend="aot_eager")
    with flipout.hold(model, seed=1):
        torch.testing.assert_close(model(x), expected)
    assert not torch.equal(model(x), model(x))


def test_a_compiled_layer_in_a_checkpoint_of_an_eager_model():
    results = []
    for compile_it, wrap in (
        (False, lambda block, x: block(x)),
        (True, flipout.checkpoint),
        (True, lambda block, x: checkpoint(block, x, use_reentrant=False)),
    ):
        torch.manual_seed(1)
        model: Any = flipout.perturb(Blocks(wrap), LEARNED)
        if compile_it:
            model.blocks[0][0].compile(fullgraph=True, backend="aot_eager")
        torch.manual_seed(2)
        loss = model(torch.ones(3, 4)).sum()
        if len(results) == 2:
            with pytest.raises(Exception, match="compiled apart from its root"):
                loss.backward()
        else:
            loss.backward()
            results.append(gradients(model))
    torch.testing.assert_close(results[0], results[1])


def test_a_compiled_model_with_a_forward_of_its_own_has_one_draw():
    """torch.compile(model) compiles hooks and forward apart: the draw has to pass from one to the other."""
    model, x = flipout.perturb(Siamese(), FIXED), torch.randn(3, 4)
    fast: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        torch.manual_seed(1)
        a, b = fast(x, x)
        assert torch.equal(a, b)
        torch.manual_seed(1)
        torch.testing.assert_close(model(x, x)[0], a)


def test_inductor():
    """Sizes with a rest after whole vectors: what inductor proves about overflow there has to stay harmless."""
    model = flipout.perturb(nn.Linear(7, 5), FIXED)
    # Otherwise torch compiles a program, and starts a process, for each kind of vectors that the CPU says it has.
    options = {"cpp.vec_isa_ok": True}
    check(model, compiled(model, "inductor", options=options), torch.randn(5, 7), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_inductor_on_every_model(name):
    make, inputs = CASES[name]
    model = flipout.perturb(make(), LEARNED, where=WHERE.get(name))
    # The gradient of a bias before BatchNorm is 0 but for rounding, which is up to 2e-5 here.
    check(model, compiled(model, "inductor"), inputs(4), rtol=1e-4, atol=1e-4)


def test_one_graph_for_every_key() -> None:
    """A graph break makes keys of Parameters arguments, and two of them a symbol: a product of it must still wrap."""
    fast, seed = torch.compile(stream_starts, fullgraph=True, dynamic=True), torch.tensor(12345)
    for key in (9, 2**40 + 3, 2**61 - 1):
        for fold in (0, 3):
            expected = stream_starts(seed, key, NOISE, 2, 300, fold)
            assert torch.equal(fast(seed, key, NOISE, 2, 300, fold), expected)


class Checkpointed(nn.Module):
    def __init__(self, around: Any) -> None:
        super().__init__()
        self.first, self.last, self.around = nn.Linear(4, 4), nn.Linear(4, 3), around

    def forward(self, x: Tensor) -> Tensor:
        def hidden(x: Tensor) -> Tensor:
            return self.first(x).tanh()

        return self.last(hidden(x) if self.around is None else self.around(hidden, x))


@pytest.mark.parametrize("scheme", ["shared", "independent", "flipout"])
def test_a_checkpoint_inside_a_compiled_model_is_refused(scheme: Any) -> None:
    """A graph break leaves the checkpoint to Python, and its backward pass would take another draw."""
    model = flipout.perturb(Checkpointed(lambda f, x: checkpoint(f, x, use_reentrant=False)), FIXED, scheme=scheme)
    y = torch.compile(model, backend="aot_eager")(torch.randn(5, 4))
    with pytest.raises(flipout.errors.AmbiguousReplay, match="compiled around the checkpoint"):
        y.sum().backward()


@pytest.mark.parametrize("scheme", ["shared", "independent", "flipout"])
def test_a_checkpoint_that_carries_its_draw_inside_a_compiled_model(scheme: Any) -> None:
    model, x = flipout.perturb(Checkpointed(flipout.checkpoint), FIXED, scheme=scheme), torch.randn(5, 4)
    torch.manual_seed(3)
    torch.compile(model, backend="aot_eager")(x).sum().backward()
    found = gradients(model)
    model.zero_grad()
    model.around = None
    torch.manual_seed(3)
    model(x).sum().backward()
    torch.testing.assert_close(found, gradients(model))
