"""The slow truth: torch's own module, called for one row at a time with the weights that the row's example sees.

A `Case` says what to call and how its inputs split into rows. `check` compares a perturbed copy of the module with the
loop. A new op needs only a strategy of `Case`s.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout

SYMMETRIC = (
    flipout.Gaussian(0.3),
    flipout.MultiplicativeGaussian(0.5),
    flipout.DropConnect(0.5),
    flipout.Rademacher(0.2),
    flipout.MeanField(std=0.3),
)
SIGNLESS = (flipout.Shared(), flipout.Independent())
FLIPPED = (flipout.Flipout(), flipout.Flipout(group=1), flipout.Flipout(group=2), flipout.Flipout(group=3))
NOISES = tuple((noise, scheme) for scheme in (*SIGNLESS, *FLIPPED) for noise in SYMMETRIC) + tuple(
    (flipout.DropConnect(0.3), scheme) for scheme in SIGNLESS
)
NOISES += tuple((flipout.Gaussian(0.3), flipout.LowRank(rank)) for rank in (1, 2))
NOISES += ((flipout.Rademacher(0.2), flipout.RankOne()), (flipout.Gaussian(0.3), flipout.RankOne()))
STRIDE = 8  # each example of a strategy checks every 8th pair of NOISES


def _plain(module: Any, *inputs: Any) -> Any:
    return module(*inputs)


@dataclass
class Case:
    """A torch module and a batch. An input is a tensor, or a list with one tensor per row if the rows are ragged."""

    module: nn.Module
    inputs: tuple[Any, ...]
    dims: tuple[int | None, ...] = (0,)  # dimension of the rows in each input; None: all rows share the input
    out_dims: tuple[int, ...] = (0,)
    call: Callable[..., Any] = _plain
    where: Any = None
    batch_dim: int | None = None
    coupled: bool = False  # rows interact (batch statistics): the loop takes row n of the whole batch

    @property
    def rows(self) -> int | None:
        """Number of rows; None without a batch dimension, where the input is one example."""
        sizes = (_size(x, dim) for x, dim in zip(self.inputs, self.dims, strict=True) if dim is not None)
        return next(sizes, None)

    def part(self, start: int, length: int) -> tuple[Any, ...]:
        return tuple(_narrow(x, dim, start, length) for x, dim in zip(self.inputs, self.dims, strict=True))

    def outputs(self, module: Callable[..., Any], inputs: tuple[Any, ...]) -> list[Tensor]:
        result = self.call(module, *inputs)
        return [y for y in (result if isinstance(result, tuple) else (result,)) if y is not None]


@dataclass(frozen=True)
class Draws:
    """Options of `hold`, and where to cut the batch in two."""

    first: int = 0
    rows: int = 1
    group: int | None = None
    antithetic: bool = False
    cut: float = 0.5

    def options(self) -> dict[str, Any]:
        return {"seed": 7, "rows": self.rows, "group": self.group, "antithetic": self.antithetic}


draws = st.builds(
    Draws,
    first=st.sampled_from([0, 1, 130]),
    rows=st.sampled_from([1, 2]),
    group=st.sampled_from([None, None, 1, 2, 3]),
    antithetic=st.booleans(),
    cut=st.floats(0, 1),
)
offsets = st.integers(0, STRIDE - 1)


def tensor(*shape: int, grad: bool = True) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def check(case: Case, draw: Draws = Draws(), offset: int = 0) -> None:  # noqa: B008
    """Check every STRIDE-th noise from `offset` on: outputs, gradients, chunks, and the mean in eval mode."""
    module = case.module.double()
    for distribution, scheme in NOISES[offset::STRIDE]:
        allowed = draw if distribution.symmetric else replace(draw, antithetic=False)
        layer = copy.deepcopy(module)
        flipout.perturb(layer, distribution, scheme=scheme, where=case.where, batch_dim=case.batch_dim)
        try:
            check_truth(case, layer, allowed)
            check_chunks(case, layer, allowed)
            check_eval(case, layer)
        except AssertionError as error:
            raise AssertionError(f"{distribution}, {scheme}, {draw}, {case}") from error


def check_truth(case: Case, layer: nn.Module, draw: Draws) -> None:
    """Outputs and all gradients equal those of the loop."""
    leaves = [*_leaves(case.inputs), *layer.parameters()]
    with flipout.hold(layer, first=draw.first, **draw.options()):
        outputs = case.outputs(layer, case.inputs)
        truth = loop(case, layer, draw.rows)
    upstream = [torch.randn_like(y) for y in outputs]
    got, expected = (
        torch.autograd.grad(ys, leaves, upstream, materialize_grads=True, retain_graph=True) for ys in (outputs, truth)
    )
    equal(outputs, truth)
    equal(got, expected)


def check_chunks(case: Case, layer: nn.Module, draw: Draws) -> None:
    """The two parts of a batch give the outputs of the whole batch, under one held draw."""
    if case.rows is None or case.coupled:
        return
    examples = case.rows // draw.rows
    head = int(draw.cut * examples)
    parts = [(0, examples), (0, head), (head, examples - head)]
    outputs = []
    for start, length in parts:
        if length:
            with flipout.hold(layer, first=draw.first + start, **draw.options()):
                outputs.append(case.outputs(layer, case.part(start * draw.rows, length * draw.rows)))
    whole, *chunks = outputs
    equal([torch.cat(ys, dim) for *ys, dim in zip(*chunks, case.out_dims)], whole)  # noqa: B905


def check_eval(case: Case, layer: nn.Module) -> None:
    """In eval mode the layer equals the plain module bit for bit, with and without torch's fast paths."""
    plain = copy.deepcopy(case.module).eval()
    plain.load_state_dict(layer.state_dict(), strict=False)  # running statistics
    layer.eval()
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            pairs = zip(case.outputs(layer, case.inputs), case.outputs(plain, case.inputs), strict=True)
            assert all(torch.equal(found, expected) for found, expected in pairs)
    layer.train()


