"""The number of inputs of a prediction, and what to write if it was not given tensors."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .._model_calls import ModelCall, ModelInputs
from .._reprs import first_few
from ..errors import InvalidInput

_PASSED_ON = (type(None), bool, int, float, str, torch.dtype)  # arguments that are the same for all inputs


def count_inputs(x: ModelInputs, call: ModelCall, dim: int) -> int:
    """Return the number of inputs, on which all tensors must agree.

    Args:
        x: What `predict` was given.
        call: The call of the model that it stands for.
        dim: The dimension of the inputs.

    Raises:
        InvalidInput: There is no tensor, an argument is of a type that cannot be split, or the tensors disagree.
    """
    count = None
    for name, part in call.leaves():
        if isinstance(part, _PASSED_ON):
            continue
        size = part.shape[dim] if isinstance(part, Tensor) and part.dim() > dim else None
        count = size if count is None else count
        if size is None or size != count:
            found = f"a tensor of shape {tuple(part.shape)}" if isinstance(part, Tensor) else _described(part)
            others = "" if count is None else f", here {count}"
            raise InvalidInput(
                f"predict: {name} is {found}; expected tensors with the same number of inputs in dimension {dim} "
                f"(batch_dim){others}, for all arguments of the model. {_fix(part, x)}"
            )
    if count is None:
        raise InvalidInput(
            f"predict: {_described(x)} given, with no tensor in it; expected a tensor, a tuple of arguments or a dict "
            f"of keyword arguments. {_fix(x, x)}"
        )
    if not count:
        raise InvalidInput("predict: there are no inputs; expected at least one example. Leave an empty batch out.")
    return count


def _described(value: Any) -> str:
    """Describe a value in a few words, however much is in it."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if isinstance(value, Mapping):
        return f"a {name} of {first_few(map(repr, value))}" if value else f"an empty {name}"
    if not isinstance(value, (list, tuple)) or isinstance(value, PackedSequence):
        return f"of type {name}"
    if not value:
        return f"an empty {name}"
    inner = {type(part).__name__ for part in value}
    return f"a {name} of {len(value)} {inner.pop() if len(inner) == 1 else 'value'}{'s' * (len(value) > 1)}"


def _fix(value: Any, x: ModelInputs) -> str:
    """Return the line that makes tensors of a value, which is `x` or an argument in it."""
    name = "x" if value is x else "…"
    if isinstance(value, Tensor):
        return "Expand a tensor that all inputs share, or add it in a module around the model."
    if isinstance(value, PackedSequence):
        return (
            "Pad the sequences, so that each row is one input: "
            "torch.nn.utils.rnn.pad_packed_sequence(…, batch_first=True)[0]."
        )
    if isinstance(value, Mapping):
        return (
            "Write {name: torch.as_tensor(value) for name, value in x.items()}; a tokenizer returns tensors with "
            'return_tensors="pt".'
        )
    first = value
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    if isinstance(first, str):
        return 'Texts have to be token ids first: tokenizer(x, return_tensors="pt", padding=True).'
    if hasattr(value, "to_numpy"):
        return f"Write torch.as_tensor({name}.to_numpy()).float()."
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        is_fractional = getattr(getattr(value, "dtype", None), "kind", "") == "f"  # torch's layers have float32
        return f"Write torch.as_tensor({name}){'.float()' * is_fractional}."
    if isinstance(value, Iterable):
        return (
            "predict itself works in chunks, so give it all inputs at once. Those of a DataLoader are "
            "torch.cat([inputs for inputs, *_ in loader])."
        )
    return "Give the inputs as a tensor: torch.as_tensor(…)."
