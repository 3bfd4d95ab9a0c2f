"""Reading a perturbed Parameter of a layer without calling the layer."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import UnservedRead
from .call import find_pass, perturbations
from .declaration import sign_groups
from .inputs import Place, rows_first
from .layers import is_noisy_now, label_of, parameter_of
from .layouts import CONSTANT, SEVERAL, Layout
from .parameters import Perturbations
from .probe import ReadSite
from .reader import innermost_call, is_checkpointed, is_own, is_own_name, running_method
from .spans import is_recomputing


def is_read_noisy(layer: Any) -> bool:
    """Return True within a forward pass that perturbs the layer, or in a checkpoint's recomputation of one."""
    for root, _ in layer.flipout.roots:
        if root.thread.running.depth:
            return is_noisy_now(layer)
    if is_recomputing():
        return (innermost_call() is not None or is_checkpointed()) and is_noisy_now(layer)
    return not torch.compiler.is_compiling() and (_is_called_alone(layer) or _is_in_method(layer))


def _is_called_alone(layer: Any) -> bool:
    """Return True in a call of a layer outside of its model, under `hold`; refuse one that would draw at every read."""
    if layer._declared.reads_itself or innermost_call() is not layer or not is_noisy_now(layer):
        return False
    if layer.flipout.held is None:
        raise UnservedRead(
            f"{label_of(layer)}: called outside of its model, where each read of a Parameter would take a draw of its "
            "own. Call the model, or the layer inside of flipout.hold(model)."
        )
    return True


def _is_in_method(layer: Any) -> bool:
    """Return True in a method of the model or of the layer, under `hold`: `model.encode(x)` runs no hook of the model.

    Raises:
        UnservedRead: The model's `forward` runs without a call of the model, so there is no draw.
    """
    models = [root.structure.module() for root, _ in layer.flipout.roots if root.structure.module is not None]
    owner = running_method([layer, *models])
    if owner is None or not is_noisy_now(layer):
        return False
    if layer.flipout.held is None and owner == "forward":
        raise UnservedRead(
            f"{label_of(layer)}: its Parameter is read in a forward pass that no call of the model began: by "
            "model.forward(x), or by a class whose __call__ runs no hooks. Call model(x), put such a class inside "
            "another module and perturb that, or run the forward pass inside of flipout.hold(model)."
        )
    return layer.flipout.held is not None


def read(layer: Any, name: str, parameter: Any) -> Any:
    """Return what an attribute of a layer gives: within a noisy pass, a handle; to the layer's own code, the Parameter.

    Called by the layer's `__getattr__`, whose caller is the reader.
    """
    if torch.compiler.is_compiling():
        if is_read_noisy(layer):
            from torch._dynamo.comptime import comptime

            comptime(_refuse_while_tracing)
        return parameter
    frame = sys._getframe(2)
    # Most readers are code of this library, so a look tells them before the search through the running calls.
    if parameter is None or frame.f_globals.get("__name__", "").startswith("flipout.") or not is_read_noisy(layer):
        return parameter
    if is_own(layer, frame):
        return parameter
    from .handle import handle_of

    return handle_of(layer, name, parameter)


def _refuse_while_tracing(context: Any) -> None:
    translator = context._i_will_not_complain_if_bc_breaks_InstructionTranslator()
    if translator.parent is None:  # the trace begins in `read`, so nobody knows for whom
        raise UnservedRead(
            "A perturbed Parameter is read outside of its layer by code that torch.compile does not trace. Keep that "
            "code inside the compiled model, or out of it with torch.compiler.disable around the module that reads."
        )
    reader = translator.parent.parent  # beyond `read` and `__getattr__`
    if reader is None or is_own_name(reader.f_globals.get("__name__", "")) or _is_question(reader):
        return
    layer = context.get_local("layer")._i_will_not_complain_if_bc_breaks_VariableTracker().value
    name = context.get_local("name").as_python_constant()
    raise UnservedRead(
        f"{layer.flipout.label}.{name}: {reader.f_code.co_filename}:{reader.lineno} reads this perturbed Parameter "
        "outside of its layer, which torch.compile cannot follow yet. Compile the parts of the model that do not, keep "
        "this one out with torch.compiler.disable, or leave the Parameter out of `where`."
    )


def _is_question(reader: Any) -> bool:
    """Return True if traced code asks only for the type, shape, dtype or the like of what it has just read."""
    from torch._dynamo.variables.misc import NullVariable

    from .served import METADATA

    following = reader.instructions[reader.instruction_pointer]
    if following.opname in ("LOAD_ATTR", "LOAD_METHOD") and following.argval in METADATA:
        return True
    # From Python 3.13 on, an empty place lies above the function that is about to be called, before that below it.
    called = next((value for value in reversed(reader.stack) if not isinstance(value, NullVariable)), None)
    return getattr(called, "fn", None) is isinstance


def example_dim(layer: Any, layout: Layout | None = None) -> int:
    """Return the example's dimension in what a layer's Parameters are multiplied with."""
    plan = layer.flipout
    if layout is not None:
        return layout.dim
    if layer._declared.fixed_layout:
        return 0
    if plan.layout is not None:
        return plan.layout.dim
    return plan.inherited_batch_dim if plan.batch_dim is None else plan.batch_dim


_NOT_RUN = "this line has not been run with them"


def layout_of_read(sites: Sequence[tuple[Any, ReadSite]]) -> Layout | str | None:
    """Return the layout of an operand that Parameters meet, why it is unknown, or None if no batch has shown it.

    Args:
        sites: The layer of each Parameter, and where it is read. A line that the batch has not run is taken to be laid
            out as those that read the same Parameter and were.
    """
    found: set[Layout | str] = set()
    for layer, site in sites:
        reads = {other: layout for other, layout in layer.flipout.reads.items() if other.name == site.name}
        others = {layout for layout in reads.values() if layout != CONSTANT}
        found.update({reads[site]} if site in reads else others or {_NOT_RUN} if reads else ())
    if len(found) > 1:
        return f"{SEVERAL}: {', '.join(sorted(map(str, found)))}"
    return next(iter(found), None)


def examples_first(layer: Any, x: Tensor, layout: Layout | None = None) -> tuple[Tensor, Place]:
    """Return x with the rows of each example together in dimension 0, and where they were, for `rows_back`."""
    dim = example_dim(layer, layout)
    if layout is None and not layer._declared.fixed_layout:
        layout = layer.flipout.layout
    if layout is not None and layout.order == "position-major":
        return rows_first(layer, x, 0, layout)
    return (x.movedim(dim, 0) if dim else x), dim


def example_stack(layer: Any, name: str, x: Tensor, layout: Layout | None = None) -> Tensor:
    """Return (examples, *shape): the Parameter that each example of x sees. Dimension 0 of x is the rows."""
    parameter = parameter_of(layer, name)
    noise = perturbations(layer, x, parameter.dtype, layout)
    if noise.session.formed is not None:
        return noise.formed(name)
    return noise.scheme.weights(noise[name], sign_groups(layer, name))


def shared_weight(layer: Any, name: str, rows: int | None) -> Tensor:
    """Return the one noisy value of a Parameter that all examples share; `rows` of an input, where there is one."""
    parameter = parameter_of(layer, name)
    session, keys, _, scheme = find_pass(layer, parameter.device)
    if rows is not None:
        session.count(rows, label_of(layer), is_certain=False)
    noise = Perturbations(layer, session.to(parameter.device), keys, parameter.dtype, scheme)
    return noise.scheme.vector(noise.for_examples(name, 0, 1)).squeeze(0)
