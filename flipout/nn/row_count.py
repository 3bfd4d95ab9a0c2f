"""Whether the rows of a layer's input can be the examples of the model's batch. Other rows are refused."""

import sys
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_leaves

from .._torch_internals import MODULE_CALL
from ..errors import ExampleCount, LayoutUnknown
from .batches import disagreeing, sizes_of, tensors_with_rows, told_batch
from .layers import label_of
from .layouts import CONSTANT

if TYPE_CHECKING:
    from .base import Perturbed


def batch_rows(layer: "Perturbed", rows: int) -> int:
    """Return the number of rows of the root's batch, which the layer's `rows` are folded from.

    Raises:
        ExampleCount: The layer is called outside its root, or its rows are not a multiple of the batch's.
    """
    learned = next((root.thread.running.rows for root, _ in layer.flipout.roots if root.thread.running.rows), None)
    if learned is None:
        raise ExampleCount(
            f"{label_of(layer)}: its examples are folded into the rows of its input, as example_inputs have shown, and "
            "how many there are is known only inside a call of the whole model. Call the model that was given to "
            "perturb."
        )
    if rows % learned:
        raise ExampleCount(
            f"{label_of(layer)}: {rows} rows do not split into the {learned} examples of the model's input, as they "
            "did for the example_inputs of perturb. Give example_inputs that show how this input is laid out."
        )
    return learned


def single_example(layer: "Perturbed", x: Tensor, outer: int = 0, mask: Tensor | None = None) -> Tensor:
    """Return an input without a dimension for the examples, (1, …).

    The model's own input is taken for a single example if no tensor of it has more dimensions than the layer's. If one
    has, the layer is probably called for each example in turn, and `check_batch` refuses that. A recurrent cell is
    called for each time step in turn, so it allows one dimension more, `outer`. The `mask` of attention, which may have
    one for each head, says nothing.
    """
    for root, _ in layer.flipout.roots:
        running = root.thread.running
        if running.inputs is not None and not running.is_single:
            leaves = tree_leaves(running.inputs)
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf is not mask]
            running.is_single = all(tensor.dim() <= x.dim() + outer for tensor in tensors)
    return x.unsqueeze(0)


