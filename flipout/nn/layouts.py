"""Where the examples are in each layer's input, learned by changing one example at a time.

The model sees a small batch a few times, plain and in eval mode. One example is replaced in each run. The places of a
layer's input that move with it say which dimension holds the examples, and in which order they are folded into it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from .._model_calls import model_call
from ..errors import InvalidInput
from .batches import Batch, sizes_of, tensors_in, told_batch
from .probe import Probe, Readable, ReadSite
from .restored import restored_afterwards

_PROBED = 3  # examples that are replaced, one in each run
UNSEEN = "no call of the layer was seen"


@dataclass(frozen=True)
class Layout:
    """Where one layer's input has its examples."""

    dim: int  # the dimension that holds them
    order: Literal["plain", "example-major", "position-major"]  # alone, or folded with windows, tokens or time steps

    def __str__(self) -> str:
        return f"dimension {self.dim}" if self.order == "plain" else f"dimension {self.dim}, folded {self.order}"


Reads = dict[ReadSite, "Layout | str"]  # where a Parameter is read → the layout of its operand, or why it is unknown


@dataclass(frozen=True)
class Learned:
    """What was learned from the batch."""

    batch: Batch
    layouts: dict[str, Layout]  # by the label of the layer
    unknown: dict[str, str]  # label → why the layout could not be learned
    reads: dict[str, Reads]  # by label too: what code outside of the layer multiplies its Parameters with


def learn_layouts(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    example_inputs: Any,
    dim: int | None = None,
    parameters: Mapping[int, Readable] | None = None,
) -> Learned:
    """Learn where each layer's input has its examples.

    Args:
        model: The module whose call is one forward pass.
        layers: The layers of interest, by label.
        example_inputs: A batch of two or more different examples: a tensor, a tuple of arguments, or a dict of keyword
            arguments.
        dim: The dimension of the model's inputs that holds the examples, if the user has told it; else it is 0.
        parameters: The Parameters that code outside of their layers may read, by their ids.

    Raises:
        InvalidInput: The inputs do not agree on a number of examples, or there are fewer than two.
    """
    call = model_call(example_inputs)
    args, kwargs, tensors = call.args, call.kwargs, call.tensors()
    index, count = _batch(tensors, 0 if dim is None else dim, is_told=dim is not None)
    dim = 0 if dim is None else dim
    probed = sorted({0, 1, count - 1})[:_PROBED]
    constants = {id(buffer) for buffer in model.buffers()}
    found: dict[str | tuple[str, ReadSite], Layout | str] = {}
    with _undisturbed(model, layers, Probe(parameters or {}, constants)) as run:
        baseline, again = run(args, kwargs), run(args, kwargs)
        try:
            moved = [run(*_replaced(args, kwargs, n, count, dim)) for n in probed]
        except Exception:  # a new id may be invalid in its place, such as one that marks an image
            moved = [run(*_swapped(args, kwargs, n, count, dim)) for n in probed]
        runs = [baseline, again, *moved]
        for key in dict.fromkeys([*layers, *(key for seen in runs for key in seen)]):
            found[key] = _layout([seen.get(key, []) for seen in runs], probed, count)
        still = [key for key, why in found.items() if isinstance(why, str) and why.startswith(NOTHING)]
        if still:
            found |= _grown_layouts(run, args, kwargs, count, dim, {key: baseline.get(key, []) for key in still})
    layouts, unknown, reads = {}, {}, dict[str, Reads]()
    for key, layout in found.items():
        if isinstance(key, tuple):
            reads.setdefault(key[0], {})[key[1]] = layout
        elif isinstance(layout, Layout):
            layouts[key] = layout
        else:
            unknown[key] = layout
    keyword = next((name for name, value in kwargs.items() if value is tensors[index]), None)
    return Learned(Batch(index, dim, keyword), layouts, unknown, reads)


def _batch(tensors: list[Tensor], dim: int, *, is_told: bool) -> tuple[int, int]:
    """Return which tensor counts the examples, and how many there are."""
    index = told_batch(tensors, dim)
    if index is None:
        raise InvalidInput(f"example_inputs: no tensor among them has a dimension {dim} (batch_dim) for the examples.")
    if len(sizes_of(tensors, (dim,))) > 1 and not is_told:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InvalidInput(
            f"example_inputs: tensors of shapes {shapes} do not agree on the number of examples in dimension {dim}. "
            "Give only the tensors that have one row for each example, or say where the first of them that is no "
            "vector has its examples: perturb(model, …, example_inputs=…, batch_dim=0)."
        )
    count = tensors[index].shape[dim]
    if count < 2:
        raise InvalidInput(
            f"example_inputs: {count} example in dimension {dim}; expected two or more that differ, since one is "
            "changed at a time."
        )
    return index, count


