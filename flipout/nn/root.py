"""The root: the module whose call is one forward pass and takes one draw for everything inside."""

import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

from ..draw import Draw, fresh_seed
from ..errors import AmbiguousReplay, Unsupported
from .tape import Tape, decided

_KEPT = 1024  # forward passes and contexts that a root remembers


def recomputing() -> bool:
    """Inside a backward pass: a forward that runs (or is compiled) there is a checkpoint's recomputation."""
    return torch._C._current_graph_task_id() != -1


# torch.compiler.assume_constant_result, without its import of the whole compiler.
recomputing._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def _now() -> int:
    """The number that the next autograd node will have. torch counts them, in each thread."""
    return 0 if torch.compiler.is_compiling() else torch.autograd._get_sequence_nr()


def _origins() -> list[int]:
    """The numbers of the nodes whose backward passes run, the innermost first: a reentrant checkpoint nests them."""
    node, frame = torch._C._current_autograd_node(), sys._getframe()
    nodes = [] if node is None else [node]
    while frame is not None:
        if frame.f_code is CheckpointFunction.backward.__code__ and frame.f_locals["ctx"] not in nodes:
            nodes.append(frame.f_locals["ctx"])
        frame = frame.f_back
    return [node._sequence_nr() for node in nodes]


def _calls(module: nn.Module) -> int:
    """How many calls of the module are running in this thread."""
    frame, count = sys._getframe(), 0
    while frame is not None:
        count += frame.f_code is nn.Module._call_impl.__code__ and frame.f_locals["self"] is module
        frame = frame.f_back
    return count


def _ambiguous(what: str) -> AmbiguousReplay:
    return AmbiguousReplay(
        f"A checkpoint recomputes a perturbed layer in backward, but {what}, so the draw of its forward pass cannot be "
        "known. Run backward sooner, or use flipout.checkpoint(function, *args), which carries the draw."
    )


@dataclass(eq=False)
class Span:
    """What was open while a run of autograd nodes was made: a root's forward pass, a `hold` or a `sampling`."""

    draw: Draw | None = None
    keys: dict[Any, dict[str, int]] | None = None  # of a context: its layers' plans → what their signs are keyed by
    start: int = field(default_factory=_now)
    end: int | None = None
    thread: int = field(default_factory=threading.get_ident)
    in_backward: bool = field(default_factory=recomputing)

    def close(self) -> None:
        self.end = _now()

    def covers(self, node: int) -> bool:
        return self.start <= node and (self.end is None or node < self.end)


