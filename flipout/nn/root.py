"""The root: the module whose call is one forward pass and takes one draw for everything inside."""

import sys
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .._torch_internals import running_calls
from ..draws.draw import Draw, fresh_seed
from ..draws.passes import Pass
from ..errors import Unsupported
from .batches import Batch
from .checkpoints import decide_once, in_checkpoint
from .generation import (
    GENERATE,
    caches_in,
    check_cache,
    check_prompts,
    mark_cache,
    refuse_fresh_draws,
    running_generation,
)
from .history import PassHistory, ambiguous
from .layers import is_perturbed, label_of, needs_root_draw
from .roster import LayerRoster, layers_under, roster_of
from .spans import Span, is_recomputing, open_spans
from .structure import Structure, follow

_IS_DISTRIBUTED = dist.is_available()


class _RunningPass:
    """The forward pass of a root in one thread."""

    def __init__(self) -> None:
        self.depth = 0
        self.session: Pass | None = None
        self.span: Span | None = None
        self.in_backward = False  # the pass is a recomputation
        self.examples: int | None = None  # in the last forward pass
        self.rows: int | None = None  # in the root's own batch, if it is known which input that is
        self.inputs: Any = None  # the arguments of the root's call
        self.is_single = False  # `inputs` are one example, without a dimension for examples
        self.audit: Any = None  # the `Audit` of the pass, if it is the first
        self.caches: list[Any] = []  # caches of keys and values that the pass was called with


class _ThreadPass(threading.local):
    """The forward pass of each thread, in an object: dynamo loses what is written to the `threading.local` itself."""

    def __init__(self) -> None:
        self.running = _RunningPass()


