"""Watches torch's functions while the model sees `example_inputs`: what reads Parameters, what derives from the inputs.

The layout of a layer that is called is found from its input. A Parameter that code reads outside of its layer has no
input. There the other operand is noted, by line of code and operation, since each line may see another layout.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from .pairing import is_weight_beside, operation_name
from .reader import caller, innermost_call

FORMS = frozenset(("to", "type_as"))  # operations that take only dtype and device from their other tensor


class ReadSite(NamedTuple):
    """Where code reads a Parameter outside of its layer."""

    name: str  # of the Parameter in its layer
    operation: str
    line: str  # of the reader, "file:line"
    is_computed: bool  # the operation gets a function of the Parameter, such as a slice


@dataclass
class Readable:
    """A Parameter that may be read outside of its layers."""

    users: list[tuple[str, str]] = field(
        default_factory=list
    )  # the label of each layer, and the Parameter's name there
    own_readers: list[nn.Module] = field(default_factory=list)  # layers whose own code adds the noise itself


class Probe(TorchFunctionMode):
    """Notes the operands of reads outside of layers, and which tensors derive from the model's inputs."""

    def __init__(self, parameters: Mapping[int, Readable], constants: set[int]) -> None:
        super().__init__()
        self.parameters, self.constants = parameters, constants
        self.operands: dict[tuple[str, ReadSite], list[tuple[Tensor, bool]]] = {}
        self._computed: dict[int, tuple[Tensor, frozenset[int]]] = {}  # functions of Parameters alone, by id
        self._reached: dict[int, StorageWeakRef] = {}

    def begin(self, inputs: list[Tensor]) -> None:
        """Forget the run before, and follow the new inputs."""
        self.operands = {}
        self._computed.clear()
        self._reached.clear()
        for tensor in inputs:
            self._reach(tensor)

    def is_from_inputs(self, tensor: Tensor) -> bool:
        """Return True if a tensor was computed from the model's inputs, whether its numbers depend on them or not."""
        found = self._reached.get(storage_key(tensor))
        return found is not None and not found.expired()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        tensors = list(_tensors((args, kwargs)))
        sources = frozenset[int]().union(*(self._sources(tensor) for tensor in tensors))
        if any(self.is_from_inputs(tensor) for tensor in tensors):
            # A method that changes a tensor may return nothing: `x[0] = y`.
            changed = args[:1] if result is None else (result,)
            for tensor in _tensors(changed):
                self._reach(tensor)
        if sources:
            self._note(func, args, kwargs, sources, tensors, result)
        return result

    def _note(
        self,
        func: Any,
        args: tuple,
        kwargs: dict[str, Any],
        sources: frozenset[int],
        tensors: list[Tensor],
        result: Any,
    ) -> None:
        """Note one function that takes a Parameter: its operand, or its result if it takes nothing else."""
        readables = [self.parameters[key] for key in sources]
        innermost = innermost_call()
        if any(innermost is layer for readable in readables for layer in readable.own_readers):
            return
        operation = operation_name(func)
        if operation in FORMS:
            operands = []
        else:
            operands = [t for t in tensors if not self._sources(t) and not self._is_constant(t)]
        is_computed = any(id(tensor) in self._computed for tensor in tensors)
        if not any(self.is_from_inputs(tensor) for tensor in operands):
            # Also of what all examples share, such as positions: noise passes through it.
            for tensor in _tensors((result,)):
                self._computed[id(tensor)] = tensor, sources
        if not operands:
            return
        inputs = [t for t in operands if not is_weight_beside(operation, t, args, kwargs)]
        line = caller()
        for x in inputs[:1] if len({id(t) for t in inputs}) == 1 else ():
            for label, name in (user for readable in readables for user in readable.users):
                site = ReadSite(name, operation, line, is_computed)
                self.operands.setdefault((label, site), []).append((x.detach().clone(), self.is_from_inputs(x)))

    def _sources(self, tensor: Tensor) -> frozenset[int]:
        """Return the Parameters that a tensor is, or is a function of, by their ids."""
        if id(tensor) in self.parameters:
            return frozenset((id(tensor),))
        found = self._computed.get(id(tensor))
        return frozenset() if found is None else found[1]

    def _is_constant(self, tensor: Tensor) -> bool:
        return tensor.dim() == 0 or isinstance(tensor, nn.Parameter) or id(tensor) in self.constants

    def _reach(self, tensor: Tensor) -> None:
        key = storage_key(tensor)
        if key:
            self._reached[key] = StorageWeakRef(tensor.untyped_storage())


def storage_key(tensor: Tensor) -> int:
    """Return what tells the memory of a tensor from others; 0 for a tensor without memory of its own."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # a sparse tensor, or one of a subclass
        return 0


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors inside tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
        return
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    for part in inside:
        yield from _tensors(part)
