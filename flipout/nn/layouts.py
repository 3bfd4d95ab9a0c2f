"""Where the examples are in each layer's input, learned by changing one example at a time.

The model sees a small batch a few times, plain and in eval mode. One example is replaced in each run. The places of a
layer's input that move with it say which dimension holds the examples, and in which order they are folded into it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..errors import InvalidInput

_PROBED = 3  # examples that are replaced, one in each run
_RUNS = 2 + _PROBED  # of the whole model: one to compare with, and one that has to equal it


@dataclass(frozen=True)
class Layout:
    """Where one layer's input has its examples."""

    dim: int  # the dimension that holds them
    order: Literal["plain", "example-major", "position-major"]  # alone, or folded with windows, tokens or time steps

    def __str__(self) -> str:
        return f"dimension {self.dim}" if self.order == "plain" else f"dimension {self.dim}, folded {self.order}"


@dataclass(frozen=True)
class Batch:
    """Which tensor among the model's inputs says how many examples there are."""

    index: int  # among all tensors of the arguments, in torch's order for trees
    dim: int

    def rows(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """Return the number of rows of the batch; None if the model is called with fewer tensors than it was shown."""
        tensors = _tensors((args, dict(kwargs)))
        if self.index >= len(tensors) or tensors[self.index].dim() <= self.dim:
            return None
        return tensors[self.index].shape[self.dim]


@dataclass(frozen=True)
class Learned:
    """What the batch taught."""

    batch: Batch
    layouts: dict[str, Layout]  # by the label of the layer
    unknown: dict[str, str]  # label → why the layout could not be learned


def batch_sizes(inputs: Any) -> set[int]:
    """Return the sizes of dimension 0 of a call's tensors; none if a packed sequence hides the number of examples."""
    leaves = tree_flatten(inputs, is_leaf=lambda value: isinstance(value, PackedSequence))[0]
    if any(isinstance(leaf, PackedSequence) for leaf in leaves):
        return set()
    return {leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()}


def learn_layouts(model: nn.Module, layers: Mapping[str, nn.Module], example_inputs: Any, dim: int = 0) -> Learned:
    """Learn where each layer's input has its examples.

    Args:
        model: The module whose call is one forward pass.
        layers: The layers of interest, by label.
        example_inputs: A batch of two or more different examples: a tensor, a tuple of arguments, or a dict of keyword
            arguments.
        dim: The dimension of the model's inputs that holds the examples.

    Raises:
        InvalidInput: The inputs do not agree on a number of examples, or there are fewer than two.
    """
    args, kwargs = _arguments(example_inputs)
    tensors = _tensors((args, kwargs))
    index, count = _batch(tensors, dim)
    probed = sorted({0, 1, count - 1})[:_PROBED]
    with _undisturbed(model, layers) as seen:
        baseline = _run(model, args, kwargs, seen)
        again = _run(model, args, kwargs, seen)
        moved = {n: _run(model, *_replaced(args, kwargs, n, count, dim), seen) for n in probed}
    layouts, unknown = {}, {}
    for label in layers:
        calls = [baseline[label], again[label], *(moved[n][label] for n in probed)]
        found = _layout(calls, probed, count)
        if isinstance(found, Layout):
            layouts[label] = found
        else:
            unknown[label] = found
    return Learned(Batch(index, dim), layouts, unknown)


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    return (tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)), {}


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _batch(tensors: list[Tensor], dim: int) -> tuple[int, int]:
    """Return which tensor counts the examples, and how many there are."""
    sizes = {i: tensor.shape[dim] for i, tensor in enumerate(tensors) if tensor.dim() > dim}
    if not sizes:
        raise InvalidInput(f"example_inputs: no tensor among them has a dimension {dim} (batch_dim) for the examples.")
    if len(set(sizes.values())) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InvalidInput(
            f"example_inputs: tensors of shapes {shapes} do not agree on the number of examples in dimension {dim}. "
            "Give only the tensors that have one row for each example, or name their dimension with batch_dim=…."
        )
    index, count = next(iter(sizes.items()))
    if count < 2:
        raise InvalidInput(
            f"example_inputs: {count} example in dimension {dim}; expected two or more that differ, since one is "
            "changed at a time."
        )
    return index, count


