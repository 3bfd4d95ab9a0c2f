"""Models that read a perturbed Parameter without calling its layer."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import flipout
from tests.zoo.oracle import weights_by_example

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
        self.number = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("mask", (torch.rand(IN, OUT) > 0.5).double())


def tokens(x: Tensor) -> Tensor:
    return (x[..., 0].abs() * 7).long() % 7


def added(x: Tensor, weight: Tensor) -> Tensor:
    y = 2 * x
    y += weight
    return y


def multiplied(x: Tensor, weight: Tensor) -> Tensor:
    y = 2 * x
    y *= weight
    return y * y


SERVED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "linear": lambda m, x: F.linear(x, m.linear.weight, m.linear.bias),
    "linear of one row": lambda m, x: F.linear(x[:, 0], m.linear.weight),
    "linear of a normalised weight": lambda m, x: F.linear(x, F.normalize(m.linear.weight)),
    "a product with a number": lambda m, x: x[..., :1].expand(-1, -1, OUT) * m.bank.number,
    "a number times a product": lambda m, x: m.bank.number.exp() * x[..., :1].expand(-1, -1, OUT),
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
    "a token that is joined": lambda m, x: torch.cat([m.bank.single[:1].expand(len(x), 1, OUT), x @ m.bank.single], 1),
    "an expanded table": lambda m, x: F.linear(x, m.linear.weight) + m.bank.single[:1].expand(len(x), T, OUT),
    "part of a stack": lambda m, x: x[..., :1] + m.bank.stacked[:1, :1, :1],
    "addition in place": lambda m, x: x.clone().add_(m.bank.scale),
    "+=": lambda m, x: added(x, m.bank.scale),
    "*=": lambda m, x: multiplied(x, m.bank.scale),
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
    "written into another tensor": (
        lambda m, x: torch.zeros(OUT, IN, dtype=x.dtype).copy_(m.linear.weight),
        r"linear\.weight: copy at .*writes the weight into a tensor that all examples share",
    ),
    "joined in a table": (
        lambda m, x: torch.cat([x[:1, :, :OUT], m.bank.single[None]], 1),
        r"bank\.single: cat at .*its input has 1 row, but the model was called with 3",
    ),
    "random": (lambda m, x: F.linear(x, F.dropout(m.linear.weight)), r"linear\.weight: dropout at .*random numbers"),
    "einsum": (
        lambda m, x: torch.einsum("bti,oi->tbo", x, m.linear.weight),
        r"linear\.weight: einsum at .*not the first of the output",
    ),
}


def compare_with_each_alone(plain: nn.Module, model: nn.Module, index: Tensor) -> None:
    with flipout.hold(model, seed=3):
        y, weights = model(index), weights_by_example(model)
    alone = [functional_call(plain, seen, (index[n : n + 1],)) for n, seen in enumerate(weights)]
    expected, upstream = torch.cat(alone), torch.randn_like(y)
    torch.testing.assert_close(y, expected)
    leaves = list(model.parameters())
    torch.testing.assert_close(*(torch.autograd.grad(out, leaves, upstream) for out in (y, expected)))