@dataclass(eq=False)
class Root:
    """Hooks of the root module, the draw of the forward pass that is running, and what was open before."""

    share_base: bool = False
    process_group: Any = None
    depth: int = 0
    thread: int = 0  # of the last forward pass
    draw: Draw | None = None
    span: Span | None = None
    in_backward: bool = False  # the running forward pass is a recomputation
    examples: int | None = None  # of the last forward pass
    holds: int = 0  # `hold` contexts that are open on layers of this root
    spans: list[Span] = field(default_factory=list)
    unwatched: deque[Draw] = field(default_factory=lambda: deque(maxlen=_KEPT))  # taken where autograd did not watch
    forgotten: int = 0  # nodes below this number may belong to spans that were dropped

    def attach(self, module: nn.Module) -> None:
        module.register_forward_pre_hook(self.enter, prepend=True)
        module.register_forward_hook(self.exit, always_call=True)

    def detach(self, module: nn.Module) -> None:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for handle, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    del hooks[handle]
                    module._forward_hooks_always_called.pop(handle, None)

    def take(self, device: torch.device) -> Draw:
        """A fresh draw: one number of torch's global generator."""
        seed, rank = fresh_seed(device), 0
        if dist.is_available() and dist.is_initialized():
            rank = dist.get_rank(self.process_group)
            if self.share_base:
                dist.broadcast(seed, group=self.process_group, group_src=0)
        draw = Draw(seed, rank=rank, share_base=self.share_base, process_group=self.process_group, fixed=True)
        draw.uses = set()
        return draw

    def enter(self, module: nn.Module, args: Any) -> None:
        self.depth += 1
        if not torch.compiler.is_compiling():
            before, self.thread = self.thread, threading.get_ident()
            if self.depth > 1 and before != self.thread and not recomputing():
                self.depth -= 1
                raise Unsupported(
                    f"{type(module).__name__}: called from two threads at once, which would mix their draws. Give each "
                    "thread a copy of the model: copy.deepcopy(model)."
                )
        if self.depth > 1:
            if torch.compiler.is_compiling() or _calls(module) > 1:
                return
            self._finish()  # the call before this one was interrupted in a way that no hook sees
            self.depth = 1
        self.in_backward = recomputing()
        if decided(lambda: self._needed(module)):
            parameter = next(module.parameters(), None)
            self.draw = self.take(torch.device("cpu") if parameter is None else parameter.device)
            if self.in_backward and Tape.running is None and not self._took(self.draw):
                raise _ambiguous("torch's generator was not set back to where it was (preserve_rng_state=False)")
            if torch.compiler.is_compiling():
                return
            if torch.is_grad_enabled():
                self.span = Span(self.draw)
                self.remember(self.span)
            else:
                self.unwatched.append(self.draw)

    def exit(self, *_: Any) -> None:  # torch.compile would look at an output that has a name
        if self.depth:
            self.depth -= 1
        if not self.depth:
            self._finish()

    def _took(self, draw: Draw) -> bool:
        """Whether a forward pass that is remembered took this draw."""
        taken = [*self.unwatched, *(span.draw for span in self.spans if span.draw is not None)]
        return torch.compiler.is_compiling() or any(torch.equal(earlier.seed, draw.seed) for earlier in taken)

    def _needed(self, module: nn.Module) -> bool:
        """Whether a layer inside will ask for the draw of this forward pass."""
        if module.training and not self.holds and not self.in_backward:
            return True
        return any(getattr(layer, "free", False) for layer in module.modules())

    def _finish(self) -> None:
        if self.span is not None:
            self.span.close()
        self.examples = None if self.draw is None else self.draw.examples
        self.draw = self.span = None

    def current(self, device: torch.device) -> Draw | None:
        """The draw of the running forward pass; in a recomputation, that of the one it repeats."""
        again = recomputing()
        if self.depth and (self.in_backward or not again):
            if self.draw is None:
                self.draw = self.take(device)  # a layer that became noisy on the way
            return self.draw
        if again:
            return next((span.draw for span in self.earlier() if span.keys is None), None)
        return None

    def remember(self, span: Span) -> None:
        """Keep the span, for checkpoints that recompute what was made in it."""
        self.spans.append(span)
        oldest = next((old for old in self.spans if old.end is not None), None)
        if len(self.spans) > _KEPT and oldest is not None:
            assert oldest.end is not None
            self.spans.remove(oldest)
            if not oldest.in_backward:
                self.forgotten = max(self.forgotten, oldest.end)

    def earlier(self) -> list[Span]:
        """In a recomputation: what was open in its forward pass, the innermost first."""
        if torch.compiler.is_compiling():
            raise _ambiguous("the layer is compiled apart from its root")
        *rebuilt, node = _origins() or [sys.maxsize]
        if node < self.forgotten:
            raise _ambiguous(f"more than {_KEPT} forward passes have run since")
        made = [span for span in reversed(self.spans) if not span.in_backward and span.covers(node)]
        if len({span.thread for span in made}) > 1:
            raise _ambiguous("forward passes ran in several threads")
        # Nodes that a recomputation made are numbered by the thread of the backward pass: on a GPU, another one.
        again = [span for span in reversed(self.spans) if span.in_backward and span.thread == threading.get_ident()]
        return [span for number in rebuilt for span in again if span.covers(number)] + made

    def __deepcopy__(self, memo: dict) -> "Root":
        """Copies start between forward passes, in the same process group."""
        return Root(self.share_base, self.process_group)

    def __reduce__(self) -> tuple:
        return Root, (self.share_base, self.process_group)
