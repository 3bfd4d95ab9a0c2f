"""Which operand of an operation has the examples, where the other is a weight."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .handle import NoisyParameter

Found = tuple[Tensor | None, str]  # the operand, or why there is none
Rule = Callable[[list, dict[str, Any], int], Found]  # from the arguments, and the dimension of the examples


_INPUT_FIRST = frozenset(
    [f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)]
    + ["linear", "layer_norm", "rms_norm", "group_norm", "prelu"]
)
_REFLECTED = frozenset(f"r{stem}" for stem in ("matmul", "mul", "add", "sub", "truediv"))


def name_of(func: Any) -> str:
    """Return the name of a torch function, method or attribute."""
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):
        return getattr(func.__self__, "__name__", name)
    return name


def operation_name(func: Any) -> str:
    """Return what an operation is called, whether it is written as a function, `x @ w` or a reflected method."""
    name = name_of(func).strip("_")
    return name[1:] if name in _REFLECTED else name


def is_weight_beside(name: str, tensor: Tensor, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Return True if a tensor stands where a weight or a bias does: it has no examples, whatever it is computed of."""
    if name in _INPUT_FIRST:
        return not (args and args[0] is tensor) and kwargs.get("input") is not tensor
    return name == "addmm" and bool(args) and args[0] is tensor and tensor.dim() == 1


def operand(name: str, args: tuple, kwargs: dict[str, Any], dim: int = 0) -> Found:
    """Return the operand whose dimension `dim` is the examples, and that of the result too; else None and a reason.

    An operation with a rule here treats each index of that dimension apart, so it can be computed for each alone.
    """
    rule = _RULES.get(name)
    if rule is None:
        return None, f"no rule says how {name.strip('_')} treats the examples"
    return rule(list(args), kwargs, dim)


def _within(x: Tensor, dim: int, least: int, most: int) -> Found:
    """Return x if its dimension `dim` is one of those that the operation keeps apart, `least` to `most`."""
    if least <= dim <= most:
        return x, ""
    return (
        None,
        f"its input of shape {tuple(x.shape)} has the examples in dimension {dim}, which it does not keep apart",
    )


def _has_rows(x: Any, least: int) -> Found:
    if not isinstance(x, Tensor) or isinstance(x, NoisyParameter):
        return None, "its input is no plain tensor"
    if x.dim() < least:
        return None, f"an input of shape {tuple(x.shape)} has no dimension for the examples"
    return x, ""