@dataclass(eq=False)
class Root:
    """The hooks of the root module, the forward pass that is running, and what ran before."""

    share_base: bool = False
    process_group: Any = None
    thread: _ThreadPass = field(default_factory=_ThreadPass)
    callers: dict[int, nn.Module] = field(default_factory=dict)  # thread → the module whose forward pass runs there
    roster: LayerRoster | None = None  # the Parameters that are drawn together, listed by the first forward pass
    history: PassHistory = field(default_factory=PassHistory)
    structure: Structure = field(default_factory=Structure)
    audited: set[bool] = field(default_factory=set)  # the modes (training, eval) whose first pass was audited
    unread: set[str] = field(default_factory=set)  # the Parameters that no audited pass read
    batch: Batch | None = None  # which input gives the number of examples, learned from `example_inputs`
    warned_of_sizes: bool = False  # a layer's input had as many time steps as examples

    @property
    def running(self) -> _RunningPass:
        return self.thread.running

    def forget_roster(self) -> None:
        """Drop the roster: the layers or their Parameters have changed. The next forward pass makes a new one."""
        if self.roster is not None:
            self.roster.forget()
        self.roster = None
        self.audited.clear()

    def attach(self, module: nn.Module) -> None:
        """Register the hooks that take a draw for each call of the module."""
        self.structure = Structure(weakref.ref(module))
        module.register_forward_pre_hook(self.enter, prepend=True, with_kwargs=True)
        module.register_forward_hook(self.exit, always_call=True)

    def detach(self, module: nn.Module) -> None:
        """Remove the hooks, if the module has them."""
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for handle, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    del hooks[handle]
                    self.structure = Structure.gone()
                    module._forward_hooks_always_called.pop(handle, None)
                    module._forward_pre_hooks_with_kwargs.pop(handle, None)

    def take_draw(self, device: torch.device) -> Draw:
        """Return a fresh draw. It reads one number from torch's global generator."""
        seed, rank = fresh_seed(device), 0
        if _IS_DISTRIBUTED and dist.is_initialized():
            rank = dist.get_rank(self.process_group)
            if self.share_base:
                dist.broadcast(seed, group=self.process_group, group_src=0)
        return Draw(seed, rank=rank, share_base=self.share_base, fixed=True)

    def begin_pass(self, device: torch.device, roster: LayerRoster | None = None) -> Pass:
        """Begin a forward pass under a fresh draw."""
        session = Pass(self.take_draw(device), roster, self.process_group)
        session.uses = set()
        return session

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Begin a forward pass, as a hook that runs before the module. A call inside a running pass joins it."""
        running, is_compiling = self.thread.running, torch.compiler.is_compiling()
        running.depth += 1
        if running.depth > 1:
            if is_compiling or running_calls(module, sys._getframe()) > 1:
                return
            if running.audit is not None:
                running.audit.leave()
                running.audit = None
            self._end_pass()  # the call before this one was interrupted in a way that no hook sees
            running.depth = 1
        if not is_compiling:
            self.callers[threading.get_ident()] = module
        running.in_backward = is_recomputing()
        if self.batch is not None:
            running.rows = self.batch.rows(args, kwargs)
        if not is_compiling:
            running.inputs = args, kwargs
        needs_draw = decide_once(lambda: self._needs_draw(module)) if in_checkpoint() else self._needs_draw(module)
        if needs_draw or open_spans():
            follow(self, module)
        if needs_draw:
            if is_compiling:
                parameter = next(module.parameters(), None)
                device = torch.device("cpu") if parameter is None else parameter.device
                session = running.session = self.begin_pass(device)
            else:
                if self.roster is None:
                    self.roster = roster_of(module, layers_under(self, module))
                    self.roster.is_lasting = True
                session = running.session = self.begin_pass(self.roster.device, self.roster)
            if running.in_backward and not in_checkpoint() and not self.history.has_draw(session.draw):
                raise ambiguous("torch's generator was not set back to where it was (preserve_rng_state=False)")
            if is_compiling:
                self.history.was_compiled = True
                return
            if torch.is_grad_enabled():
                running.span = Span(session)
                self.history.remember(running.span)
            else:
                self.history.unwatched.append(session.draw)
        if is_compiling:
            return
        may_generate = kwargs or len(args) > 1 or (GENERATE in sys.modules and running_generation() is not None)
        if may_generate and not running.in_backward:
            self._check_generation(type(module).__name__, caches_in(args) + caches_in(kwargs))
        if module.training in self.audited:
            return
        if (needs_draw or open_spans()) and not running.in_backward:
            self._begin_audit(module)

    def exit(self, *_: Any) -> None:  # torch.compile would look at an output that has a name
        """End the forward pass, as a hook that runs after the module."""
        running = self.thread.running
        if running.depth:
            running.depth -= 1
        if not running.depth:
            self._end_pass(_)

    def _needs_draw(self, module: nn.Module) -> bool:
        """Return True if a layer inside will ask for the draw of this forward pass."""
        if module.training and self._held() is None and not self.running.in_backward:
            return True
        # Compiled code would guard on the roster. A recomputation is not under the contexts that are open now.
        if not torch.compiler.is_compiling() and self.roster is not None and not self.running.in_backward:
            sessions = (span.session for span in open_spans() if span.session is not None)
            if any(session.roster is self.roster for session in sessions):
                return False  # all of its layers are held
        return any(is_perturbed(layer) and needs_root_draw(layer) for layer in module.modules())

    def _check_generation(self, label: str, caches: list[Any]) -> None:
        """Refuse a pass whose earlier tokens, or whose other sequences of the same prompt, have other weights."""
        running = self.running
        running.caches = caches
        if running.session is not None:
            refuse_fresh_draws(label)
        held = self._held()
        if held is not None:
            check_prompts(held)
        for cache in caches:
            check_cache(cache, self._draw(), label)

    def _held(self) -> Pass | None:
        """Return the pass of the innermost `hold` around, if it holds layers of this root."""
        for span in reversed(open_spans()):
            if span.session is not None and any(root is self for root in span.roots):
                return span.session
        return None

    def _draw(self) -> Draw | None:
        """Return the draw of the running pass, or None if it has the mean weights."""
        session = self._held() or self.running.session
        return None if session is None else session.draw

    def _end_pass(self, call: tuple = (None,)) -> None:
        """End the running pass. The last thing of a call is what the module returned."""
        running, is_compiling = self.running, torch.compiler.is_compiling()
        if not is_compiling and (running.caches or type(call[-1]) is not Tensor):
            for cache in (*running.caches, *caches_in(call[-1])):
                mark_cache(cache, self._draw())
            running.caches = []
        if running.span is not None:
            running.span.close()
        running.examples = None
        if running.session is not None:
            running.examples = running.session.examples
            running.session.close()
        running.session = running.span = running.rows = running.inputs = None
        running.is_single = False
        if not is_compiling:
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
            # `generate` calls an encoder once, before the passes of the whole model.
            unread = audit.unread() if running_generation() is None else set()
            known, self.unread = self.unread, unread if not self.audited else self.unread & unread
            self.audited.add(audit.training)
            warn_of_unread(sorted(unread - known))

    def current_pass(self, device: torch.device, layer: Any) -> Pass | None:
        """Return the running forward pass. In a recomputation, return the pass that is recomputed."""
        recomputes, running = is_recomputing(), self.running
        if running.depth and (running.in_backward or not recomputes):
            if running.session is None:
                running.session = self.begin_pass(device)  # the layer became noisy during this pass
            return running.session
        if recomputes:
            return next((span.session for span in self.history.recomputed_spans() if span.keys is None), None)
        if self.callers and not torch.compiler.is_compiling():
            self._refuse_other_threads(label_of(layer))
        return None

    def _refuse_other_threads(self, label: str) -> None:
        """Refuse a layer outside its root while another thread runs the root: the call may belong to that pass."""
        frames = sys._current_frames()
        for thread, module in list(self.callers.items()):
            if thread != threading.get_ident() and running_calls(module, frames.get(thread)):
                raise Unsupported(
                    f"{label}: called in its own thread while its root, {type(module).__name__}, runs in another one. "
                    "It is not known whether the call belongs to that forward pass and its draw. Call the whole model "
                    "in each thread, or give each thread a copy: copy.deepcopy(model)."
                )

    def __deepcopy__(self, memo: dict) -> "Root":
        """Return a copy outside every forward pass, in the same process group."""
        return Root(self.share_base, self.process_group, structure=self.structure.copied(memo), batch=self.batch)

    def __reduce__(self) -> tuple:
        return _restored, (self.share_base, self.process_group, self.batch)


def _restored(share_base: bool, process_group: Any, batch: Batch | None) -> Root:
    return Root(share_base, process_group, batch=batch)