def _replaced(
    args: tuple[Any, ...], kwargs: dict[str, Any], example: int, count: int, dim: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with other numbers for one example."""
    leaves, spec = tree_flatten((args, kwargs))
    generator = torch.Generator().manual_seed(example)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.dim() > dim and leaf.shape[dim] == count:
            leaves[i] = _with_other(leaf, example, dim, generator)
    args, kwargs = tree_unflatten(leaves, spec)
    return args, kwargs


def _with_other(tensor: Tensor, example: int, dim: int, generator: torch.Generator) -> Tensor:
    """Return the tensor with one example replaced: by numbers of the same size, or by ids that occur in the batch."""
    values = tensor.unique() if not tensor.is_floating_point() else None
    if tensor.dtype == torch.bool or (values is not None and (len(values) < 2 or int(values.max()) <= 1)):
        return tensor  # a mask, or the same id everywhere: another one may not be valid
    changed = tensor.clone()
    place = changed.select(dim, example)
    if values is None:
        noise = torch.randn(place.shape, generator=generator).to(place)
        place.add_(noise * (tensor.std() + tensor.abs().mean() + 1e-3))
    else:
        picked = values[torch.randint(len(values), place.shape, generator=generator).to(values.device)]
        other = values[(torch.searchsorted(values, place.contiguous()) + 1) % len(values)]
        place.copy_(torch.where(picked == place, other, picked))
    return changed


_Seen = dict[str, list[Tensor]]  # label → the inputs of its calls


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], seen: _Seen) -> _Seen:
    for calls in seen.values():
        calls.clear()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model(*args, **kwargs)
    return {label: list(calls) for label, calls in seen.items()}


@contextmanager
def _undisturbed(model: nn.Module, layers: Mapping[str, nn.Module]) -> Iterator[_Seen]:
    """Record the layers' inputs in eval mode, and put modes and buffers back."""
    seen: _Seen = {label: [] for label in layers}
    modes = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]

    def record(label: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tensors = _tensors((args, kwargs))
            if tensors:
                seen[label].append(tensors[0].detach().clone())

        return hook

    hooks = [layer.register_forward_pre_hook(record(label), with_kwargs=True) for label, layer in layers.items()]
    try:
        model.eval()
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes.items():
            module.training = training
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _layout(calls: list[list[Tensor]], probed: list[int], count: int) -> Layout | str:
    """Return the layout on which all calls of a layer agree, or why there is none."""
    baseline, again, *moved = calls
    if not baseline:
        return "no call of the layer was seen"
    shapes = [[tuple(x.shape) for x in inputs] for inputs in calls]
    if any(listed != shapes[0] for listed in shapes):
        return "the shape of its input depends on the data, as under token routing"
    if any(not _equal(x, y) for x, y in zip(baseline, again, strict=True)):
        return "its input differs between two runs on the same batch"
    layouts = {
        _layout_of_call([~_same(x, inputs[call]) for inputs in moved], probed, count) for call, x in enumerate(baseline)
    }
    known = {layout for layout in layouts if isinstance(layout, Layout)}
    if len(known) == 1 and all(isinstance(layout, Layout) or layout == _NOTHING for layout in layouts):
        return known.pop()
    if len(known) > 1:
        return f"its calls have several layouts: {', '.join(sorted(map(str, known)))}"
    return next(layout for layout in layouts if isinstance(layout, str))


_NOTHING = "nothing in its input moved with any example"


def _layout_of_call(moved: list[Tensor], probed: list[int], count: int) -> Layout | str:
    """Return the layout of one input from the places that moved with each probed example."""
    if not any(bool(places.any()) for places in moved):
        return _NOTHING
    if not all(bool(places.any()) for places in moved):
        return "its input moved with some of the examples, but not with all"
    for dim in range(moved[0].dim()):
        size = moved[0].shape[dim]
        if size % count:
            continue
        where = torch.arange(size)
        fold = size // count
        others = [other for other in range(moved[0].dim()) if other != dim]
        rows = [places.any(dim=others) if others else places for places in moved]
        for order, owner in (("example-major", where // fold), ("position-major", where % count)):
            if all(bool((owner[row.cpu()] == n).all()) for n, row in zip(probed, rows, strict=True)):
                return Layout(dim, "plain" if fold == 1 else order)  # pyright: ignore[reportArgumentType]
    return "every example moves rows of the others, as batch statistics and contrastive heads do"


def _same(x: Tensor, y: Tensor) -> Tensor:
    return (x == y) | (x.isnan() & y.isnan()) if x.is_floating_point() else x == y


def _equal(x: Tensor, y: Tensor) -> bool:
    return bool(_same(x, y).all())
