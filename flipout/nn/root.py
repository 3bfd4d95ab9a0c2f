"""The root: the module whose call is one forward pass and takes one draw for everything inside."""

import sys
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

from ..draws.draw import Draw, fresh_seed
from ..draws.passes import Pass
from ..errors import AmbiguousReplay, Unsupported
from .layers import is_perturbed, label_of, needs_root_draw
from .layouts import Batch
from .roster import LayerRoster, keys_under, roster_of
from .spans import Span, open_spans, recomputing
from .structure import Structure, follow
from .tape import decided, replaying

_IS_DISTRIBUTED = dist.is_available()
_KEPT = 1024  # forward passes and contexts that a root remembers


def _origins() -> list[int]:
    """The numbers of the nodes whose backward passes run, the innermost first: a reentrant checkpoint nests them."""
    node, frame = torch._C._current_autograd_node(), sys._getframe()
    nodes = [] if node is None else [node]
    while frame is not None:
        if frame.f_code is CheckpointFunction.backward.__code__ and frame.f_locals["ctx"] not in nodes:
            nodes.append(frame.f_locals["ctx"])
        frame = frame.f_back
    return [node._sequence_nr() for node in nodes]


def _calls(module: nn.Module, frame: FrameType | None) -> int:
    """How many calls of the module are running in the frame's thread."""
    count = 0
    while frame is not None:
        count += frame.f_code is nn.Module._call_impl.__code__ and frame.f_locals["self"] is module
        frame = frame.f_back
    return count


def _ambiguous(what: str) -> AmbiguousReplay:
    return AmbiguousReplay(
        f"A checkpoint recomputes a perturbed layer in backward, but {what}, so the draw of its forward pass cannot be "
        "known. Run backward sooner, or use flipout.checkpoint(function, *args), which carries the draw."
    )


class _Running:
    """The forward pass of a root in one thread."""

    def __init__(self) -> None:
        self.depth = 0
        self.session: Pass | None = None
        self.span: Span | None = None
        self.in_backward = False  # the pass is a recomputation
        self.examples: int | None = None  # of the last forward pass
        self.rows: int | None = None  # of the root's own batch, if it is known which input that is
        self.inputs: Any = None  # the arguments of the root's call
        self.audit: Any = None  # who watches the pass, if it is the first


class _Thread(threading.local):
    """A forward pass for each thread, in an object of its own: dynamo loses what is written to a `threading.local`."""

    def __init__(self) -> None:
        self.running = _Running()


