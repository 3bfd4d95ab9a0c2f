"""How a model is called with a batch, and which part of what it returns is meant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_map_only, tree_unflatten

from .errors import InvalidArgument, InvalidInput

ModelInputs = Any  # a tensor, a tuple or list of arguments, or a dict of keyword arguments
OutputSelector = str | int | Callable[[Any], Any]  # a field's name, a position, or a function of all that is returned


@dataclass(frozen=True, eq=False)
class ModelCall:
    """The arguments of one call of a model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self, model: Callable[..., Any]) -> Any:
        return model(*self.args, **self.kwargs)

    def tensors(self) -> list[Tensor]:
        """Return the tensors of all arguments, in torch's order for trees."""
        parts = (*self.args, *self.kwargs.values())
        return [leaf for part in parts for _, leaf in _leaves_of(part) if isinstance(leaf, Tensor)]

    def leaves(self) -> list[tuple[str, Any]]:
        """Return everything in the arguments, with a name such as `input_ids` or `argument 0`."""
        named = [(f"argument {i}", part) for i, part in enumerate(self.args)] + list(self.kwargs.items())
        return [(f"{name}{path}", leaf) for name, part in named for path, leaf in _leaves_of(part)]

    def mapped(self, function: Callable[[Tensor], Any]) -> "ModelCall":
        """Return the call with each tensor replaced by the function's value."""
        kwargs = {name: map_tensors(part, function) for name, part in self.kwargs.items()}
        return ModelCall(tuple(map_tensors(part, function) for part in self.args), kwargs)

    def with_tensors(self, tensors: list[Tensor]) -> "ModelCall":
        """Return the call with other tensors, in the order of `tensors()`."""
        leaves, spec = tree_flatten((self.args, self.kwargs), is_leaf=_is_packed)
        others = iter(tensors)
        return ModelCall(*tree_unflatten([next(others) if isinstance(x, Tensor) else x for x in leaves], spec))


def model_call(inputs: ModelInputs) -> ModelCall:
    """Return the call that a batch of inputs stands for.

    A dict, or another mapping such as a tokeniser's `BatchEncoding`, holds keyword arguments. A tuple or list holds
    arguments in order. Anything else is the only argument.
    """
    if isinstance(inputs, Mapping):
        return ModelCall((), dict(inputs))
    if isinstance(inputs, (tuple, list)) and not _is_packed(inputs):
        return ModelCall(tuple(inputs), {})
    return ModelCall((inputs,), {})


def map_tensors(tree: Any, function: Callable[[Tensor], Any]) -> Any:
    """Replace every tensor inside tuples, lists, dicts and the model outputs of transformers."""
    if isinstance(tree, Tensor):  # the usual case, and torch's search through a tree takes 60 calls
        return function(tree)
    return tree_map_only(Tensor, function, tree, is_leaf=_is_packed)


def check_selector(selector: Any, of: str) -> None:
    """Refuse an `output` that names nothing."""
    is_name = isinstance(selector, (str, int)) and not isinstance(selector, bool)
    if not (selector is None or is_name or callable(selector)):
        raise InvalidArgument(
            f"{of}(output={selector!r}): expected the name of a field, output='logits', a position, output=0, or a "
            "function of all that the model returns."
        )


def select_tensor(returned: Any, selector: OutputSelector | None, of: str) -> Tensor:
    """Return the output tensor among all that a model returned: the selected one, or the only one."""
    if selector is not None:
        return select(returned, selector, of)
    tensors = _tensors_in(returned)
    if len(tensors) == 1:
        return tensors[0]
    which = "expected one tensor. Select it" if tensors else "there is no tensor in it. Make one"
    raise InvalidInput(f"{of}: the model returned {_shown(returned)}; {which}: {of}(…, output={_example(returned)}).")


def select(returned: Any, selector: OutputSelector | None, of: str) -> Any:
    """Return the selected tensor, or without a selector all that the model returned.

    Args:
        returned: What the model returned.
        selector: The name of a field or key, a position, or a function.
        of: The callable whose argument `output` is the selector, named in the message.

    Raises:
        InvalidInput: There is no such output, or it is not a tensor.
    """
    if selector is None:
        return returned
    try:
        chosen = _part(returned, selector)
    except (LookupError, AttributeError, TypeError) as error:
        if callable(selector):
            raise
        is_tensor = isinstance(returned, Tensor)
        fix = "Leave output= out." if is_tensor else f"Choose one of them, such as output={_example(returned)}."
        raise InvalidInput(
            f"{of}(…, output={selector!r}): the model returned {_shown(returned)}, which has no {selector!r}. {fix}"
        ) from error
    if not isinstance(chosen, Tensor):
        raise InvalidInput(
            f"{of}(…, output={selector!r}): this is {type(chosen).__name__} in what the model returned, "
            f"{_shown(returned)}; expected a tensor."
        )
    return chosen


def _part(returned: Any, selector: OutputSelector) -> Any:
    if callable(selector):
        return selector(returned)
    if isinstance(returned, Tensor):
        raise LookupError(selector)  # a position would be an example of the batch
    if isinstance(selector, str):
        return returned[selector] if isinstance(returned, Mapping) else getattr(returned, selector)
    return (tuple(returned.values()) if isinstance(returned, Mapping) else returned)[selector]


def _tensors_in(returned: Any) -> list[Tensor]:
    if isinstance(returned, Tensor):
        return [returned]
    parts = returned.values() if isinstance(returned, Mapping) else returned
    is_container = isinstance(returned, (Mapping, tuple, list)) and not _is_packed(returned)
    return [tensor for part in parts for tensor in _tensors_in(part)] if is_container else []


def _shown(returned: Any) -> str:
    """Describe what a model returned: its fields with their shapes."""
    if isinstance(returned, Tensor):
        return f"a tensor of shape {tuple(returned.shape)}"
    if isinstance(returned, Mapping):
        fields = {str(key): value for key, value in returned.items()}
    elif hasattr(returned, "_fields"):
        fields = dict(zip(returned._fields, returned, strict=True))
    elif isinstance(returned, (tuple, list)):
        fields = {str(i): value for i, value in enumerate(returned)}
    else:
        fields = {name: value for name, value in getattr(returned, "__dict__", {}).items() if name[0] != "_"}
    parts = [f"{k}: {tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__}" for k, v in fields.items()]
    return f"{type(returned).__name__}({', '.join(parts)})"


def _example(returned: Any) -> str:
    """Return a selector that would serve, for a message."""
    if isinstance(returned, Mapping):
        names = [key for key, value in returned.items() if isinstance(value, Tensor)]
        return repr("logits" if "logits" in names or not names else names[0])
    return "0" if isinstance(returned, (tuple, list)) else "lambda returned: …"


def _leaves_of(part: Any) -> list[tuple[str, Any]]:
    """Return the leaves of an argument, each with its path, which is "" for the argument itself."""
    if isinstance(part, Tensor):
        return [("", part)]
    return [(keystr(path), leaf) for path, leaf in tree_flatten_with_path(part, is_leaf=_is_packed)[0]]


def _is_packed(value: Any) -> bool:
    return isinstance(value, PackedSequence)