def check_batch(layer: "Perturbed", rows: int, sequences: int = 1) -> None:
    """Refuse to take `rows` for the number of examples if no input of the root has as many.

    They are looked for in dimension 0 of the inputs, or in the one that `perturb(…, batch_dim=1)` names, and in the
    layer's own example dimension where a torch module has set it (`batch_first`). A batch that `perturb` was shown says
    exactly which number it is. A running `generate` has several rows, `sequences`, for each prompt. It may run around
    the root or within it. A layer whose dimension was told by its name is believed.

    Raises:
        ExampleCount: The rows are probably tokens, windows or time steps, an input that all examples share, or one
            example of several; or the inputs do not say which of their dimensions is the batch.
    """
    plan = layer.flipout
    if plan.is_told or getattr(layer, "include_last_offset", False):
        return
    for root, _ in plan.roots:
        running = root.thread.running
        if running.inputs is None:  # no call of the root runs, under its own draw or a held one
            continue
        tensors = None
        if running.rows is not None:
            dims, sizes = {0 if root.batch is None else root.batch.dim}, {running.rows}
        elif plan.batch_dim is not None:
            dims, sizes = {plan.batch_dim}, _told_size(running.inputs, plan.batch_dim)
        else:
            args, kwargs = running.inputs
            if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and args[0].shape[:1] == (rows,):
                continue  # the usual case, without a walk through all inputs
            dims, tensors = {0, _own_dim(layer)}, tensors_with_rows(running.inputs)
            sizes = sizes_of(tensors, dims)
        if not sizes or (rows == 1 and running.is_single):
            continue
        if sizes.isdisjoint((rows, rows // sequences)):
            listed = f"{_listed(sizes)} in dimension {_listed(dims)}"
            raise ExampleCount(_message(layer, rows, listed, _shared_part(layer, sizes, root)))
        knows_its_layout = hasattr(layer, "batch_first") or plan.takes_sequences
        if tensors is not None and len(sizes) > 1 and not knows_its_layout:
            _refuse_disagreeing(layer, tensors, rows // sequences)


def warn_of_equal_sizes(layer: "Perturbed", x: Tensor) -> None:
    """Warn once a model if the size of an input does not show whether the told dimension has the examples.

    The examples are in dimension 0 of x. A layer inside may be time-major although the model is not: nothing but
    `example_inputs` can tell, if there are as many time steps as examples. For a layer that is the model itself,
    `batch_dim` speaks of this very input.
    """
    plan, rows = layer.flipout, x.shape[0]
    dims = x.shape[1:-1] if x.is_floating_point() else x.shape[1:]
    is_known = not plan.label or hasattr(layer, "batch_first") or isinstance(layer, _ConvNd) or rows == 1
    if is_known or rows not in dims or torch.compiler.is_compiling():
        return
    roots = [root for root, _ in plan.roots if root.batch is None and not root.warned_of_sizes]
    for root in roots:
        root.warned_of_sizes = True
    if roots:
        warnings.warn(
            f"{label_of(layer)}: its input has {rows} examples and {rows} time steps, tokens or positions, so its "
            f"shape cannot confirm that the examples are in dimension {plan.batch_dim}, as batch_dim says. If it has "
            "them elsewhere, its noise is wrong. Show perturb a batch, perturb(model, …, example_inputs=batch), or say "
            f"where this layer has them: batch_dim={{'{plan.label}': {plan.batch_dim}}}.",
            LayoutUnknown,
            stacklevel=2,
        )


def _told_size(inputs: Any, dim: int) -> set[int]:
    """Return the number of examples in the dimension that the user has told; empty if no input has it."""
    tensors = tensors_with_rows(inputs)
    index = told_batch(tensors, dim)
    return set() if index is None else {tensors[index].shape[dim]}


def _refuse_disagreeing(layer: "Perturbed", tensors: list[Tensor], rows: int) -> None:
    """Ask for the batch where the inputs do not say which of their dimensions it is."""
    other = disagreeing(tensors, rows)
    if other is None:
        return
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
    raise ExampleCount(
        f"{label_of(layer)}: its input has {rows} rows, but the model was called with inputs of shapes {shapes}, which "
        f"do not agree on the number of examples: beside the one of shape {tuple(other.shape)}, these rows may be time "
        "steps or positions. Say where the examples are in the first input that is no vector: "
        "perturb(model, …, batch_dim=0)."
    )


def refuse_unknown(layer: "Perturbed") -> None:
    """Refuse a layer whose rows are no examples, as `example_inputs` have shown, unless it was told otherwise.

    Raises:
        ExampleCount: The call would give rows the weights of examples that they do not belong to.
    """
    plan = layer.flipout
    if plan.batch_dim is not None:
        return
    shared = plan.label
    if plan.unknown == CONSTANT:
        for root, _ in plan.roots:
            if root.thread.running.rows is not None:
                shared = _shared_part(layer, {root.thread.running.rows}, root)
    raise ExampleCount(
        f"{label_of(layer)}: which rows belong to which example is not known, as perturb(…, example_inputs=…) has "
        f"found: {plan.unknown}. Share its weight between the examples, scheme={{'{shared or '*'}.*': 'shared', '*': "
        "'flipout'}, or leave it out with `where`. If each of its rows is an example all the same, say so: "
        f"perturb(model, …, batch_dim={{'{plan.label or '*'}': 0}})."
    )


def _own_dim(layer: Any) -> int:
    """Return the example's dimension that torch's own module gives the layer."""
    batch_first = getattr(layer, "batch_first", None)
    return layer.flipout.inherited_batch_dim if batch_first is None else int(not batch_first)


def _listed(numbers: set[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))


def _message(layer: "Perturbed", rows: int, listed: str, shared: str) -> str:
    """Return why this number of rows is refused, and which lines of code would help."""
    plan = layer.flipout
    told = f"perturb(model, …, batch_dim={{'{plan.label or '*'}': {plan.batch_dim or 0}}})"
    start = f"{label_of(layer)}: its input has {rows} row{'s' * (rows != 1)}, but the model was called with {listed}. "
    if rows == 1:
        return (
            f"{start}If all examples share this input, as a prompt or a table of positions, share the weight too: "
            f"scheme={{'{shared}.*': 'shared', '*': 'flipout'}}. If each example comes alone, or some have an adapter "
            "of their own, give the layer the whole batch, or leave it out with `where`. If the model's input is a "
            f"single example, give it a batch dimension, or say so: {told}."
        )
    return (
        f"{start}If tokens, windows or time steps were folded into the rows, show perturb a batch, "
        "perturb(model, …, example_inputs=batch), and it follows the fold; if each row is an example all the same, say "
        f"so: {told}."
    )


def _shared_part(layer: "Perturbed", sizes: set[int], root: Any) -> str:
    """Return the name of the outermost running module that gets no tensor with as many rows as the batch has."""
    model = None if root.structure.module is None else root.structure.module()
    names = {} if model is None else {module: name for name, module in model.named_modules()}
    outermost, frame = layer.flipout.label, sys._getframe(1)
    while frame is not None:
        if frame.f_code is MODULE_CALL:
            module, inputs = frame.f_locals["self"], (frame.f_locals["args"], frame.f_locals["kwargs"])
            has_batch = any(isinstance(x, Tensor) and x.dim() and x.shape[0] in sizes for x in tree_leaves(inputs))
            if has_batch or module is model:
                break
            outermost = names.get(module, outermost)
        frame = frame.f_back
    return outermost or "*"