def _linear(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    x, why = _has_rows(args[0] if args else kwargs.get("input"), 2)
    return (x, why) if x is None else _within(x, dim, 0, x.dim() - 2)


def _batched(least: int) -> Rule:
    """Return the rule of an operation whose input has the examples in dimension 0, and no other dimension will do."""

    def rule(args: list, kwargs: dict[str, Any], dim: int) -> Found:
        x, why = _has_rows(args[0] if args else kwargs.get("input"), least)
        return (x, why) if x is None else _within(x, dim, 0, 0)

    return rule


def _normalised(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    x, shape = [*args, *(kwargs[name] for name in ("input", "normalized_shape") if name in kwargs)][:2]
    x, why = _has_rows(x, len(shape) + 1)
    return (x, why) if x is None else _within(x, dim, 0, x.dim() - len(shape) - 1)


def _matmul(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    left, right = (*args, *kwargs.values())[:2]
    if isinstance(right, NoisyParameter):
        if right.dim() > 2:
            return None, "several stacked matrices are multiplied with one input"
        x, why = _has_rows(left, 2)
        return (x, why) if x is None else _within(x, dim, 0, x.dim() - 2)
    if left.dim() != 2:
        return None, "the weight on the left is no matrix"
    x, why = _has_rows(right, 3)
    return (x, why) if x is None else _within(x, dim, 0, x.dim() - 3)


def _reversed_matmul(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    return _matmul(args[::-1], kwargs, dim)


def _addmm(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    if len(args) < 3 or not isinstance(args[2], NoisyParameter):
        return None, "the weight is not its last matrix"
    x, why = _has_rows(args[1], 2)
    return (x, why) if x is None else _within(x, dim, 0, 0)


def copied_dim(weight: NoisyParameter, x: Tensor, dim: int) -> int | None:
    """Return the weight's dimension that meets the example's, if the weight was expanded along it.

    All copies are equal: a class token that a model repeats for each example of its batch.
    """
    weight_dim = dim - x.dim() + weight.dim()
    is_there = 0 <= weight_dim < weight.dim() and weight.shape[weight_dim] == x.shape[dim] > 1
    return weight_dim if is_there and weight._at_mean.stride(weight_dim) == 0 else None


def _elementwise(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    pair = [*args, *kwargs.values()][:2]
    handles = [part for part in pair if isinstance(part, NoisyParameter)]
    plain = [part for part in pair if isinstance(part, Tensor) and not isinstance(part, NoisyParameter)]
    if len(handles) != 1 or len(plain) != 1:
        return None, "it takes one weight and one input"
    x, weight = plain[0], handles[0]
    weight_dim = dim - x.dim() + weight.dim()  # the weight's dimension that meets the example's
    is_free = weight_dim < 0 or weight.shape[weight_dim] == 1 or copied_dim(weight, x, dim) is not None
    if x.dim() < weight.dim() or not is_free:
        return None, (
            f"the input of shape {tuple(x.shape)} has no dimension {f'{dim} ' if dim else ''}before those of the "
            f"weight, {tuple(weight.shape)}, that could be the example's"
        )
    return _has_rows(x, dim + 1)


def _joined(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    parts, along = [*args, *(kwargs[name] for name in ("tensors", "dim") if name in kwargs), 0][:2]
    plain = [part for part in parts if not isinstance(part, NoisyParameter)]
    if len(plain) != 1 or not isinstance(along, int) or plain[0].dim() <= dim:
        return None, "it joins several inputs with the weight"
    x = plain[0]
    weights = [part for part in parts if part is not x]
    if along % x.dim() == dim or any(x.shape[dim] > 1 and copied_dim(weight, x, dim) is None for weight in weights):
        return None, "it joins the weight to the inputs, but not to each example: expand it to the batch first"
    return _has_rows(x, dim + 1)


def _embedding(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    return _has_rows(args[0] if args else kwargs.get("input"), dim + 1)


def _lookup(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    index = args[1]
    if isinstance(index, (tuple, list)):
        if len(index) != 1:
            return None, "rows are looked up by several indices"
        index = index[0]
    if not isinstance(index, Tensor) or index.is_floating_point() or not index.dtype.itemsize > 1:
        return None, "the rows are not looked up by integers"
    return _has_rows(index, dim + 1)


def _prelu(args: list, kwargs: dict[str, Any], dim: int) -> Found:
    x, why = _has_rows(args[0] if args else kwargs.get("input"), 2)
    return (None, "its examples are where the channels are") if x is not None and dim == 1 else (x, why)


def _einsum(args: list, kwargs: dict[str, Any], dim: int) -> Found:
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
    if "..." in term and dim < x.dim() - len(term) + 3 and term.startswith("..."):
        has_lead = output.startswith("...") and "..." not in others
    else:
        index = term[dim : dim + 1]
        has_lead = bool(index) and index != "." and "..." not in term[:dim]
        has_lead = has_lead and output[dim : dim + 1] == index and index not in others
    if not has_lead:
        which = "first" if not dim else f"{dim + 1}th"
        return None, f"the {which} index of the input in '{equation}' is not the {which} of the output alone"
    return _has_rows(x, dim + 1)


IN_PLACE = frozenset(("add", "sub", "mul", "div"))  # `x += weight` is computed as `x + weight`

_RULES: dict[str, Rule] = {
    "linear": _linear,
    "matmul": _matmul,
    "__matmul__": _matmul,
    "__rmatmul__": _reversed_matmul,
    "mm": _matmul,
    "addmm": _addmm,
    "einsum": _einsum,
    "embedding": _embedding,
    "__getitem__": _lookup,
    "prelu": _prelu,
    **dict.fromkeys(("cat", "concat", "concatenate"), _joined),
    **{f"conv{n}d": _batched(n + 2) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _batched(n + 2) for n in (1, 2, 3)},
    "group_norm": _batched(2),
    "layer_norm": _normalised,
    "rms_norm": _normalised,
    **{
        name: _elementwise
        for stem in ("mul", "add", "sub", "truediv")
        for name in (f"__{stem}__", f"__r{stem}__", stem)
    },
    **dict.fromkeys(("div", "multiply", "subtract", "divide", "true_divide", "rsub"), _elementwise),
}
