"""The private parts of torch that flipout depends on, in one place.

They were seen with torch 2.11 and 2.13. With a torch that lacks one of the names, `import flipout` fails and says which
name is missing. The two functions that walk frames also read local variables of torch's own functions; a torch that
renames those raises a KeyError at that line.

Functions of torch are re-exported, not wrapped: every call of a layer uses one, and a wrapper would add a Python call.
Private attributes of module instances, such as `_qkv_same_embed_dim`, are read where the subclass needs them.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

F = TypeVar("F", bound=Callable[..., Any])
TESTED = {(2, 11): "on a GPU", (2, 13): "on a CPU"}  # versions of torch, and where the tests have run with them


def tested() -> str:
    """Return the versions of torch that the tests have run with."""
    return " and ".join(f"{major}.{minor} {where}" for (major, minor), where in TESTED.items())


def _private(owner: Any, name: str) -> Any:
    """Return a private name of torch.

    Raises:
        ImportError: This version of torch does not have it.
    """
    try:
        return getattr(owner, name)
    except AttributeError:
        raise ImportError(
            f"torch {torch.__version__} has no {owner.__name__}.{name}, which flipout needs. Tested are {tested()}."
        ) from None


graph_task_id: Callable[[], int] = _private(torch._C, "_current_graph_task_id")
"""Return the number of the backward pass that runs in this thread, or -1."""

next_node_number: Callable[[], int] = _private(torch.autograd, "_get_sequence_nr")
"""Return the number that the next autograd node of this thread gets."""

_current_node: Callable[[], Any] = _private(torch._C, "_current_autograd_node")
MODULE_CALL = _private(nn.Module, "_call_impl").__code__
_CHECKPOINT_BACKWARD = CheckpointFunction.backward.__code__


def backward_node_numbers() -> list[int]:
    """Return the numbers of the nodes whose backward passes run, innermost first. A reentrant checkpoint nests them."""
    node, frame = _current_node(), sys._getframe()
    nodes = [] if node is None else [node]
    while frame is not None:
        if frame.f_code is _CHECKPOINT_BACKWARD and frame.f_locals["ctx"] not in nodes:
            nodes.append(frame.f_locals["ctx"])
        frame = frame.f_back
    return [node._sequence_nr() for node in nodes]


def running_calls(module: nn.Module, frame: FrameType | None) -> int:
    """Return how many calls of the module are running in the frame's thread."""
    count = 0
    while frame is not None:
        count += frame.f_code is MODULE_CALL and frame.f_locals["self"] is module
        frame = frame.f_back
    return count


def constant_when_compiled(function: F) -> F:
    """Have torch.compile call a function once and keep its result.

    `torch.compiler.assume_constant_result` does this too, but imports the whole compiler.
    """
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def traced_values(context: Any, *names: str) -> list[Any]:
    """Return local variables of the code that torch.compile is tracing, inside `torch._dynamo.comptime`."""
    variables = [context.get_local(name) for name in names]
    return [variable._i_will_not_complain_if_bc_breaks_VariableTracker().value for variable in variables]