def loop(case: Case, layer: nn.Module, rows: int = 1) -> list[Tensor]:
    """Return the outputs of the per-example loop, under the draw that is held on the perturbed copy."""
    weights = weights_of_each(layer)
    names = {name for name, _ in case.module.named_parameters(remove_duplicate=False)}
    common = {name: p for name, p in layer.named_parameters(remove_duplicate=False) if name in names}
    plain = copy.deepcopy(case.module)
    outputs = []
    for row in range(case.rows or 1):
        parameters = {**common, **{name: weight[row // rows] for name, weight in weights.items()}}

        def with_weights(*args: Any, parameters: dict[str, Tensor] = parameters, **kwargs: Any) -> Any:
            return torch.func.functional_call(plain, parameters, args, kwargs, tie_weights=False)

        if case.coupled:
            ys = case.outputs(with_weights, case.inputs)
            outputs.append([y.narrow(dim, row, 1) for y, dim in zip(ys, case.out_dims, strict=False)])
        else:
            outputs.append(case.outputs(with_weights, case.inputs if case.rows is None else case.part(row, 1)))
    if case.rows is None:
        return outputs[0]
    return [torch.cat(ys, dim) for *ys, dim in zip(*outputs, case.out_dims)]  # noqa: B905


def weights_of_each(layer: nn.Module) -> dict[str, Tensor]:
    """Return the weights of each example, (N, *shape), by name, over all perturbed layers of a module."""
    return {
        f"{label}.{name}".lstrip("."): weight
        for label, part in layer.named_modules()
        if isinstance(part, flipout.nn.Perturbed)
        for name, weight in flipout.example_weights(part).items()
    }


def equal(found: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    torch.testing.assert_close(list(found), list(expected), rtol=1e-9, atol=1e-11)


def _leaves(inputs: Iterable[Any]) -> Iterator[Tensor]:
    for x in inputs:
        if isinstance(x, list):
            yield from _leaves(x)
        elif isinstance(x, Tensor) and x.requires_grad:
            yield x


def _size(x: Any, dim: int) -> int:
    return len(x) if isinstance(x, list) else x.shape[dim]


def _narrow(x: Any, dim: int | None, start: int, length: int) -> Any:
    if dim is None or x is None:
        return x
    return x[start : start + length] if isinstance(x, list) else x.narrow(dim, start, length)
