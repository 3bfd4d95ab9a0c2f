"""Which of a model's inputs has the examples, and how many there are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten


@dataclass(frozen=True)
class Batch:
    """Which tensor among the model's inputs says how many examples there are."""

    index: int  # among all tensors of the arguments, in torch's order for trees
    dim: int
    keyword: str | None = None  # of the argument, if it was shown by keyword

    def rows(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """Return the number of rows of the batch; None if that is not known.

        A model that was shown a batch by keyword may be called with other keywords too: `generate` of transformers adds
        positions. Without the keyword itself, all tensors have to agree.
        """
        shown = None if self.keyword is None else kwargs.get(self.keyword)
        if isinstance(shown, Tensor):
            return shown.shape[self.dim]
        tensors = tensors_in((args, dict(kwargs)))
        if self.keyword is None or (args and isinstance(args[0], Tensor)):
            is_there = self.index < len(tensors) and tensors[self.index].dim() > self.dim
            return tensors[self.index].shape[self.dim] if is_there else None
        sizes = {tensor.shape[self.dim] for tensor in tensors if tensor.dim() > self.dim}
        sizes = sizes if sizes == {1} else sizes - {1}  # positions have one row for all examples
        return sizes.pop() if len(sizes) == 1 else None


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors of a call, in torch's order for trees."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def tensors_with_rows(inputs: Any) -> list[Tensor]:
    """Return the tensors of a call that may have the examples; none if a packed sequence hides how many there are.

    A tensor with a single row is broadcast, as positions and times are, if the batch has several rows: it is left out.
    """
    leaves = tree_flatten(inputs, is_leaf=lambda value: isinstance(value, PackedSequence))[0]
    if any(isinstance(leaf, PackedSequence) for leaf in leaves):
        return []
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
    first = told_batch(tensors, 0)
    has_rows = first is not None and tensors[first].dim() > 1 and tensors[first].shape[0] > 1
    batched_shapes = {tensor.shape[1:] for tensor in tensors if tensor.dim() > 1 and tensor.shape[0] > 1}
    return [
        tensor for tensor in tensors if tensor.shape[0] != 1 or not (has_rows or tensor.shape[1:] in batched_shapes)
    ]


def sizes_of(tensors: Iterable[Tensor], dims: Iterable[int] = (0,)) -> set[int]:
    """Return the sizes of these dimensions of the tensors that have them."""
    return {tensor.shape[dim] for dim in dims for tensor in tensors if tensor.dim() > dim}


def told_batch(tensors: list[Tensor], dim: int) -> int | None:
    """Return which of a call's tensors has the examples in the dimension that the user has told; None if none has it.

    It is the first that is no vector, since a vector beside it may hold positions.
    """
    candidates = [i for i, tensor in enumerate(tensors) if tensor.dim() > dim]
    return next((i for i in candidates if tensors[i].dim() > 1), candidates[0] if candidates else None)


def disagreeing(tensors: list[Tensor], rows: int) -> Tensor | None:
    """Return an input beside which `rows` may be time steps instead of examples, None if there is none.

    Sequences (N, T) and positions (T,) disagree: one has as many rows as the other has columns, and nobody but the user
    knows which number is the batch. The rows of the first input are believed beside states (layers, N, features), and a
    square mask (T, T) counts no examples.
    """
    inputs = [tensor for tensor in tensors if not (tensor.dim() > 1 and tensor.shape[0] == tensor.shape[1])]
    first = told_batch(inputs, 0)
    others = [tensor for tensor in inputs if tensor.shape[0] != rows]
    if first is None or inputs[first].shape[0] != rows:
        return next((tensor for tensor in others if rows in tensor.shape[1:]), None)
    columns = {size for tensor in inputs if tensor.shape[0] == rows for size in tensor.shape[1:]}
    return next((tensor for tensor in others if tensor.shape[0] in columns), None)
