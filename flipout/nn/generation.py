"""Generation token by token: all tokens of a sequence, and all sequences of one prompt, share one draw.

transformers' `generate` calls the model once for each token. Keys and values of earlier tokens come from a cache, so a
fresh draw at each call would mix weights. Beams and returned sequences are several rows of one prompt, which is one
example. Nothing of transformers is imported or changed: a running `generate` is found among the callers.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..draws.draw import Draw
from ..draws.passes import Pass
from ..errors import ExampleCount, StaleCache, Unsupported

GENERATE = "transformers.generation.utils"  # the module; until it is imported, nothing generates
_BATCHING = "transformers.generation.continuous_batching"
_LENGTH = len(_BATCHING)
_MARK = "_flipout_draw"  # the attribute of a cache that holds the draw it was written under
_NEVER = object()  # the cache has no mark: it is new, or was not written by a call of the model
_HOLD = "Hold one draw for the whole sequence: with flipout.hold(model): model.generate(…)."


class RunningGenerate(NamedTuple):
    """A running call of `generate`."""

    prompts: int
    sequences: int  # per prompt: beams or returned sequences, next to each other in the batch


def running_generation() -> RunningGenerate | None:
    """Return the innermost call of transformers' `generate` around this line, or None.

    Raises:
        Unsupported: Its local variables are not those that are known.
    """
    if GENERATE not in sys.modules:
        return None
    frame = sys._getframe(1)
    while frame is not None:
        # There may be a hundred frames, so nothing is called for each of them.
        names = frame.f_globals
        module = names["__name__"] if "__name__" in names else None  # noqa: SIM401
        if module is not None and module[:_LENGTH] == _BATCHING:
            raise Unsupported(
                "generate_batch(…), transformers' continuous batching, packs several prompts into one row, so they "
                "have no weights of their own. Use generate(…) inside of flipout.hold(model)."
            )
        if frame.f_code.co_name == "generate" and module == GENERATE:
            try:
                prompts, config = frame.f_locals["batch_size"], frame.f_locals["generation_config"]
                return RunningGenerate(prompts, max(config.num_beams or 1, config.num_return_sequences or 1))
            except (KeyError, AttributeError) as error:
                version = getattr(sys.modules["transformers"], "__version__", "")
                raise Unsupported(
                    f"transformers {version}: its `generate` does not say how many prompts and beams it has, so it is "
                    "not known which rows belong to one prompt. Versions 5.22 and 5.23 are known to work. Write the "
                    'decoding loop by hand, or use scheme="shared", which needs no number of examples.'
                ) from error
        frame = frame.f_back
    return None


def refuse_fresh_draws(label: str) -> None:
    """Refuse a fresh draw within `generate`, which would give every token its own weights."""
    if not torch.compiler.is_compiling() and running_generation() is not None:
        raise StaleCache(
            f"{label}: `generate` under a fresh draw for every token, in training mode or inside of flipout.sampling. "
            f"The tokens before would be read from a cache that other weights have written. {_HOLD}"
        )


def sequences_of_prompt(rows: int, rows_per_example: int) -> int:
    """Return how many of the `rows` of a batch belong to one prompt of a running `generate`; 1 outside of it.

    Args:
        rows: The rows that a layer sees.
        rows_per_example: The `rows` of `hold`, which are taken as they are unless they are 1.

    Raises:
        ExampleCount: These `rows` would divide the sequences of one prompt between examples.
    """
    if torch.compiler.is_compiling():
        if rows_per_example != 1:
            return 1
        from torch._dynamo.comptime import comptime

        comptime(_refuse_while_tracing)
        return 1
    generation = running_generation()
    if generation is None or generation.sequences == 1 or rows != generation.prompts * generation.sequences:
        return 1  # an encoder sees the prompts before they are repeated
    if rows_per_example == 1:
        return generation.sequences
    if rows_per_example % generation.sequences:
        raise ExampleCount(
            f"generate(…) has {generation.sequences} sequences for each prompt, but hold(model, rows="
            f"{rows_per_example}) divides them between examples. Leave rows out, and the sequences of a prompt share "
            f"its weights, or give a multiple of {generation.sequences}."
        )
    return 1


def _refuse_while_tracing(_: Any) -> None:
    generation = running_generation()
    if generation is not None and generation.sequences > 1:
        raise Unsupported(
            f"generate(…) has {generation.sequences} sequences for each prompt, which a compiled model cannot see. "
            f"Say so, flipout.hold(model, rows={generation.sequences}), or generate with the model uncompiled."
        )


def check_prompts(held: Pass) -> None:
    """Refuse to generate for another number of prompts than a held draw has examples.

    Layers whose examples share one weight do not count them, so their number is not certain.
    """
    is_counted = held.examples is not None and held.is_certain
    generation = running_generation() if is_counted and not torch.compiler.is_compiling() else None
    if generation is None or generation.sequences == 1:
        return
    rows = generation.sequences if held.draw.rows == 1 else held.draw.rows  # `hold(rows=…)` has said how many
    if held.examples != generation.prompts * generation.sequences // rows:
        raise ExampleCount(
            f"generate(…) has {generation.prompts} prompts, but the held draw has {held.examples} examples from an "
            "earlier call. Generate inside a `hold` of its own; the same seed gives the same weights."
        )


def caches_in(values: Any) -> list[Any]:
    """Return the caches of transformers among arguments, or in what a model returned."""
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        return []
    return [x for x in values if not isinstance(x, (Tensor, str, int, type)) and hasattr(x, "get_seq_length")]


def check_cache(cache: Any, draw: Draw | None, label: str) -> None:
    """Refuse a cache that was written under another draw than this pass has; None stands for the mean weights."""
    written = getattr(cache, _MARK, _NEVER)
    if written is _NEVER or _is_same(written, draw) or _is_empty(cache):
        return
    before, now = (("the mean weights" if d is None else "another draw of the weights") for d in (written, draw))
    now = now if draw is None or written is None else "a new one"
    raise StaleCache(
        f"{label}: called with a {type(cache).__name__} that was written under {before}, but this call has {now}. "
        f"Keys and values of the tokens before do not fit. {_HOLD} Or begin with an empty cache."
    )


def mark_cache(cache: Any, draw: Draw | None) -> None:
    """Remember under which draw a pass has written a cache."""
    setattr(cache, _MARK, draw)


def _is_same(left: Any, right: Any) -> bool:
    """Return True if two draws have the same numbers."""
    if left is right:
        return True
    if left is None or right is None:
        return False
    pairs = ((getattr(left, name), getattr(right, name)) for name in left.__dataclass_fields__ if name != "fixed")
    return all(
        torch.equal(a, b.to(a.device)) if isinstance(a, Tensor) and isinstance(b, Tensor) else a is b or a == b
        for a, b in pairs
    )


def _is_empty(cache: Any) -> bool:
    try:
        return not cache.get_seq_length()
    except ValueError:  # it has recurrent states alone
        return not cache.has_previous_state()
