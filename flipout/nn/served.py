"""The torch functions that can use a noisy Parameter outside of its layer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import FlipoutError
from .handle import NoisyParameter, Source, handles_in, is_constant, refusal
from .inputs import rows_back
from .layers import parameter_of
from .layouts import CONSTANT, Layout
from .pairing import IN_PLACE, copied_dim, is_weight_beside, name_of, operand, operation_name
from .probe import FORMS, ReadSite
from .products import by_scheme
from .reader import caller, is_inside_function
from .reads import example_dim, example_stack, examples_first, is_read_noisy, layout_of_read, shared_weight

# Methods and attributes that ask about the Parameter without reading its numbers.
_QUESTIONS = """shape dtype device layout ndim requires_grad is_leaf grad_fn names itemsize nbytes is_cuda is_cpu
    is_meta is_mps is_xpu is_sparse is_sparse_csr is_mkldnn is_quantized is_nested is_inference is_complex
    is_floating_point is_signed is_contiguous is_conj is_neg is_shared is_pinned dim size stride numel nelement
    element_size storage_offset get_device ndimension __len__ _version is_tensor retains_grad _is_view is_distributed"""
_LIKENESSES = """zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full
    new_tensor result_type can_cast promote_types"""
METADATA, _LIKE = frozenset(_QUESTIONS.split()), frozenset(_LIKENESSES.split())
_RANDOM = frozenset(("dropout", "alpha_dropout", "feature_dropout", "bernoulli", "multinomial", "normal", "poisson"))


def is_question(func: Any) -> bool:
    """Return True if a function asks for the shape, dtype or the like of a tensor, and not for its numbers."""
    return name_of(func) in METADATA or name_of(func) in _LIKE


def serve(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Compute a torch function some of whose arguments are handles, or refuse it."""
    name = name_of(func)
    if name in METADATA:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    handles = handles_in([args, kwargs])
    if name in ("__repr__", "__str__", "__format__"):
        return f"NoisyParameter({', '.join(s.label for h in handles for s in h._sources)}, {tuple(handles[0].shape)})"
    if name == "__iter__":
        return iter(handles[0].unbind(0))
    if name in _LIKE:
        return func(*swapped(args, _means(handles)), **swapped(kwargs, _means(handles)))
    operation = name.strip("_") if name.startswith("__") else name
    is_set = getattr(func, "__name__", "") == "__set__"
    if is_set and name == "data" and handles[0]._is_transposed is False:
        source = handles[0]._sources[0]  # code that gathers or offloads weights sets the data of the Parameter itself
        parameter_of(source.layer, source.name).data = args[1]
        return None
    if _changes(name) and args and not isinstance(args[0], NoisyParameter):
        return _written(func, name, args, kwargs, handles)
    if _changes(name) or kwargs.get("out") is not None or is_set:
        raise refusal(handles, operation, "it would change the Parameter within a pass")
    if is_inside_function():
        raise refusal(handles, operation, "")
    _refuse_outside(handles, operation)
    shared = [handle for handle in handles if all(source.is_shared for source in handle._sources)]
    if shared:
        x, _ = operand(name, args, kwargs)
        rows = None if x is None else x.shape[0]
        values = {
            id(handle): handle._compute([_shared(source, rows) for source in handle._sources]) for handle in shared
        }
        args, kwargs = swapped(args, values), swapped(kwargs, values)
        handles = handles_in([args, kwargs])
        if not handles:
            return func(*args, **kwargs)
    if name in _RANDOM:
        raise refusal(handles, operation, "it draws random numbers for the weight")
    operands = [t for t in _tensors([args, kwargs]) if name not in FORMS and not is_constant(t, handles)]
    routed = any(handle._is_routed for handle in handles)
    layout = _layout(func, handles) if operands else None
    if not operands or layout == CONSTANT:
        return _composed(func, name, args, kwargs, handles)
    if routed and not isinstance(layout, Layout):
        why = (
            "it picks one of several stacked weights (an expert), and which rows belong to which example is not known "
            "unless perturb(…, example_inputs=batch) finds it"
        )
        raise refusal(handles, operation, why)
    if isinstance(layout, str):
        why = (
            "which rows of its operand belong to which example is not known, as perturb(…, example_inputs=…) has found"
        )
        raise refusal(handles, operation, f"{why}: {layout}")
    x, why = operand(name, args, kwargs, example_dim(handles[0]._sources[0].layer, layout))
    if x is None or any(other is not x for other in operands if not is_weight_beside(name, other, args, kwargs)):
        raise refusal(handles, operation, why or "which of its operands has the examples is not known")
    try:
        served = by_scheme(name, x, args, kwargs, handles, layout)
        served = _each(func, x, args, kwargs, handles, layout) if served is None else served
        return _without_padding(served, x, args, kwargs) if name == "embedding" else served
    except (FlipoutError, RuntimeError, TypeError, ValueError, IndexError) as error:
        raise refusal(handles, operation, f"for each example by itself it fails: {error}".rstrip(".")) from error


