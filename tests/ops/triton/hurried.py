"""Triton's interpreter without the work that it repeats for each operation: less than half of the time.

Nothing here changes a result: what is remembered depends on shapes and dtypes alone.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from math import prod
from typing import Any


def hurry() -> None:
    """Spare Triton's interpreter what takes most of its time and changes no result."""
    interpreter: Any = import_module("triton.runtime.interpreter")
    core: Any = import_module("triton.language.core")
    builder, function = interpreter.interpreter_builder, interpreter.InterpretedFunction
    if not builder.options.debug:  # the result of a check for overflow is only looked at under `debug`
        builder.options = replace(builder.options, sanitize_overflow=False)

    def call(self: Any, *arguments: Any, **more: Any) -> Any:
        """Call a function inside a kernel. Triton patches its language here once more, as the kernel's launch did."""
        try:
            return self.rewrite()(*arguments, **more)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    function.__call__ = call
    interpreter._get_np_dtype = _remembered(interpreter._get_np_dtype, lambda kind: kind.name)

    @cache
    def sizes(shape: tuple[int, ...]) -> tuple[Any, Any]:
        return core.tuple([core.constexpr(size) for size in shape]), core.constexpr(prod(shape))

    def begin(self: Any, handle: Any, type: Any) -> None:
        """Make a block or a number, as Triton does, with the shape of an earlier one."""
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = sizes(tuple(type.shape.values) if type.is_block() else ())

    core.tensor.__init__ = begin
    describe, described = core.block_type.__init__, {}

    def shape_block(self: Any, element_ty: Any, shape: Any) -> None:
        """Describe blocks of a shape, as Triton does, by a description that is there."""
        key = element_ty.name, *(getattr(size, "value", size) for size in shape)
        if key not in described:
            describe(self, element_ty, shape)
            described[key] = {name: vars(self)[name] for name in ("shape", "numel", "name")}
        self.__dict__.update(described[key], element_ty=element_ty)

    core.block_type.__init__ = shape_block


def _remembered(function: Callable[[Any], Any], key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function with its results remembered by a key of its argument, which has no hash."""
    results: dict[Any, Any] = {}

    def remembered(argument: Any) -> Any:
        if key(argument) not in results:
            results[key(argument)] = function(argument)
        return results[key(argument)]

    return remembered