def _replaced(
    args: tuple[Any, ...], kwargs: dict[str, Any], example: int, count: int, dim: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with the numbers of one example replaced by others."""
    leaves, spec = tree_flatten((args, kwargs))
    generator = torch.Generator().manual_seed(example)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.dim() > dim and leaf.shape[dim] == count:
            leaves[i] = _with_other(leaf, example, dim, generator)
    args, kwargs = tree_unflatten(leaves, spec)
    return args, kwargs


def _swapped(
    args: tuple[Any, ...], kwargs: dict[str, Any], example: int, count: int, dim: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with one example replaced by another of the batch, which is valid, in all tensors."""
    leaves, spec = tree_flatten((args, kwargs))
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.dim() > dim and leaf.shape[dim] == count:
            leaves[i] = leaf.clone()
            leaves[i].select(dim, example).copy_(leaf.select(dim, (example + 1) % count))
    args, kwargs = tree_unflatten(leaves, spec)
    return args, kwargs


def _grown_layouts(
    run: "Callable[[tuple[Any, ...], dict[str, Any]], _Seen]",
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    count: int,
    dim: int,
    before: "_Seen",
) -> "dict[str | tuple[str, ReadSite], Layout | str]":
    """Return the layouts that one more example shows, of inputs that are the same for each example.

    A class token or a table of latents is repeated for each example: nothing in it moves, but its size follows them.
    """
    leaves, spec = tree_flatten((args, kwargs))
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.dim() > dim and leaf.shape[dim] == count:
            leaves[i] = torch.cat([leaf, leaf.narrow(dim, 0, 1)], dim)
    try:
        grown = run(*tree_unflatten(leaves, spec))
    except Exception:  # the model has a fixed number of examples
        return {}
    layouts = {}
    for key, calls in before.items():
        after = grown.get(key, [])
        dims = {_grown_dim(x.shape, y.shape, count) for (x, _), (y, _) in zip(calls, after, strict=False)}
        (found,) = dims if len(dims) == 1 else (None,)
        if found is not None and len(calls) == len(after):
            layouts[key] = Layout(found, "plain")
    return layouts


def _grown_dim(before: torch.Size, after: torch.Size, count: int) -> int | None:
    """Return the only dimension whose size is the number of examples before and after one more came; else None."""
    if len(before) != len(after):
        return None
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    is_batch = len(changed) == 1 and (before[changed[0]], after[changed[0]]) == (count, count + 1)
    return changed[0] if is_batch else None


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


_Input = tuple[Tensor, bool]  # and whether it was computed from the model's inputs
_Seen = dict[str | tuple[str, ReadSite], list[_Input]]  # label, or label and place of a read → the inputs of its calls


@contextmanager
def _undisturbed(
    model: nn.Module, layers: Mapping[str, nn.Module], probe: Probe
) -> Iterator[Callable[[tuple[Any, ...], dict[str, Any]], _Seen]]:
    """Yield a function that runs the model in eval mode and returns what its layers saw; put its state back."""
    seen: dict[str, list[_Input]] = {label: [] for label in layers}

    def record(label: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tensors = tensors_in((args, kwargs))
            if tensors:
                seen[label].append((tensors[0].detach().clone(), probe.is_from_inputs(tensors[0])))

        return hook

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Seen:
        for calls in seen.values():
            calls.clear()
        with (
            torch.random.fork_rng(),
            torch.no_grad(),
            restored_afterwards(model),
        ):  # a table from the run before hides reads
            torch.manual_seed(0)
            probe.begin(tensors_in((args, kwargs)))
            with _open_gates(model), probe:
                model(*args, **kwargs)
        return {**{label: list(calls) for label, calls in seen.items()}, **probe.operands}

    hooks = [layer.register_forward_pre_hook(record(label), with_kwargs=True) for label, layer in layers.items()]
    try:
        with restored_afterwards(model):
            model.eval()
            yield run
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _open_gates(model: nn.Module) -> Iterator[None]:
    """Put small numbers into Parameters that are all 0, and put the 0 back: a gate that begins at 0 hides movement."""
    parameters = (p for p in model.parameters() if p.is_floating_point() and type(p) is nn.Parameter)
    gates = [p.data for p in parameters if not p.is_meta and p.numel() and not bool(p.data.any())]
    try:
        for gate in gates:
            gate.normal_(0, 0.02)
        yield
    finally:
        for gate in gates:
            gate.zero_()


def _layout(calls: list[list[_Input]], probed: list[int], count: int) -> Layout | str:
    """Return the layout on which all calls of a layer agree, or why there is none."""
    is_from_inputs = any(is_from for inputs in calls for _, is_from in inputs)
    baseline, again, *moved = [[x for x, _ in inputs] for inputs in calls]
    if not baseline:
        return UNSEEN
    shapes = [[tuple(x.shape) for x in inputs] for inputs in (baseline, again, *moved)]
    if any(listed != shapes[0] for listed in shapes):
        has_rows = all(shape[:1] == (count,) for listed in shapes for shape in listed)
        return SIZED_BY_DATA if has_rows else ROUTED
    if any(not _equal(x, y) for x, y in zip(baseline, again, strict=True)):
        return "its input differs between two runs on the same batch"
    layouts = {
        _layout_of_call([~_same(x, inputs[call]) for inputs in moved], probed, count) for call, x in enumerate(baseline)
    }
    known = _merged({layout for layout in layouts if isinstance(layout, Layout)})
    layouts = {layout for layout in layouts if isinstance(layout, str)} | known
    if len(known) == 1 and all(isinstance(layout, Layout) or layout == NOTHING for layout in layouts):
        (layout,) = known
        still = [x for call, x in enumerate(baseline) if all(_equal(x, inputs[call]) for inputs in moved)]
        return layout if all(_is_one_row(x, layout.dim, count) for x in still) else SEVERAL
    if len(known) > 1:
        return f"{SEVERAL}: {', '.join(sorted(map(str, known)))}"
    why = next(layout for layout in layouts if isinstance(layout, str))
    return CONSTANT if why == NOTHING and not is_from_inputs else why


def _merged(known: set[Layout]) -> set[Layout]:
    """Return the layouts of several calls as one if they differ in the fold alone: a fold of one row is plain."""
    if len({layout.dim for layout in known}) == 1:
        folds = {layout for layout in known if layout.order != "plain"}
        return folds if len(folds) == 1 else known
    return known


NOTHING = "nothing in its input moved with any example"
CONSTANT = f"{NOTHING}, and it does not depend on the batch: all examples share it"
ROUTED = "the shape of its input depends on the data, as under token routing"
ORDER = "its rows move with other examples than those of their number"
SEVERAL = "its calls have several layouts"
SIZED_BY_DATA = "a size of its input depends on the data"
SOME = "its input moved with some of the examples, but not with all"
# Of these layers it is known that dimension 0 is not the examples, at least in some calls.
NOT_THE_BATCH = (NOTHING, ORDER, ROUTED, SEVERAL, SOME)


def _is_one_row(x: Tensor, dim: int, count: int) -> bool:
    """Return True if an input has the same row for each example, as a first hidden state has."""
    return x.dim() > dim and x.shape[dim] % count == 0 and _equal(x, x.narrow(dim, 0, 1).expand_as(x))


def _layout_of_call(moved: list[Tensor], probed: list[int], count: int) -> Layout | str:
    """Return the layout of one input from the places that moved with each probed example."""
    if not any(bool(places.any()) for places in moved):
        return NOTHING
    if not all(bool(places.any()) for places in moved):
        return SOME
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
    rows = [places.flatten(1).any(1) if places.dim() > 1 else places for places in moved]
    fold = len(rows[0]) // count
    owned = [row[n * fold : (n + 1) * fold] for n, row in zip(probed, rows, strict=True)]
    if len(rows[0]) % count == 0 and not all(bool(row.any()) for row in owned):
        return ORDER
    return "every example moves rows of the others, as batch statistics and contrastive heads do"


def _same(x: Tensor, y: Tensor) -> Tensor:
    return (x == y) | (x.isnan() & y.isnan()) if x.is_floating_point() else x == y


def _equal(x: Tensor, y: Tensor) -> bool:
    return bool(_same(x, y).all())
