"""Rank-one flips: every op sees the weights that `example_weights` shows, and these have the right moments."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import EagerAndRecordGraphs

import flipout
from flipout import errors
from flipout.draws.signs import TRAILING, matrix_dims
from flipout.nn.held_weights import weighted_sums
from tests import many_draws, oracles
from tests.networks import TiedLM, convnet, encoder
from tests.oracles import Case, Draws, tensor
from tests.statistics import assert_mean, assert_same_mean, assert_uncorrelated

X = torch.randn(2, 3, dtype=torch.float64)
STD = 0.5


def perturbed_linear(noise: flipout.Distribution | None = None, **options: Any) -> flipout.nn.Linear:
    noise = flipout.Rademacher(STD) if noise is None else noise
    return flipout.nn.Linear(3, 2, distribution=noise, scheme="rank_one", where="*", dtype=torch.float64, **options)


CASES: dict[str, Case] = {
    "linear": Case(nn.Linear(5, 3), (tensor(4, 5),), where="*"),
    "tokens": Case(nn.Linear(5, 3), (tensor(4, 6, 5),)),
    "convolution": Case(nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (tensor(4, 4, 5, 5),), where="*"),
    "depthwise": Case(nn.Conv1d(4, 8, 3, groups=4), (tensor(4, 4, 5),), where="*"),
    "reflected": Case(nn.Conv1d(2, 3, 3, padding=1, padding_mode="reflect"), (tensor(4, 2, 5),), where="*"),
    "volume": Case(nn.Conv3d(2, 3, 2), (tensor(4, 2, 3, 3, 3),), where="*"),
    "transposed": Case(nn.ConvTranspose1d(4, 6, 3, stride=2, dilation=2, groups=2), (tensor(4, 4, 5),), where="*"),
    "wrapped": Case(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular", dilation=2), (tensor(4, 2, 6, 6),), where="*"
    ),
    "turned": Case(
        nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, padding=1, groups=2), (tensor(4, 4, 3, 3),), where="*"
    ),
    "gru": Case(nn.GRU(3, 4, batch_first=True), (tensor(4, 5, 3),), where="*", call=lambda module, x: module(x)[0]),
    "lstm": Case(
        nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), (tensor(5, 4, 3),), (1,), (1,), lambda m, x: m(x)[0], "*"
    ),
    "cell": Case(nn.RNNCell(3, 4), (tensor(4, 3),), where="*"),
    "lstm cell": Case(nn.LSTMCell(3, 4), (tensor(4, 3),), where="*", call=lambda m, x: torch.cat(m(x), 1)),
    "norm": Case(nn.LayerNorm([4, 3]), (tensor(4, 4, 3),), where="*"),
    "channels": Case(nn.GroupNorm(2, 4), (tensor(4, 4, 3),), where="*"),
    "embedding": Case(nn.Embedding(7, 3, padding_idx=2), (torch.randint(7, (4, 5)),), where="*"),
    "bag": Case(nn.EmbeddingBag(7, 3), (torch.randint(7, (4, 5)),), where="*"),
    "tied": Case(TiedLM(), (torch.randint(7, (4, 5)),), where="*"),
    "other keys": Case(
        nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True),
        (tensor(4, 3, 4), tensor(4, 5, 3), tensor(4, 5, 5)),
        (0, 0, 0),
        call=lambda module, q, k, v: module(q, k, v)[0],
        where="*",
    ),
    "attention": Case(
        nn.MultiheadAttention(4, 2, batch_first=True),
        (tensor(4, 3, 4), tensor(4, 5, 4)),
        (0, 0),
        call=lambda module, q, k: module(q, k, k)[0],
        where="*",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_per_example_loop(name: str) -> None:
    case = CASES[name]
    case.module.double()
    layer = flipout.perturb(copy.deepcopy(case.module), flipout.Rademacher(0.3), scheme="rank_one", where=case.where)
    for draw in (Draws(), Draws(first=130, rows=2, antithetic=True), Draws(group=3, cut=0.3)):
        oracles.check_truth(case, layer, draw)
        oracles.check_chunks(case, layer, draw)
    oracles.check_eval(case, layer)


class Read(nn.Module):
    """Reads Parameters of a layer, and stacked ones of its own, without calling a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.heads = nn.Linear(3, 2), nn.Parameter(torch.randn(4, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.linear(x, self.inner.weight) + x @ self.inner.weight.T
        return y + torch.einsum("...i,hoi->...o", x, self.heads.tanh())


@pytest.mark.filterwarnings("ignore::flipout.errors.LeftPlain")
def test_reads_outside_of_the_layer_see_the_examples_weights() -> None:
    case = Case(Read(), (tensor(4, 3),), where=["inner.weight", "heads"])
    layer = flipout.perturb(
        copy.deepcopy(case.module).double(), flipout.Gaussian(0.3), scheme="rank_one", where=case.where
    )
    for draw in (Draws(), Draws(first=3, rows=2, antithetic=True)):
        oracles.check_truth(case, layer, draw)


def assert_uncorrelated_entries(seen: Tensor) -> None:
    """The products of any two entries have the mean 0. Their size is σ² exactly, which makes the error known."""
    entries = seen.flatten(1)
    first, second = torch.triu_indices(entries.shape[1], entries.shape[1], 1)
    assert_mean(entries[:, first] * entries[:, second], 0.0, std=STD**2)


@pytest.mark.parametrize("noise", [flipout.Rademacher(STD), flipout.Gaussian(STD)], ids=str)
def test_moments(noise: flipout.Distribution) -> None:
    """Every weight is ±σ. Weights are uncorrelated within an example and between two."""
    layer = perturbed_linear(noise)
    for name in ("weight", "bias"):
        seen = many_draws.weights(layer, X, many_draws.seeds(20_000), name) - getattr(layer, name).detach()
        torch.testing.assert_close(seen.abs(), torch.full_like(seen, STD))
        assert_mean(seen, 0.0, std=STD)
        assert_uncorrelated_entries(seen[:, 0])
        assert_uncorrelated(seen[:, 0].flatten(1), seen[:, 1].flatten(1))


def test_a_kernel_has_signs_for_each_position() -> None:
    """All entries of a kernel are uncorrelated, also those of one channel, which one sign per channel would tie."""
    layer = flipout.nn.Conv1d(2, 2, 2, distribution=flipout.Rademacher(STD), scheme="rank_one", dtype=torch.float64)
    x = torch.randn(2, 2, 3, dtype=torch.float64)
    seen = many_draws.weights(layer, x, many_draws.seeds(20_000)) - layer.weight.detach()
    assert_uncorrelated_entries(seen[:, 0])


def test_more_than_two_weights_are_dependent() -> None:
    """The corners of a rectangle of ΔW multiply to σ⁴: what the scheme is not."""
    layer = perturbed_linear()
    with flipout.hold(layer, seed=3):
        layer(X)
        delta = flipout.example_weights(layer)["weight"] - layer.weight
    corners = delta[:, 0, 0] * delta[:, 0, 1] * delta[:, 1, 0] * delta[:, 1, 1]
    torch.testing.assert_close(corners, torch.full_like(corners, STD**4))
    assert torch.linalg.matrix_rank(delta).tolist() == [1, 1]


def test_it_is_flipout_with_a_constant_base() -> None:
    """The signs of matrices and vectors are those of flipout, so Rademacher noise of one sign is the same draw."""

    class Constant(flipout.Rademacher):
        def noise(self, stream: Any) -> Tensor:
            return torch.ones_like(stream.sign())

    x, plain = torch.randn(5, 3, dtype=torch.float64), nn.Linear(3, 2).double()
    outputs = []
    for noise, scheme in ((Constant(STD), "flipout"), (flipout.Rademacher(STD), "rank_one")):
        layer = flipout.perturb(copy.deepcopy(plain), noise, scheme=scheme, where="*")  # pyright: ignore[reportArgumentType]
        with flipout.hold(layer, seed=4, first=9, antithetic=True):
            outputs.append(layer(x))
    torch.testing.assert_close(*outputs)


def test_sign_keys() -> None:
    """A matrix has the keys of its two dimensions. Channels and positions of a kernel have a key of their own."""
    assert matrix_dims((5, 3)) == ((0, 5), (1, 3))
    assert matrix_dims((5, 3, 2, 2)) == ((0, 5), (TRAILING, 12))


def test_gradients_are_unbiased() -> None:
    """The mean gradient of a linear loss in each Parameter is that of the mean network, as under independent noise."""
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(3, 2).double(), flipout.Rademacher(STD), where="*")
    seen = many_draws.gradients(model, X, "rank_one", many_draws.seeds(20_000))
    assert_same_mean(seen, many_draws.gradients(model, X, "independent", many_draws.seeds(20_000, 50_000)))


@pytest.mark.parametrize("make", [lambda: nn.Linear(6, 4, bias=False), lambda: nn.Conv1d(2, 3, 2, bias=False)])
def test_the_error_on_a_linear_fitness_is_that_of_theory(make: Any) -> None:
    """For N members, the estimate is unbiased, and its squared error is (d − 1) / N of the squared gradient.

    E‖Σ_n F_n ΔW_n / (N σ²)‖² with F_n = C · ΔW_n: each ‖ΔW_n‖² is d σ² exactly, and E F_n² = σ² ‖C‖².
    """
    members, gradient = 4, torch.randn(make().weight.shape, dtype=torch.float64)
    layer, zeros = make().double(), torch.zeros(members, *((6,) if isinstance(make(), nn.Linear) else (2, 3))).double()
    model = flipout.perturb(layer, flipout.Rademacher(0.3), scheme="rank_one")

    def estimate(seed: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            model(zeros)
            weights = flipout.example_weights(model)["weight"] - layer.weight
            fitness = (weights * gradient).flatten(1).sum(1)
            ((_, total),) = weighted_sums(model, fitness)
        return total.flatten() / (members * 0.3**2)

    seen = torch.func.vmap(estimate, chunk_size=1000)(many_draws.seeds(20_000)).detach()
    assert_mean(seen, gradient.flatten())
    size, square = gradient.numel(), gradient.square().sum()
    assert_mean((seen - gradient.flatten()).square().sum(1), (size - 1) / members * square)


REFUSED = [
    flipout.MultiplicativeGaussian(0.1),
    flipout.MeanField(),
    flipout.DropConnect(0.5),
    flipout.Gaussian(torch.ones(2, 3)),
    flipout.Rademacher(torch.ones(3)),
]


@pytest.mark.parametrize("noise", REFUSED, ids=repr)
def test_noise_without_one_standard_deviation_is_refused(noise: flipout.Distribution) -> None:
    with pytest.raises(errors.NotRankOne, match=r"rank-one flips can never serve .*Rademacher\(std\)"):
        flipout.perturb(nn.Linear(3, 2), noise, scheme="rank_one")


def test_one_std_for_each_parameter() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).double()
    flipout.perturb(model, flipout.Rademacher({"0.*": 0.1, "*": 0.7}), scheme="rank_one")
    with flipout.hold(model, seed=1):
        model(X)
        for i, std in enumerate((0.1, 0.7)):
            delta = flipout.example_weights(model[i])["weight"] - model[i].weight  # pyright: ignore[reportOperatorIssue]
            torch.testing.assert_close(delta.abs(), torch.full_like(delta, std))


def test_a_std_that_is_a_tensor_gets_its_gradient() -> None:
    std = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    layer = perturbed_linear(flipout.Gaussian(std))

    def loss() -> Tensor:
        with flipout.hold(layer, seed=5):
            return layer(X).square().sum()

    (grad,) = torch.autograd.grad(loss(), std)
    with torch.no_grad():
        std += 1e-6
        above = loss()
        std -= 2e-6
        slope = (above - loss()) / 2e-6
    torch.testing.assert_close(grad, slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("grad", [True, False])
def test_a_batch_that_is_one_row_expanded(grad: bool) -> None:
    layer, row = perturbed_linear(), torch.randn(5, 3, dtype=torch.float64)
    with torch.set_grad_enabled(grad), flipout.hold(layer, seed=2):
        torch.testing.assert_close(layer(row.expand(4, 5, 3)), layer(row.repeat(4, 1, 1)))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("shape", [(3,), (5, 3)], ids=str)
def test_a_row_expanded_over_examples_of_several_rows(grad: bool, shape: tuple[int, ...]) -> None:
    layer, row = perturbed_linear(), torch.randn(shape, dtype=torch.float64)
    for count in (4, 2):
        x = row.expand(count, *shape)
        with torch.set_grad_enabled(grad), flipout.hold(layer, seed=2, rows=2):
            torch.testing.assert_close(layer(x), layer(x.contiguous()))


@pytest.mark.parametrize("shape", [(6, 70, 128), (6, 2, 8), (6, 8)], ids=str)
def test_without_gradients_the_numbers_are_the_same(shape: tuple[int, ...]) -> None:
    layer = flipout.nn.Linear(shape[-1], 9, distribution=flipout.Rademacher(0.1), scheme="rank_one", where="*")
    x = torch.randn(shape)
    with flipout.hold(layer, seed=2):
        tracked = layer(x)
        with torch.no_grad():
            torch.testing.assert_close(layer(x), tracked, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "shape"), [(lambda: encoder(layers=1), (3, 3, 8)), (convnet, (3, 2, 6, 6))], ids=["encoder", "convnet"]
)
def test_freezing_at_a_draw(make: Any, shape: tuple[int, ...]) -> None:
    model = flipout.perturb(make().double().eval(), flipout.Rademacher(0.2), scheme="rank_one", where="*")
    x = torch.randn(shape).double()
    with flipout.hold(model, seed=6, first=4):
        seen = model(x)
    for i in range(3):
        plain = copy.deepcopy(model)
        with flipout.hold(plain, seed=6, first=4):
            flipout.freeze(plain, at="draw", example=i)
        torch.testing.assert_close(plain(x)[i], seen[i])


@pytest.mark.parametrize("is_grad", [True, False], ids=["training", "inference"])
def test_compiled_in_one_graph(is_grad: bool) -> None:
    torch._dynamo.reset()
    model = flipout.perturb(
        nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
        flipout.Rademacher(0.3),
        where="*",
        scheme="rank_one",
    )
    compiled, x = torch.compile(model, fullgraph=True, backend="aot_eager"), torch.randn(4, 6)
    with flipout.hold(model, seed=7), torch.set_grad_enabled(is_grad):
        torch.testing.assert_close(compiled(x), model(x))
    if is_grad:
        compiled(x).sum().backward()  # a fresh draw of the compiled model itself
        assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("shape", [(4, 6), (4, 3, 6), (8, 6)], ids=str)
def test_a_compiled_graph_reads_signs_as_bits(shape: tuple[int, ...]) -> None:
    """Nothing of the size of the signs is written: the graph has their bits, and unpacks them where it uses them."""
    torch._dynamo.reset()
    model = flipout.perturb(nn.Sequential(nn.Linear(6, 70), nn.Tanh()), flipout.Rademacher(0.3), scheme="rank_one")
    graphs = EagerAndRecordGraphs()
    compiled, x = torch.compile(model, fullgraph=True, backend=graphs), torch.randn(shape, requires_grad=True)
    results = []
    for call in (model, compiled):
        with flipout.hold(model, seed=7, first=3, rows=shape[0] // 4, antithetic=True):
            y = call(x)
        results.append((y.detach(), *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])))
    torch.testing.assert_close(results[1], results[0])
    ops = [str(node.target) for graph in graphs.graphs for node in graph.graph.nodes]
    assert "flipout.packed_signs.default" in ops
    assert "flipout.drawn_signs.default" not in ops


