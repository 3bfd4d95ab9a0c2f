"""Run the checks on a layer."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from ..errors import InvalidArgument
from ..nn.base import Perturbed
from . import _dependence, _gradients, _kl, _marginals, _positions, _quiet
from ._claim import Call, Claim
from ._ours import claim_of
from ._report import Check, Report
from ._trial import Trial

_CHECKS: dict[str, Callable[[Trial], Check]] = {
    _quiet.FRESH: _quiet.fresh,
    _positions.NAME: _positions.one_weight,
    _marginals.MEAN: _marginals.mean,
    _marginals.SPREAD: _marginals.spread,
    _marginals.SHAPE: _marginals.shape,
    _dependence.EXAMPLES: _dependence.independent_examples,
    _dependence.LAYERS: _dependence.independent_layers,
    _quiet.QUIET: _quiet.quiet,
    _kl.CLOSED: _kl.closed_form,
    _kl.ONCE: _kl.counted_once,
    _gradients.NAME: _gradients.unbiased,
}
CHECKS = tuple(_CHECKS)
"""Names of all checks, in the order of a report."""


def check(
    layer: Call | nn.Module,
    x: Tensor,
    claim: Claim | None = None,
    *,
    positions: Iterable[int] | None = None,
    only: Iterable[str] | None = None,
    draws: int = 1000,
    error_rate: float = 1e-4,
    seed: int = 0,
) -> Report:
    """Run the checks on a layer.

    The weights must be the only randomness: no dropout, and no batch statistics. Torch's generators are seeded for the
    checks, and put back afterwards.

    Args:
        layer: A model with perturbed layers, or any function that maps x to y and draws noise inside. Of a tuple, the
            first tensor counts.
        x: A batch of inputs, (N, …). Dimension 0 of x and of y is the example.
        claim: What the layer is claimed to do. A model of this library makes its own claim. Without one, a function is
            a black box that is taken to be linear in its weights.
        positions: Dimensions of x and y that run over tokens, pixels or time steps. They are known for `nn.Linear`,
            `nn.Embedding` and convolutions as `claim.plain`.
        only: Names of the checks to run, from `CHECKS`. All by default.
        draws: Number of calls for each sample.
        error_rate: Probability that a correct layer fails any check. The checks share it, and each check shares its
            part among its comparisons (Bonferroni). It is as exact as the central limit theorem for that many draws.
        seed: Seed of torch's generators.

    Returns:
        What each check saw. A check that cannot be made says what it lacks, and neither passes nor fails.

    Raises:
        InvalidArgument: An argument is out of its range, or the layer returns no tensor.
        NonFinite: The layer returned NaN or infinite values.

    Example:
        >>> layer = flipout.nn.Linear(8, 4, distribution=flipout.Gaussian(0.1))
        >>> print(flipout.testing.check(layer, torch.randn(4, 3, 8)))
    """
    draws = whole_number("draws", draws, 100, of="check", means="the number of calls for each sample")
    if not 0 < error_rate < 1:
        raise InvalidArgument(f"check(error_rate={error_rate!r}): expected a probability between 0 and 1.")
    names = CHECKS if only is None else tuple(only)
    if unknown := [name for name in names if name not in CHECKS]:
        raise InvalidArgument(f"check(only=[{unknown[0]!r}]): expected names from {', '.join(map(repr, CHECKS))}.")
    if not isinstance(x, Tensor) or x.dim() == 0 or not len(x):
        raise InvalidArgument(f"check: x is {_shown(x)}; expected a tensor whose dimension 0 is the example.")
    claim = _completed(layer, claim)
    dims = _positions_of(claim.plain, x) if positions is None else tuple(dim % x.dim() for dim in positions)
    if 0 in dims:
        raise InvalidArgument("check(positions=…): dimension 0 is the example, so no position.")
    trial = Trial(layer, x.detach(), claim, dims, draws, error_rate / len(CHECKS))
    devices = [x.device] if x.is_cuda else []
    modes = {m: m.training for m in layer.modules()} if isinstance(layer, nn.Module) else {}
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        try:
            if isinstance(layer, nn.Module):
                layer.train()
            return Report(_CHECKS[name](trial) for name in names)
        finally:
            for module, mode in modes.items():
                module.training = mode


def assert_conforms(
    layer: Call | nn.Module,
    x: Tensor,
    claim: Claim | None = None,
    *,
    positions: Iterable[int] | None = None,
    only: Iterable[str] | None = None,
    draws: int = 1000,
    error_rate: float = 1e-4,
    seed: int = 0,
) -> Report:
    """Run the checks on a layer, and raise an error that lists those it fails.

    Args:
        layer: A model with perturbed layers, or any function that maps x to y and draws noise inside.
        x: A batch of inputs, (N, …).
        claim: What the layer is claimed to do.
        positions: Dimensions of x and y that run over tokens, pixels or time steps.
        only: Names of the checks to run. One that is named here must be applicable.
        draws: Number of calls for each sample.
        error_rate: Probability that a correct layer fails any check.
        seed: Seed of torch's generators.

    Returns:
        The report, as `check` returns it.

    Raises:
        AssertionError: A check failed, or one that `only` names is not applicable.

    Example:
        >>> def test_my_layer():
        ...     flipout.testing.assert_conforms(MyLayer(8, 4), torch.randn(4, 8))
    """
    names = None if only is None else tuple(only)
    report = check(layer, x, claim, positions=positions, only=names, draws=draws, error_rate=error_rate, seed=seed)
    wrong = [c for c in report if c.outcome == "failed" or (names is not None and c.outcome == "not applicable")]
    if wrong:
        lines = (f"  {check.name}: {check.outcome}. {check.sentence}" for check in wrong)
        raise AssertionError(f"{len(wrong)} of {len(report)} checks do not pass:\n" + "\n".join(lines))
    return report


def _completed(layer: Call | nn.Module, claim: Claim | None) -> Claim:
    """Return the claim, with what the layer itself tells."""
    if not callable(layer):
        raise InvalidArgument(f"check: the layer is {_shown(layer)}; expected a module or a function of x.")
    if not isinstance(layer, nn.Module):
        return claim or Claim()
    if claim is None:
        is_ours = any(isinstance(module, Perturbed) for module in layer.modules())
        claim = claim_of(layer) if is_ours else Claim()
    if not claim.disabled:
        claim = replace(claim, disabled={"eval()": _quiet.eval_call(layer)})
    return claim if claim.parameters is not None else replace(claim, parameters=list(layer.parameters()))


def _positions_of(plain: nn.Module | None, x: Tensor) -> tuple[int, ...]:
    if isinstance(plain, nn.Linear):
        return tuple(range(1, x.dim() - 1))
    if isinstance(plain, nn.Embedding):
        return tuple(range(1, x.dim()))
    return tuple(range(2, x.dim())) if isinstance(plain, nn.modules.conv._ConvNd) else ()


def _shown(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
