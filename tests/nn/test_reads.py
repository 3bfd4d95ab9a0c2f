"""A perturbed Parameter that is read without calling its layer: noisy for each example, or refused at that line."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import flipout
from flipout import errors
from tests.networks import GAUSSIAN
from tests.nn.readings import IN, OUT, REFUSED, SERVED, N, Reader, T, compare_with_each_alone
from tests.zoo.oracle import weights_by_example


@pytest.mark.parametrize("name", ["stacked", "bmm", "no batch", "folded", "elementwise", "a number", "einsum"])
def test_under_shared_it_is_one_tensor(name: str) -> None:
    read = REFUSED[name][0]
    plain = Reader(read).double()
    model = flipout.perturb(copy.deepcopy(plain), GAUSSIAN, scheme="shared", where="*")
    x = torch.randn(N, T, IN).double()
    with flipout.hold(model, seed=1):
        with pytest.warns(errors.NeverRead):
            actual = model(x)
        model.linear(x)
        weights = weights_by_example(model)[0]
    torch.testing.assert_close(actual, functional_call(plain, weights, (x,)))


def test_outside_of_a_pass_it_is_the_parameter() -> None:
    model = flipout.perturb(Reader(SERVED["linear"]), GAUSSIAN, where="linear.*")
    before = dict(model.named_parameters())
    with flipout.hold(model):
        model(torch.randn(N, T, IN))
        assert model.linear.weight is before["linear.weight"]
    model.eval()
    kept = []
    model.read = lambda m, x: kept.append(m.linear.weight) or F.linear(x, m.linear.weight)
    model(torch.randn(N, T, IN))
    assert kept[0] is before["linear.weight"]


def test_training_draws_anew_and_reads_agree_with_the_layer() -> None:
    model = flipout.perturb(Reader(SERVED["its layer too"]), GAUSSIAN, where="linear.weight")
    x = torch.randn(N, T, IN)
    first, second = model(x), model(x)
    torch.testing.assert_close(first, model.linear.bias.expand_as(first))
    torch.testing.assert_close(second, first)
    model.read = SERVED["linear"]
    assert not torch.allclose(model(x), model(x))


@pytest.mark.parametrize("is_module", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_reads_the_same_noise_again(use_reentrant: bool, is_module: bool) -> None:
    def checkpointed(m: Any, x: Tensor) -> Tensor:
        block: Any = nn.Identity()
        block.forward = lambda x: F.linear(x, m.linear.weight).tanh()
        block = block if is_module else block.forward
        return checkpoint(block, x, use_reentrant=use_reentrant)

    model = flipout.perturb(Reader(checkpointed).double(), GAUSSIAN, where="linear.weight")
    other = copy.deepcopy(model)
    other.read = lambda m, x: F.linear(x, m.linear.weight).tanh()
    x, grads = torch.randn(N, T, IN).double().requires_grad_(), []
    for each in (model, other):
        torch.manual_seed(1)
        each(x).square().sum().backward()
        grads.append(each.linear.weight.grad)
    torch.testing.assert_close(*grads)


def test_autocast() -> None:
    model = flipout.perturb(Reader(SERVED["linear"]), GAUSSIAN, where="linear.weight")
    x = torch.randn(N, T, IN)
    with flipout.hold(model), torch.autocast("cpu", torch.bfloat16):
        actual = model(x)
        assert actual.dtype == torch.bfloat16
        torch.testing.assert_close(actual, model.linear(x))


def test_a_compiled_question_is_no_read() -> None:
    def ask(m: Any, x: Tensor) -> Tensor:
        is_tensor = isinstance(m.linear.weight, Tensor)
        return m.linear(x.to(m.linear.weight.dtype)) * m.linear.weight.shape[0] * m.linear.weight.size(1) * is_tensor

    model = flipout.perturb(Reader(ask).double(), GAUSSIAN, where="linear.weight")
    x = torch.randn(N, T, IN).double()
    with flipout.hold(model, seed=1):
        torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), model(x))


def test_a_compiled_read_is_refused_by_name() -> None:
    model = flipout.perturb(Reader(SERVED["linear"]), GAUSSIAN, where="linear.weight")
    with pytest.raises(Exception, match=r"reads this perturbed Parameter outside of its layer"):
        torch.compile(model, backend="eager", fullgraph=True)(torch.randn(N, T, IN))


class PositionMajor(nn.Module):
    """Folds positions in front of the examples, and reads the table that it has called."""

    def __init__(self, read: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.read = nn.Embedding(7, OUT), read

    def forward(self, index: Tensor) -> Tensor:
        folded = index.T.flatten()
        y = self.read(folded, self.table(folded), self.table.weight)
        return y.unflatten(0, index.T.shape).transpose(0, 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda index, y, table: F.embedding(index, table),
        lambda index, y, table: table[index],
        lambda index, y, table: F.linear(y, table),
        lambda index, y, table: torch.einsum("nd,vd->nv", y, table),
        lambda index, y, table: y * table.mean(0),
    ],
    ids=["embedding", "lookup", "linear", "einsum", "elementwise"],
)
def test_reads_follow_a_position_major_fold(read: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    plain, index = PositionMajor(read).double(), torch.randint(7, (3, 2))
    model = copy.deepcopy(plain)
    flipout.perturb(model, GAUSSIAN, where="*", example_inputs=torch.randint(7, (4, 3)))
    compare_with_each_alone(plain, model, index)


class Encoder(nn.Module):
    """Has a Parameter that several of its methods read."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Parameter(torch.randn(4, 4, dtype=torch.float64))

    def encode(self, x: Tensor) -> Tensor:
        return x @ self.projection

    @property
    def size(self) -> Tensor:
        return self.projection.norm()

    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x).tanh()


class NoHooks(Encoder):
    """Calls its forward by itself, as modules of gpytorch do."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)


@pytest.mark.parametrize("kind", [Encoder, NoHooks])
def test_a_method_under_hold_reads_the_noise(kind: type[Encoder]) -> None:
    model, x = flipout.perturb(kind(), flipout.Gaussian(0.3), where="*"), torch.randn(3, 4, dtype=torch.float64)
    with flipout.hold(model, seed=1):
        encoded = model.encode(x)
        torch.testing.assert_close(model(x), encoded.tanh())
        torch.testing.assert_close(model.forward(x), encoded.tanh())
        expected = torch.bmm(x[:, None], flipout.example_weights(model)["projection"])[:, 0]
        assert type(model.projection) is nn.Parameter  # outside of the model's code
        assert type(model.size) is Tensor
    torch.testing.assert_close(encoded, expected)


@pytest.mark.parametrize("call", [lambda model, x: NoHooks.__call__(model, x), lambda model, x: model.forward(x)])
def test_a_forward_pass_without_a_call_has_no_draw(call: Any) -> None:
    model, x = flipout.perturb(NoHooks(), flipout.Gaussian(0.3), where="*"), torch.randn(3, 4, dtype=torch.float64)
    with pytest.raises(errors.UnservedRead, match=r"a forward pass that no call of the model began: by model\.forward"):
        call(model.train(), x)
    torch.testing.assert_close(model.size, model.get_parameter("projection").norm())
    call(model.eval(), x)  # the mean
