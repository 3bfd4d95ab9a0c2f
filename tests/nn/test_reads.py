"""A perturbed Parameter that is read without calling its layer: noisy for each example, or refused at that line."""

import copy
import pickle
import re
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
from tests.zoo.oracle import weights_by_example

GAUSSIAN = flipout.Gaussian(0.3)
N, T, IN, OUT = 3, 6, 4, 5


class Reader(nn.Module):
    """A model whose forward is given: it may read whatever it likes of its layers."""

    def __init__(self, read: Callable[["Reader", Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(IN, OUT)
        self.conv = nn.Conv1d(IN, IN, 2, groups=IN)
        self.full = nn.Conv1d(IN, OUT, 2)
        self.table = nn.Embedding(7, OUT)
        self.norm = nn.LayerNorm(OUT)
        self.bank = Bank()
        self.read = read

    def forward(self, x: Tensor) -> Any:
        return self.read(self, x)


class Bank(nn.Module):
    """A module of no known type."""

    def __init__(self) -> None:
        super().__init__()
        self.single = nn.Parameter(torch.randn(IN, OUT))
        self.stacked = nn.Parameter(torch.randn(2, OUT, IN))
        self.scale = nn.Parameter(torch.randn(IN))
        self.register_buffer("mask", (torch.rand(IN, OUT) > 0.5).double())


def tokens(x: Tensor) -> Tensor:
    return (x[..., 0].abs() * 7).long() % 7


SERVED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "linear": lambda m, x: F.linear(x, m.linear.weight, m.linear.bias),
    "linear of one row": lambda m, x: F.linear(x[:, 0], m.linear.weight),
    "linear without bias": lambda m, x: F.linear(x, m.linear.weight),
    "linear of a transpose": lambda m, x: F.linear(x, m.bank.single.T),
    "linear of part": lambda m, x: F.linear(x, m.linear.weight[1:4], m.linear.bias[1:4]),
    "linear of a cast": lambda m, x: F.linear(x.float(), m.linear.weight.float()).double(),
    "matmul": lambda m, x: torch.matmul(x, m.linear.weight.t()),
    "@": lambda m, x: x @ m.bank.single,
    "@ from the left": lambda m, x: m.linear.weight @ x.transpose(1, 2),
    "mT": lambda m, x: x @ m.linear.weight.mT,
    "permute": lambda m, x: x @ m.linear.weight.permute(1, 0),
    "transpose": lambda m, x: x @ m.linear.weight.transpose(-1, 0),
    "transposed twice": lambda m, x: F.linear(x, m.linear.weight.T.T),
    "addmm": lambda m, x: torch.addmm(m.linear.bias, x[:, 0], m.linear.weight.T),
    "addmm of a plain weight and a bias": lambda m, x: torch.addmm(m.linear.bias, x[:, 0], m.bank.single),
    "einsum": lambda m, x: torch.einsum("bti,oi->bto", x, m.linear.weight),
    "einsum with an ellipsis": lambda m, x: torch.einsum("...i,oi->...o", x, m.linear.weight),
    "conv": lambda m, x: F.conv1d(x.mT, m.full.weight, m.full.bias, padding=1),
    "conv by groups": lambda m, x: F.conv1d(x.mT, m.conv.weight, m.conv.bias, groups=IN),
    "a kernel that is squeezed": lambda m, x: F.conv1d(x.mT, m.conv.weight.squeeze(1).unsqueeze(1), groups=IN),
    "a kernel times a state": lambda m, x: (x[:, :2].mT * m.conv.weight.squeeze(1)).sum(-1) + m.conv.bias,
    "transposed conv": lambda m, x: F.conv_transpose1d(F.linear(x, m.linear.weight).mT, m.full.weight),
    "embedding": lambda m, x: F.embedding(tokens(x), m.table.weight),
    "rows by index": lambda m, x: m.table.weight[tokens(x)],
    "chunk": lambda m, x: torch.cat([x[..., :2] @ part for part in m.bank.single.chunk(2)], -1),
    "split": lambda m, x: x[..., :1] @ m.bank.single.split([1, 3])[0],
    "iterated": lambda m, x: torch.stack([x @ row for row in m.linear.weight], -1),
    "exp": lambda m, x: x.unsqueeze(-1) * -torch.exp(m.bank.single.float()).double(),
    "scaled": lambda m, x: x * m.bank.scale,
    "scaled the other way round": lambda m, x: m.bank.scale * x,
    "broadcast": lambda m, x: x.unsqueeze(-1) * m.bank.single[None, None],
    "a mask": lambda m, x: x @ (m.bank.single * m.bank.mask),
    "two noisy weights": lambda m, x: x @ (m.bank.single + m.linear.weight.T),
    "concatenated": lambda m, x: x @ torch.cat((m.bank.single, m.linear.weight.T), 1),
    "a norm": lambda m, x: F.layer_norm(m.linear(x), (OUT,), m.norm.weight, m.norm.bias),
    "a standardised weight": lambda m, x: F.linear(x, F.layer_norm(m.linear.weight, (IN,))),
    "its layer too": lambda m, x: m.linear(x) - F.linear(x, m.linear.weight),
    "one of a stack by view": lambda m, x: F.linear(x, m.bank.stacked.flatten(0, 1)),
}


def compare(read: Callable[[Any, Tensor], Tensor], scheme: Any, where: Any = "*", bound: float = 1e-12) -> None:
    torch.manual_seed(0)
    plain = Reader(read).double().eval()
    model = flipout.perturb(copy.deepcopy(plain), GAUSSIAN, scheme=scheme, where=where)
    x = torch.randn(N, T, IN).double().requires_grad_()
    with flipout.hold(model, seed=3):
        with pytest.warns(errors.NeverRead):  # all Parameters are noisy, and few are read
            actual = model(x)
        if scheme == "shared":
            model.linear(x)  # somebody has to say how many examples there are
        weights = weights_by_example(model)
    others = dict(model.named_parameters())
    alone = [
        functional_call(plain, {**others, **row_weights}, (x[n : n + 1],)) for n, row_weights in enumerate(weights)
    ]
    truth = torch.cat(alone)
    assert (actual - plain(x)).abs().max() > 1e-3
    torch.testing.assert_close(actual, truth, rtol=bound, atol=bound)
    upstream, leaves = torch.randn_like(actual), [x, *model.parameters()]
    got, expected = (
        torch.autograd.grad(y, leaves, upstream, materialize_grads=True, retain_graph=True) for y in (actual, truth)
    )
    for gradient, expected_gradient in zip(got, expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=10 * bound, atol=10 * bound)


@pytest.mark.parametrize("scheme", ["flipout", "independent", "shared", "low_rank", flipout.Flipout(group=2)], ids=str)
@pytest.mark.parametrize("name", SERVED)
def test_a_read_is_each_example_alone(name: str, scheme: Any) -> None:
    compare(SERVED[name], scheme, bound=1e-5 if "cast" in name or name == "exp" else 1e-12)


REFUSED: dict[str, tuple[Callable[[Any, Tensor], Any], str]] = {
    "stacked": (lambda m, x: F.linear(x, m.bank.stacked[1]), r"bank\.stacked: linear at .*picks one of several"),
    "stacked by a tensor": (
        lambda m, x: F.linear(x, m.bank.stacked[torch.tensor(1)]),
        r"bank\.stacked: linear at .*picks one of several",
    ),
    "bmm": (lambda m, x: torch.bmm(x[:2], m.bank.stacked.mT), r"bank\.stacked: bmm at .*No rule says how bmm"),
    "no batch": (lambda m, x: m.linear.weight @ x[0].T, r"linear\.weight: matmul at .*no dimension for the examples"),
    "folded": (
        lambda m, x: (m.full(x.mT), F.linear(x.flatten(0, 1), m.linear.weight)),
        r"linear\.weight: linear at .*the input has 18 examples, but this draw has 3",
    ),
    "elementwise": (lambda m, x: x[0, :OUT] * m.linear.weight, r"linear\.weight: mul at .*has no dimension before"),
    "a number": (lambda m, x: float(m.linear.weight.detach().norm()), r"linear\.weight: .*makes a float of the weight"),
    "a question of its numbers": (
        lambda m, x: x if m.linear.weight.isnan().any() else -x,
        r"linear\.weight: .*makes a bool of the weight",
    ),
    "data_ptr": (lambda m, x: m.linear.weight.data_ptr(), r"linear\.weight: data_ptr at .*makes a int of the weight"),
    "in place": (lambda m, x: m.linear.weight.clamp_(0), r"linear\.weight: clamp_ at .*would change the Parameter"),
    "set": (lambda m, x: m.linear.weight.__setitem__(0, 0.0), r"linear\.weight: setitem at .*would change"),
    "random": (lambda m, x: F.linear(x, F.dropout(m.linear.weight)), r"linear\.weight: dropout at .*random numbers"),
    "einsum": (
        lambda m, x: torch.einsum("bti,oi->tbo", x, m.linear.weight),
        r"linear\.weight: einsum at .*not the first of the output",
    ),
}


@pytest.mark.parametrize("scheme", ["flipout", "independent"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_result_for_each_example_is_refused_at_that_line(name: str, scheme: Any) -> None:
    read, message = REFUSED[name]
    model = flipout.perturb(Reader(read), GAUSSIAN, scheme=scheme, where="*")
    with pytest.raises(errors.UnservedRead, match=message) as caught:
        model(torch.randn(N, T, IN))
    said = str(caught.value)
    line = read.__code__.co_firstlineno
    assert re.search(rf"{re.escape(__file__)}:({line}|{line + 1}) ", said), said
    assert "where=" in said
    assert f"'*': '{scheme}'" in said


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


def test_questions_are_no_reads() -> None:
    seen = []

    def ask(m: Any, x: Tensor) -> Tensor:
        w = m.linear.weight
        seen.append((w.shape, w.dtype, w.device.type, w.dim(), w.size(0), w.numel(), len(w), w.requires_grad, w.ndim))
        return x.to(w.dtype) + torch.zeros_like(w).sum()

    model = flipout.perturb(Reader(ask), GAUSSIAN, where="linear.weight")
    with pytest.warns(errors.NeverRead, match=r"did not read: linear\.weight\."):
        model(torch.randn(N, T, IN))
    assert seen == [((OUT, IN), torch.float32, "cpu", 2, OUT, OUT * IN, OUT, True, 2)]


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


def test_a_read_that_outlives_its_pass_is_refused() -> None:
    kept: list[Tensor] = []
    model = flipout.perturb(
        Reader(lambda m, x: kept.append(m.linear.weight) or F.linear(x, m.linear.weight)),
        GAUSSIAN,
        where="linear.weight",
    )
    model(torch.randn(N, T, IN))
    with pytest.raises(errors.UnservedRead, match="kept beyond the forward pass"):
        F.linear(torch.randn(N, IN), kept[0])


def test_training_draws_anew_and_reads_agree_with_the_layer() -> None:
    model = flipout.perturb(Reader(SERVED["its layer too"]), GAUSSIAN, where="linear.weight")
    x = torch.randn(N, T, IN)
    first, second = model(x), model(x)
    torch.testing.assert_close(first, model.linear.bias.expand_as(first))
    torch.testing.assert_close(second, first)
    model.read = SERVED["linear"]
    assert not torch.allclose(model(x), model(x))


class Alias(nn.Module):
    """Keeps a Parameter under a name that no module knows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(IN, OUT)
        self.kept = [self.linear.weight]

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.kept[0])


@pytest.mark.parametrize(
    "read",
    [
        lambda m, x: F.linear(x, m.linear._parameters["weight"]),
        lambda m, x: F.linear(x, next(m.linear.parameters())),
        lambda m, x: F.linear(x, dict(m.named_parameters())["linear.weight"]),
        None,
    ],
)
def test_a_read_around_the_noise_is_refused(read: Any) -> None:
    model = flipout.perturb(Alias() if read is None else Reader(read), GAUSSIAN, where="linear.weight")
    with pytest.raises(
        errors.UnservedRead, match=r"linear\.weight: linear at .*test_reads\.py:\d+ reads .* around its"
    ):
        model(torch.randn(N, T, IN))
    assert not torch._C._len_torch_function_stack()
    with pytest.raises(errors.UnservedRead):  # the pass that failed was no look
        model(torch.randn(N, T, IN))


def test_a_parameter_that_nothing_reads_is_named_once() -> None:
    model = flipout.perturb(Reader(SERVED["linear"]), GAUSSIAN, where=["linear.weight", "full.weight"])
    with pytest.warns(errors.NeverRead, match=r"did not read: full\.weight\..*KL is counted"):
        model(torch.randn(N, T, IN))
    model(torch.randn(N, T, IN))
    with flipout.sampling(model.eval()):
        model(torch.randn(N, T, IN))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, grads[0].flatten(0, -2).T @ ctx.saved_tensors[0].flatten(0, -2)


@pytest.mark.parametrize("scheme", ["flipout", "shared"])
def test_a_function_with_its_own_backward_is_refused(scheme: Any) -> None:
    model = flipout.perturb(
        Reader(lambda m, x: Double.apply(x, m.linear.weight)), GAUSSIAN, scheme=scheme, where="linear.*"
    )
    with pytest.raises(errors.UnservedRead, match=r"linear\.weight: linear .*torch\.autograd\.Function"):
        model(torch.randn(N, T, IN))


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


class Wrapped(nn.Linear):
    """A subclass that ends in super().forward."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(2 * input)


class Standardised(nn.Conv2d):
    """A subclass that computes its kernel, as NFNets do."""

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(input, weight / weight.std((1, 2, 3), keepdim=True), self.bias)


class Inherited(nn.Linear):
    """A subclass without a forward of its own."""


class ScaledNoise(nn.Embedding):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 3.0


@pytest.mark.parametrize(
    ("layer", "x", "where"),
    [
        (Wrapped(4, 3), torch.randn(N, 4), None),
        (Inherited(4, 3), torch.randn(N, 4), None),
        (Standardised(2, 3, 2), torch.randn(N, 2, 5, 5), None),
        (ScaledNoise(7, 3), torch.randint(7, (N, 2)), "*"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_subclasses_of_known_layers(layer: nn.Module, x: Tensor, where: Any) -> None:
    plain = nn.Sequential(layer).double()
    x = x.double() if x.is_floating_point() else x
    model = flipout.perturb(copy.deepcopy(plain), GAUSSIAN, where=where)
    assert isinstance(model[0], type(layer))
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with flipout.hold(each, seed=2):
            actual = each(x)
            weights = weights_by_example(each)
        truth = torch.cat(
            [functional_call(plain, row_weights, (x[n : n + 1],)) for n, row_weights in enumerate(weights)]
        )
        torch.testing.assert_close(actual, truth)
        torch.testing.assert_close(each.eval()(x), plain(x))
    assert type(flipout.freeze(model)[0]) is type(layer)


def test_schemes_by_glob() -> None:
    def both(m: Any, x: Tensor) -> Tensor:
        return F.linear(x.flatten(0, 1), m.bank.stacked[1]).unflatten(0, (N, T)) + m.linear(x)

    schemes: Any = {"bank.*": "shared", "*": "flipout"}
    where = ["bank.stacked", "linear.weight"]
    plain = Reader(both).double()
    model = flipout.perturb(copy.deepcopy(plain), GAUSSIAN, scheme=schemes, where=where)
    x = torch.randn(N, T, IN).double()
    with flipout.hold(model, seed=1):
        actual = model(x)
        weights = weights_by_example(model)
    assert torch.equal(weights[0]["bank.stacked"], weights[1]["bank.stacked"])
    assert not torch.equal(weights[0]["linear.weight"], weights[1]["linear.weight"])
    truth = torch.stack([functional_call(plain, row_weights, (x,))[n] for n, row_weights in enumerate(weights)])
    torch.testing.assert_close(actual, truth)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({"bank.*": "shared"}, r"names none for linear\."),
        ({"bnk.*": "shared", "*": "flipout"}, r"'bnk\.\*' matches none"),
        ({"linear.weight": "shared", "*": "flipout"}, r"gives linear several schemes"),
    ],
)
def test_schemes_that_do_not_fit_are_refused(scheme: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        flipout.perturb(Reader(SERVED["linear"]), GAUSSIAN, scheme=scheme, where=["linear.*", "bank.single"])


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


def compare_with_each_alone(plain: nn.Module, model: nn.Module, index: Tensor) -> None:
    with flipout.hold(model, seed=3):
        y, weights = model(index), weights_by_example(model)
    alone = [functional_call(plain, seen, (index[n : n + 1],)) for n, seen in enumerate(weights)]
    expected, upstream = torch.cat(alone), torch.randn_like(y)
    torch.testing.assert_close(y, expected)
    leaves = list(model.parameters())
    torch.testing.assert_close(*(torch.autograd.grad(out, leaves, upstream) for out in (y, expected)))


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


class Padded(nn.Module):
    def __init__(self, padding: int) -> None:
        super().__init__()
        self.table, self.padding = nn.Embedding(7, OUT), padding

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.table.weight, self.padding)


@pytest.mark.parametrize("padding", [2, -5])
def test_the_padding_row_of_a_read_table_gets_no_gradient(padding: int) -> None:
    plain = Padded(padding).double()
    model = flipout.perturb(copy.deepcopy(plain), flipout.MeanField(std=0.3), where="*")
    compare_with_each_alone(plain, model, torch.tensor([[2, 1], [3, 2]]))