@dataclass(eq=False)
class Root:
    """Hooks of the root module, the draw of the forward pass that is running, and what was open before."""

    share_base: bool = False
    process_group: Any = None
    thread: _Thread = field(default_factory=_Thread)
    callers: dict[int, nn.Module] = field(default_factory=dict)  # thread → the module whose forward pass runs there
    roster: LayerRoster | None = None  # of the layers inside, made by the first forward pass
    spans: list[Span] = field(default_factory=list)
    unwatched: deque[Draw] = field(default_factory=lambda: deque(maxlen=_KEPT))  # taken where autograd did not watch
    forgotten: int = 0  # nodes below this number may belong to spans that were dropped
    structure: Structure = field(default_factory=Structure)
    audited: set[bool] = field(default_factory=set)  # the modes, training or eval, whose first pass was is_tracked
    unread: set[str] = field(default_factory=set)  # the Parameters that no such pass read
    batch: Batch | None = None  # which input of the module counts the examples, as a batch has shown

    @property
    def running(self) -> _Running:
        return self.thread.running

    def forget_roster(self) -> None:
        """Make the roster anew at the next forward pass, since the layers or their Parameters have changed."""
        if self.roster is not None:
            self.roster.forget()
        self.roster = None
        self.audited.clear()

    def attach(self, module: nn.Module) -> None:
        self.structure = Structure(weakref.ref(module))
        module.register_forward_pre_hook(self.enter, prepend=True, with_kwargs=True)
        module.register_forward_hook(self.exit, always_call=True)

    def detach(self, module: nn.Module) -> None:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for handle, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    del hooks[handle]
                    self.structure = Structure.gone()
                    module._forward_hooks_always_called.pop(handle, None)
                    module._forward_pre_hooks_with_kwargs.pop(handle, None)

    def take(self, device: torch.device) -> Draw:
        """A fresh draw: one number of torch's global generator."""
        seed, rank = fresh_seed(device), 0
        if _IS_DISTRIBUTED and dist.is_initialized():
            rank = dist.get_rank(self.process_group)
            if self.share_base:
                dist.broadcast(seed, group=self.process_group, group_src=0)
        return Draw(seed, rank=rank, share_base=self.share_base, fixed=True)

    def begin(self, device: torch.device, roster: LayerRoster | None = None) -> Pass:
        """Begin a forward pass under a fresh draw."""
        session = Pass(self.take(device), roster, self.process_group)
        session.uses = set()
        return session

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        running, compiling = self.running, torch.compiler.is_compiling()
        running.depth += 1
        if running.depth > 1:
            if compiling or _calls(module, sys._getframe()) > 1:
                return
            if running.audit is not None:
                running.audit.leave()
                running.audit = None
            self._finish()  # the call before this one was interrupted in a way that no hook sees
            running.depth = 1
        if not compiling:
            self.callers[threading.get_ident()] = module
        running.in_backward = recomputing()
        if self.batch is not None:
            running.rows = self.batch.rows(args, kwargs)
        elif not compiling:
            running.inputs = args, kwargs
        needed = decided(lambda: self._needed(module)) if replaying() else self._needed(module)
        if needed or open_spans():
            follow(self, module)
        if needed:
            if compiling:
                parameter = next(module.parameters(), None)
                session = running.session = self.begin(torch.device("cpu") if parameter is None else parameter.device)
            else:
                if self.roster is None:
                    self.roster = roster_of(module, keys_under(self, module))
                    self.roster.is_lasting = True
                session = running.session = self.begin(self.roster.device, self.roster)
            if running.in_backward and not replaying() and not self._took(session.draw):
                raise _ambiguous("torch's generator was not set back to where it was (preserve_rng_state=False)")
            if compiling:
                return
            if torch.is_grad_enabled():
                running.span = Span(session)
                self.remember(running.span)
            else:
                self.unwatched.append(session.draw)
        if compiling or module.training in self.audited:
            return
        if (needed or open_spans()) and not running.in_backward:
            self._begin_audit(module)

    def exit(self, *_: Any) -> None:  # torch.compile would look at an output that has a name
        running = self.running
        if running.depth:
            running.depth -= 1
        if not running.depth:
            self._finish()

    def _took(self, draw: Draw) -> bool:
        """Whether a forward pass that is remembered took this draw."""
        taken = [*self.unwatched, *(span.session.draw for span in self.spans if span.session is not None)]
        return torch.compiler.is_compiling() or any(torch.equal(earlier.seed, draw.seed) for earlier in taken)

    def _needed(self, module: nn.Module) -> bool:
        """Whether a layer inside will ask for the draw of this forward pass."""
        held = any(span.session is not None and any(root is self for root in span.roots) for span in open_spans())
        if module.training and not held and not self.running.in_backward:
            return True
        if not torch.compiler.is_compiling() and self.roster is not None:  # compiled code would guard on the roster
            sessions = (span.session for span in open_spans() if span.session is not None)
            if any(session.roster is self.roster for session in sessions):
                return False  # all of its layers are held
        return any(is_perturbed(layer) and needs_root_draw(layer) for layer in module.modules())

    def _finish(self) -> None:
        running = self.running
        if running.span is not None:
            running.span.close()
        running.examples = None
        if running.session is not None:
            running.examples = running.session.examples
            running.session.close()
        running.session = running.span = running.rows = running.inputs = None
        if not torch.compiler.is_compiling():
            self.callers.pop(threading.get_ident(), None)
            if running.audit is not None:
                self._finish_audit()

    def _begin_audit(self, module: nn.Module) -> None:
        from .audit import watch

        self.running.audit = watch(module)

    def _finish_audit(self) -> None:
        from .audit import warn_of_unread

        audit, self.running.audit = self.running.audit, None
        if audit.leave():
            unread = audit.unread()
            known, self.unread = self.unread, unread if not self.audited else self.unread & unread
            self.audited.add(audit.training)
            warn_of_unread(sorted(unread - known))

    def current(self, device: torch.device, layer: Any) -> Pass | None:
        """The pass that is running forward pass; in a recomputation, that of the one it repeats."""
        again, running = recomputing(), self.running
        if running.depth and (running.in_backward or not again):
            if running.session is None:
                running.session = self.begin(device)  # a layer that became noisy on the way
            return running.session
        if again:
            return next((span.session for span in self.earlier() if span.keys is None), None)
        if self.callers and not torch.compiler.is_compiling():
            self._refuse_other_threads(label_of(layer))
        return None

    def _refuse_other_threads(self, label: str) -> None:
        """Refuse a layer outside its root while another thread is inside: it may belong to the pass that runs there."""
        frames = sys._current_frames()
        for thread, module in list(self.callers.items()):
            if thread != threading.get_ident() and _calls(module, frames.get(thread)):
                raise Unsupported(
                    f"{label}: called in a thread of its own while {type(module).__name__}, its root, runs in another, "
                    "so it is not known whether it belongs to that forward pass and its draw. Call the whole model in "
                    "each thread, or give each thread a copy: copy.deepcopy(model)."
                )

    def remember(self, span: Span) -> None:
        """Keep the span, for checkpoints that recompute what was made in it."""
        self.spans.append(span)
        if len(self.spans) <= _KEPT:
            return
        oldest = next((old for old in self.spans if old.end is not None), None)
        if oldest is not None:
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
        return Root(self.share_base, self.process_group, structure=self.structure.copied(memo), batch=self.batch)

    def __reduce__(self) -> tuple:
        return _restored, (self.share_base, self.process_group, self.batch)


def _restored(share_base: bool, process_group: Any, batch: Batch | None) -> Root:
    return Root(share_base, process_group, batch=batch)