def test_ranks_with_unequal_shares_have_no_example_in_common() -> None:
    """Without a shared base, ranks number their examples as if all had equally many."""
    from dataclasses import replace

    from flipout.draws.draw import from_seed
    from flipout.draws.passes import Pass
    from flipout.nn.held_weights import weights_of

    layer = flipout.nn.Linear(40, 30, distribution=flipout.Rademacher(STD), scheme="rank_one")
    keys = layer.flipout.roots[0][1]
    found = []
    for rank, examples in enumerate((5, 4)):
        session = Pass(replace(from_seed(3), rank=rank))
        session.count(examples, "test")
        found.append(weights_of(layer, session, keys)["weight"])
    first, second = found
    assert not any(torch.equal(a, b) for a, b in itertools.product(first, second))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("grad", [True, False])
def test_half_precision_is_as_exact_as_two_roundings(dtype: torch.dtype, grad: bool) -> None:
    """The noise is added to the product, so it is not rounded away against W̄: σ is below the spacing of the weights."""
    layer = flipout.nn.Linear(64, 32, distribution=flipout.Rademacher(2**-12), scheme="rank_one", bias=False)
    with torch.no_grad():
        layer.weight.copy_(layer.weight.sign() * 2)
    layer.to(dtype)
    x = (torch.arange(64 * 6) % 7 - 3).view(6, 64).to(dtype)
    with flipout.hold(layer, seed=1), torch.set_grad_enabled(grad):
        y = layer(x)
        exact = copy.deepcopy(layer).double()
    with flipout.hold(exact, seed=1):
        truth = exact(x.double())
    error = ((y.double() - truth).abs() / truth.abs().clamp_min(1)).detach()
    assert y.dtype == dtype
    assert float(error.max()) < 3 * torch.finfo(dtype).eps


def test_autocast() -> None:
    layer, x = (
        flipout.nn.Linear(8, 4, distribution=flipout.Rademacher(0.1), scheme="rank_one", where="*"),
        torch.randn(3, 8),
    )
    with flipout.hold(layer, seed=1):
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        torch.testing.assert_close(y.float(), layer(x), rtol=0.02, atol=0.02)
    assert y.dtype == torch.bfloat16


def test_an_empty_batch() -> None:
    assert perturbed_linear()(torch.empty(0, 3, dtype=torch.float64)).shape == (0, 2)