def _written(func: Any, name: str, args: tuple, kwargs: dict[str, Any], handles: list[NoisyParameter]) -> Any:
    """Compute an operation that writes into a plain tensor, such as `x += self.positions`."""
    stem = operation_name(func)
    stem = stem[1:] if name.startswith("__i") else stem
    if stem not in IN_PLACE:
        raise refusal(handles, stem, "it writes the weight into a tensor that all examples share")
    # The backward pass of a product needs the numbers from before.
    return args[0].copy_(getattr(Tensor, stem)(args[0].clone(), *args[1:], **kwargs))


def _layout(func: Any, handles: Sequence[NoisyParameter]) -> Layout | str | None:
    """Return the layout of the operand that the handles meet here, None if `perturb` was not shown a batch."""
    sources = [source for handle in handles for source in handle._sources]
    if not any(source.layer.flipout.reads for source in sources):
        return None
    is_computed = any(handle._is_transposed is not False for handle in handles)
    line, operation = caller(), operation_name(func)
    return layout_of_read([(s.layer, ReadSite(s.name, operation, line, is_computed)) for s in sources])


def _without_padding(looked_up: Tensor, index: Tensor, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    """Return rows that were looked up, those of `padding_idx` without a gradient: torch's vmap forgets that option."""
    padding = args[2] if len(args) > 2 else kwargs.get("padding_idx")
    if padding is None:
        return looked_up
    weight = args[1] if len(args) > 1 else kwargs["weight"]
    is_padding = index == padding % weight.shape[0]
    return torch.where(is_padding.unsqueeze(-1), looked_up.detach(), looked_up)


def _changes(name: str) -> bool:
    if name.startswith("__"):
        return (name.startswith("__i") and name not in ("__invert__", "__iter__", "__int__", "__index__")) or (
            name in ("__setitem__", "__set__", "__delitem__")
        )
    return name.endswith("_") or name in ("backward", "register_hook", "retain_grad")


def _refuse_outside(handles: Sequence[NoisyParameter], operation: str) -> None:
    for handle in handles:
        for source in handle._sources:
            if not is_read_noisy(source.layer):
                why = "it was kept beyond the forward pass that it belongs to, and has no value outside"
                raise refusal(handles, operation, why)


def swapped(value: Any, values: dict[int, Any]) -> Any:
    """Return arguments with some of them, told by their id, replaced; in lists, tuples and dicts too."""
    if id(value) in values:
        return values[id(value)]
    if isinstance(value, dict):
        return {key: swapped(inside, values) for key, inside in value.items()}
    if type(value) in (list, tuple):
        return type(value)(swapped(inside, values) for inside in value)
    return value


def _means(handles: Sequence[NoisyParameter]) -> dict[int, Tensor]:
    return {id(handle): handle._at_mean for handle in handles}


def _tensors(value: Any) -> list[Tensor]:
    """Return the plain tensors among arguments."""
    if isinstance(value, NoisyParameter):
        return []
    if isinstance(value, Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in inside for tensor in _tensors(part)]


def _composed(func: Any, name: str, args: tuple, kwargs: dict[str, Any], handles: list[NoisyParameter]) -> Any:
    """A function of weights alone: another handle, or several."""
    if name == "data":
        func, name, args = Tensor.detach, "detach", args[:1]
    try:
        mean = func(*swapped(args, _means(handles)), **swapped(kwargs, _means(handles)))
    except Exception as error:
        raise refusal(handles, name, f"for its mean it fails: {error}".rstrip(".")) from error
    sources = tuple(dict.fromkeys(source for handle in handles for source in handle._sources))
    places = {source: i for i, source in enumerate(sources)}

    def value(values: Sequence[Tensor]) -> Any:
        formed = {id(h): h._compute([values[places[source]] for source in h._sources]) for h in handles}
        return func(*swapped(args, formed), **swapped(kwargs, formed))

    needs_grad = any(handle.requires_grad for handle in handles) and name != "detach"
    first = handles[0]
    form = first._is_transposed if len(handles) == 1 and first.dim() == 2 else None
    turned = None if form is None or not _turns(name, args) else not form
    is_routed = any(handle._is_routed for handle in handles) or (
        first.dim() > 2 and _stacks(first) and _picks(name, args, kwargs)
    )

    def handle(part: Tensor, pick: Callable[[Any], Tensor], turned: bool | None) -> NoisyParameter:
        return NoisyParameter(sources, lambda v: pick(value(v)), part.detach(), needs_grad, turned, is_routed)

    if isinstance(mean, Tensor):
        return handle(mean, lambda result: result, turned)
    if isinstance(mean, (tuple, list)) and all(isinstance(part, Tensor) for part in mean):
        return tuple(handle(part, lambda results, i=i: results[i], None) for i, part in enumerate(mean))
    raise refusal(handles, name, f"it makes a {type(mean).__name__} of the weight")


def _turns(name: str, args: tuple) -> bool:
    """Return True if a function of a matrix is its transpose."""
    if name in ("t", "T", "mT"):
        return True
    dims = [dim for arg in args[1:] for dim in (arg if isinstance(arg, (list, tuple)) else [arg])]
    if name == "permute":
        return [dim % 2 for dim in dims] == [1, 0]
    return name in ("transpose", "swapaxes", "swapdims") and sorted(dim % 2 for dim in dims) == [0, 1]


def _picks(name: str, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Return True if a function takes some of the matrices that a Parameter stacks in dimension 0."""
    if name == "__getitem__":
        index = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
        return not (index is None or index is Ellipsis or isinstance(index, slice))
    along = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    return name in ("select", "index_select", "unbind") and along == 0


def _stacks(handle: NoisyParameter) -> bool:
    """Return True if the Parameter stacks matrices: one of a module that only reads know."""
    return any(source.layer._declared.stacks_weights for source in handle._sources)


def _shared(source: Source, rows: int | None) -> Tensor:
    return shared_weight(source.layer, source.name, rows)


def _each(
    func: Any, x: Tensor, args: tuple, kwargs: dict[str, Any], handles: list[NoisyParameter], layout: Layout | None
) -> Tensor:
    """The function for each example alone, under its own weights."""
    sources = list(dict.fromkeys(source for handle in handles for source in handle._sources))
    dim = example_dim(sources[0].layer, layout)
    if x.dim() <= dim:
        raise refusal(handles, "a product", f"its input of shape {tuple(x.shape)} has no dimension {dim}")
    rows, place = examples_first(sources[0].layer, x, layout)
    stacks = [example_stack(source.layer, source.name, rows, layout) for source in sources]
    places = {source: i for i, source in enumerate(sources)}

    def alone(weight: Tensor, *values: Tensor) -> Tensor:
        formed: dict[int, Any] = {}
        for handle in handles:
            value = handle._compute([values[places[s]] for s in handle._sources])
            copied = copied_dim(handle, x, dim)
            formed[id(handle)] = value if copied is None else value.narrow(copied, 0, weight.shape[dim])
        formed[id(x)] = weight
        return func(*swapped(args, formed), **swapped(kwargs, formed))

    each = rows.unflatten(0, (len(stacks[0]), -1)).movedim(1, dim + 1)
    outputs = torch.vmap(alone)(each, *stacks)  # each example has its rows in dimension `dim`, as the batch has
    return rows_back(outputs.movedim(dim + 1, 1).flatten(0, 1).contiguous(), place)
