"""A call of a perturbed layer: whether it is noisy, and under which draw."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..draws.draw import fresh_seed
from ..draws.passes import Pass
from ..errors import Unsupported
from ..schemes import Scheme
from .checkpoints import decide_once, in_checkpoint
from .generation import check_prompts, refuse_fresh_draws, sequences_of_prompt
from .history import ambiguous
from .layers import is_noisy_now, label_of
from .layouts import Layout
from .parameters import Perturbations
from .plan import Keys
from .roster import roster_of
from .row_count import batch_rows, check_batch, refuse_unknown, warn_of_equal_sizes
from .spans import is_recomputing
from .structure import check_without_root

if TYPE_CHECKING:
    from .base import Perturbed


def is_noisy(layer: "Perturbed") -> bool:
    """Return True if the next call of the layer is perturbed: in training mode, or inside `sampling` or `hold`.

    Args:
        layer: The layer.

    Returns:
        Whether the layer has to ask for noise. If not, torch's own `forward` serves it.

    Raises:
        Unsupported: The layer is a replica that `nn.DataParallel` made.

    Example:
        >>> if not flipout.nn.is_noisy(self):
        ...     return Gain.forward(self, x)
    """
    if layer._is_replica:
        raise Unsupported("nn.DataParallel shares one draw between threads; use DistributedDataParallel instead.")
    return decide_once(lambda: is_noisy_now(layer)) if in_checkpoint() else is_noisy_now(layer)


def perturbations(layer: "Perturbed", x: Tensor, dtype: torch.dtype, layout: Layout | None = None) -> Perturbations:
    """Return the layer's Parameters under the draw that this call sees.

    Args:
        layer: The layer that is called.
        x: Its input. Dimension 0 is the rows.
        dtype: The dtype to compute in, usually `compute_dtype(layer, x, layer.weight)`.
        layout: How the rows are folded, if x is not the layer's input but the operand of a read.

    Returns:
        The Parameters of this call: `product` multiplies with one of them, `vector` returns a bias.

    Raises:
        ExampleCount: Another layer saw another number of examples in the same pass.

    Example:
        >>> noise = flipout.nn.perturbations(self, x, x.dtype)
        >>> y = noise.product(flipout.ops.Linear(4, 4), x, "weight")
    """
    if in_checkpoint():
        session, keys, read, scheme = decide_once(lambda: find_pass(layer, x.device))
        if read is not None and is_recomputing():
            fresh_seed(read)  # as the forward pass did: what draws next needs the generator in the same state
    else:
        session, keys, _, scheme = find_pass(layer, x.device)
    rows = x.shape[0]
    if layout is None:
        layout = layer.flipout.layout
        if layer.flipout.unknown and not scheme.is_shared:
            refuse_unknown(layer)
    if layout is not None and layout.order != "plain":
        batch = batch_rows(layer, rows)
        sequences = 1 if batch == session.examples else sequences_of_prompt(batch, session.draw.rows)
        session.count(batch // sequences, "the model's input")
        session = session.folded(rows // batch * sequences)
    elif rows != session.examples or session.draw.rows != 1 or not session.is_certain:
        is_certain = not scheme.is_shared
        sequences = sequences_of_prompt(rows, session.draw.rows) if is_certain else 1
        if is_certain and not session.is_certain:
            check_batch(layer, rows, sequences)
        session.count(rows // sequences, label_of(layer), is_certain=is_certain)
        session = session.folded(sequences)
    plan = layer.flipout
    if layout is None and plan.batch_dim is not None and not plan.is_told and not scheme.is_shared:
        warn_of_equal_sizes(layer, x)
    if session.draw.seed.device != x.device:
        session = session.to(x.device)
    at_once = None
    is_formed = session.formed_for is not None  # most passes find their weights formed, and need no noise
    if session.roster is not None and not is_formed and not torch.compiler.is_compiling():
        at_once = session.at_once(dtype, scheme.group, scheme.is_grouped)
    return Perturbations(layer, session, keys, dtype, scheme, at_once)


def find_pass(layer: "Perturbed", device: torch.device) -> tuple[Pass, Keys, torch.device | None, Scheme]:
    """Return the pass, the keys of the Parameters, and the scheme of a call.

    The third of four values is the device on which a seed was read for this layer alone, None if it has a root.
    """
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
        if not any(root.thread.running.depth for root, _ in plan.roots):
            check_prompts(held.session)
        return held.session, held.keys[plan], None, scheme
    for root, keys in plan.roots:
        session = root.current_pass(device, layer)
        if session is not None:
            return session, keys, None, scheme
    if plan.is_rooted and is_recomputing() and any(root.history.was_compiled for root, _ in plan.roots):
        raise ambiguous("its model was compiled around the checkpoint, and a compiled forward pass is not remembered")
    check_without_root(layer)
    refuse_fresh_draws(label_of(layer))
    root, keys = plan.roots[-1]
    session = root.begin_pass(device)
    if not torch.compiler.is_compiling():
        if plan.own_roster is None:
            plan.own_roster = roster_of(layer, [(layer, keys)])
            plan.own_roster.is_lasting = True
        session.roster = plan.own_roster
    return session, keys, device, scheme
