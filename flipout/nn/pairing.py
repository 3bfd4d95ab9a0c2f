"""Which operand of an operation has the examples, where the other is a weight."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .handle import NoisyParameter

Found = tuple[Tensor | None, str]  # the operand, or why there is none


def operand(name: str, args: tuple, kwargs: dict[str, Any]) -> Found:
    """Return the operand whose dimension 0 is the examples, and that of the result too; else None and a reason.

    An operation with a rule here treats each index of that dimension apart, so it can be computed for each alone.
    """
    rule = _RULES.get(name)
    if rule is None:
        return None, f"no rule says how {name.strip('_')} treats the examples"
    return rule(list(args), kwargs)


def _has_rows(x: Any, least: int) -> Found:
    if not isinstance(x, Tensor) or isinstance(x, NoisyParameter):
        return None, "its input is no plain tensor"
    if x.dim() < least:
        return None, f"an input of shape {tuple(x.shape)} has no dimension for the examples"
    return x, ""


def _input_first(least: int) -> Callable[[list, dict[str, Any]], Found]:
    return lambda args, kwargs: _has_rows(args[0] if args else kwargs.get("input"), least)


def _normalised(args: list, kwargs: dict[str, Any]) -> Found:
    x, shape = [*args, *(kwargs[name] for name in ("input", "normalized_shape") if name in kwargs)][:2]
    return _has_rows(x, len(shape) + 1)


def _matmul(args: list, kwargs: dict[str, Any]) -> Found:
    left, right = (*args, *kwargs.values())[:2]
    if isinstance(right, NoisyParameter):
        if right.dim() > 2:
            return None, "several stacked matrices are multiplied with one input"
        return _has_rows(left, 2)
    if left.dim() != 2:
        return None, "the weight on the left is no matrix"
    return _has_rows(right, 3)


def _reversed_matmul(args: list, kwargs: dict[str, Any]) -> Found:
    return _matmul(args[::-1], kwargs)


def _addmm(args: list, kwargs: dict[str, Any]) -> Found:
    if len(args) < 3 or not isinstance(args[2], NoisyParameter):
        return None, "the weight is not its last matrix"
    return _has_rows(args[1], 2)


def _elementwise(args: list, kwargs: dict[str, Any]) -> Found:
    pair = [*args, *kwargs.values()][:2]
    handles = [part for part in pair if isinstance(part, NoisyParameter)]
    plain = [part for part in pair if isinstance(part, Tensor) and not isinstance(part, NoisyParameter)]
    if len(handles) != 1 or len(plain) != 1:
        return None, "it takes one weight and one input"
    has_room = plain[0].dim() == handles[0].dim() and handles[0].shape[:1] == (1,)
    if plain[0].dim() <= handles[0].dim() and not has_room:
        return None, (
            f"the input of shape {tuple(plain[0].shape)} has no dimension before those of the weight, "
            f"{tuple(handles[0].shape)}, that could be the example's"
        )
    return plain[0], ""


def _embedding(args: list, kwargs: dict[str, Any]) -> Found:
    return _has_rows(args[0] if args else kwargs.get("input"), 1)


def _lookup(args: list, kwargs: dict[str, Any]) -> Found:
    index = args[1]
    if isinstance(index, (tuple, list)):
        if len(index) != 1:
            return None, "rows are looked up by several indices"
        index = index[0]
    if not isinstance(index, Tensor) or index.is_floating_point() or not index.dtype.itemsize > 1:
        return None, "the rows are not looked up by integers"
    return _has_rows(index, 1)


def _einsum(args: list, kwargs: dict[str, Any]) -> Found:
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    if not isinstance(equation, str) or "->" not in equation:
        return None, "its equation names no output"
    inputs, output = equation.replace(" ", "").split("->")
    terms = inputs.split(",")
    plain = [i for i, part in enumerate(operands) if not isinstance(part, NoisyParameter)]
    if len(plain) != 1 or len(terms) != len(operands):
        return None, "it takes one input beside the weights"
    x, term = operands[plain[0]], terms[plain[0]]
    others = "".join(terms[i] for i in range(len(terms)) if i != plain[0])
    lead = "..." if term.startswith("...") else term[:1]
    has_lead = bool(lead) and output.startswith(lead) and lead not in others
    if lead == "..." and x.dim() <= len(term) - 3:
        has_lead = False
    if not has_lead:
        return None, f"the first index of the input in '{equation}' is not the first of the output alone"
    return _has_rows(x, 1)


_RULES: dict[str, Callable[[list, dict[str, Any]], Found]] = {
    "linear": _input_first(2),
    "matmul": _matmul,
    "__matmul__": _matmul,
    "__rmatmul__": _reversed_matmul,
    "mm": _matmul,
    "addmm": _addmm,
    "einsum": _einsum,
    "embedding": _embedding,
    "__getitem__": _lookup,
    "prelu": _input_first(2),
    **{f"conv{n}d": _input_first(n + 2) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _input_first(n + 2) for n in (1, 2, 3)},
    "group_norm": _input_first(2),
    "layer_norm": _normalised,
    "rms_norm": _normalised,
    **{
        name: _elementwise
        for stem in ("mul", "add", "sub", "truediv")
        for name in (f"__{stem}__", f"__r{stem}__", stem)
    },
    **dict.fromkeys(("div", "multiply", "subtract", "divide", "true_divide", "rsub"), _elementwise),
}
