"""A call of a perturbed layer: whether it is noisy, and under which draw."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..draws.draw import fresh_seed
from ..draws.passes import Pass
from ..errors import Unsupported
from ..schemes import Scheme
from .checkpoints import decide_once, in_checkpoint
from .history import ambiguous
from .inputs import batch_rows, check_batch
from .layers import is_noisy_now, label_of
from .parameters import Perturbations
from .plan import Keys
from .roster import roster_of
from .spans import is_recomputing
from .structure import check_without_root

if TYPE_CHECKING:
    from .base import Perturbed


def is_noisy(layer: "Perturbed") -> bool:
    """Return True if the next call of the layer is perturbed: in training mode, or inside `sampling` or `hold`.

    Raises:
        Unsupported: The layer is a replica that `nn.DataParallel` made.
    """
    if layer._is_replica:
        raise Unsupported("nn.DataParallel shares one draw between threads; use DistributedDataParallel instead.")
    return decide_once(lambda: is_noisy_now(layer)) if in_checkpoint() else is_noisy_now(layer)


def perturbations(layer: "Perturbed", x: Tensor, dtype: torch.dtype) -> Perturbations:
    """Return the layer's Parameters under the draw that this call sees.

    Args:
        layer: The layer that is called.
        x: Its input. Dimension 0 is the rows.
        dtype: The dtype to compute in, usually `compute_dtype(layer, x, layer.weight)`.

    Returns:
        The Parameters of this call: `product` multiplies with one of them, `vector` returns a bias.

    Raises:
        ExampleCount: Another layer saw another number of examples in the same pass.
    """
    if in_checkpoint():
        session, keys, read, scheme = decide_once(lambda: find_pass(layer, x.device))
        if read is not None and is_recomputing():
            fresh_seed(read)  # as the forward pass did here: whatever draws next has to find the same generator
    else:
        session, keys, _, scheme = find_pass(layer, x.device)
    rows, layout = x.shape[0], layer.flipout.layout
    if layout is not None and layout.order != "plain":
        batch = batch_rows(layer, rows)
        session.count(batch, "the model's input")
        session = session.folded(rows // batch)
    elif rows != session.examples or session.draw.rows != 1 or not session.is_certain:
        is_certain = not scheme.is_shared
        if is_certain and not session.is_certain:
            check_batch(layer, rows)
        session.count(rows, label_of(layer), is_certain=is_certain)
    if session.draw.seed.device != x.device:
        session = session.to(x.device)
    at_once = None
    if session.roster is not None and not torch.compiler.is_compiling():
        at_once = session.at_once(dtype, scheme.group, scheme.is_grouped)
    return Perturbations(layer, session, keys, dtype, scheme, at_once)


def find_pass(layer: "Perturbed", device: torch.device) -> tuple[Pass, Keys, torch.device | None, Scheme]:
    """Return the pass, the Parameters' keys, the device where a seed was read for this layer alone, and the scheme."""
    plan = layer.flipout
    if not (plan.open_contexts or is_recomputing() or torch.compiler.is_compiling()):
        for root, keys in plan.roots:  # the usual case, in few calls
            session = root.thread.running.session
            if session is not None:
                return session, keys, None, plan.converted_scheme
    held, scheme = plan.held, plan.scheme
    if held is not None:
        assert held.session is not None
        assert held.keys is not None
        return held.session, held.keys[plan], None, scheme
    for root, keys in plan.roots:
        session = root.current_pass(device, layer)
        if session is not None:
            return session, keys, None, scheme
    if plan.is_rooted and is_recomputing() and any(root.history.was_compiled for root, _ in plan.roots):
        raise ambiguous("its model was compiled around the checkpoint, and a compiled forward pass is not remembered")
    check_without_root(layer)
    root, keys = plan.roots[-1]
    session = root.begin_pass(device)
    if not torch.compiler.is_compiling():
        if plan.own_roster is None:
            plan.own_roster = roster_of(layer, [(layer, keys)])
            plan.own_roster.is_lasting = True
        session.roster = plan.own_roster
    return session, keys, device, scheme
