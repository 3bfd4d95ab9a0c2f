"""The mixin of every perturbed layer."""

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, NoReturn, Self

from torch import Tensor, nn

from ..distributions import Distribution, LearnedDistribution
from ..errors import InvalidArgument, UnknownParameter, Unsupported
from ..schemes import Scheme, SchemeName, scheme_of
from .checks import Where, check_distribution, check_fit, matcher
from .companions import companion_values, learn, prior_changes, reset_companions
from .declaration import Declaration, check_options, check_scheme, is_default, perturbable
from .layers import label_of
from .pending import (
    complete_checkpoint,
    count_anew,
    forget_written,
    mark_pending,
    settle_loaded,
    unwritten_companions,
)
from .plan import Plan, parameter_key
from .reads import read
from .root import Root


def no_effect(module: nn.Module, args: Any) -> None:
    """Do nothing, as a forward hook whose presence keeps torch off its fast path."""


class Perturbed(nn.Module):
    """Mixed into a torch layer, before it, to give the layer noise. The torch layer's Parameters are the means.

    A subclass names the Parameters that can be perturbed as class arguments (see `Declaration`), and has a `forward` of
    its own. The only public attribute that a layer gets is `flipout`, its plan.
    """

    flipout: Plan
    _declared: ClassVar[Declaration] = Declaration()
    _plain_type: ClassVar[type[nn.Module]] = nn.Module
    # nn.DataParallel sets it on its copies. A default, because a missing attribute of a module is slow to find.
    _is_replica: bool = False

    def __init_subclass__(cls, **declared: Any) -> None:
        super().__init_subclass__()
        cls._declared = replace(cls._declared, **declared)
        plain = (base for base in cls.__mro__ if issubclass(base, nn.Module) and not issubclass(base, Perturbed))
        cls._plain_type = next(plain)

    def __init__(
        self,
        *args: Any,
        distribution: Distribution | None = None,
        scheme: SchemeName | Scheme = "flipout",
        where: Where | None = None,
        **kwargs: Any,
    ) -> None:
        """Make the torch layer from its arguments, and give it noise. A layer made by hand is its own root.

        Args:
            *args: Arguments of the torch layer.
            distribution: The noise.
            scheme: Who in the batch shares the noise.
            where: Which Parameters to perturb: a glob, several globs, or a predicate. Without it, the weights.
            **kwargs: Keyword arguments of the torch layer.
        """
        label = type(self).__name__
        if distribution is None:
            raise InvalidArgument(
                f"flipout.nn.{label}(…) without a distribution. Give one: "
                f"flipout.nn.{label}(…, distribution=flipout.Gaussian(0.1))."
            )
        check_distribution(distribution)
        super().__init__(*args, **kwargs)
        # torch leaves its fast path where a module inside has a hook, and nobody knows yet which module this joins.
        self.register_forward_pre_hook(no_effect)
        check_options(type(self), self, label)
        candidates = perturbable(type(self), self)
        is_selected = (lambda name: is_default(type(self), name)) if where is None else matcher(where)
        names = [name for name in candidates if is_selected(name)]
        if not names:
            raise UnknownParameter(f"{label}: where={where!r} names none of its Parameters {candidates}.")
        distributions = {name: distribution.named(name) for name in names}
        set_plan(
            self, Plan(distributions, scheme_of(scheme), [(Root(), {name: parameter_key(name) for name in names})])
        )
        for name, named in distributions.items():
            check_fit(named, attrgetter(name)(self), f"{label}.{name}")
            if isinstance(named, LearnedDistribution):
                learn(self, name, companion_values(named, attrgetter(name)(self)))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute; a perturbed Parameter with its noise, to code that reads it within a noisy pass."""
        parameters = self.__dict__.get("_parameters")
        if parameters is None or name not in parameters:
            return super().__getattr__(name)
        plan = self.__dict__.get("flipout")
        if plan is None or name not in plan.distributions:
            return parameters[name]
        return read(self, name, parameters[name])

    def extra_repr(self) -> str:
        """Return torch's own `extra_repr`, followed by the noise and the scheme."""
        plan, plain = self.flipout, super().extra_repr()
        noise = [f"{name} ~ {noise}{prior_changes(self, name)}" for name, noise in plan.distributions.items()]
        return ", ".join([*([plain] if plain else []), *noise, f"scheme={plan.scheme.name}"])

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        """Load a plain checkpoint too: learned spreads and priors that it lacks keep their values."""
        for name in self.flipout.learned:
            if prefix + name in state_dict:
                assign = local_metadata.get("assign_to_params_buffers", False)
                complete_checkpoint(self, name, state_dict, prefix, assign=assign)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def __getstate__(self) -> dict[str, Any]:
        forget_written(self)
        return super().__getstate__()  # pyright: ignore[reportReturnType]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        count_anew(self)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        super().register_parameter(name, param)
        if "flipout" in self.__dict__:
            self.flipout.is_checked = False

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        unwritten = unwritten_companions(self)
        super()._apply(fn, recurse)
        mark_pending(self, unwritten)
        return self

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse `torch.jit.script`, which asks every module for one that can be compiled."""
        raise Unsupported(
            f"{label_of(self)}: torch.jit.script cannot compile perturbed layers. Use torch.compile(model), or make "
            "the model plain first: torch.jit.script(flipout.freeze(model))."
        )

    def train(self, mode: bool = True) -> Self:
        settle_loaded(self)  # the last thing that `from_pretrained` of transformers does is to call `eval`
        return super().train(mode)

    def reset_parameters(self) -> None:
        """Initialise the Parameters as the torch layer does, then their learned spreads and priors."""
        for child in self.children():  # the output projection of attention, which torch itself leaves alone
            reset: Any = getattr(child, "reset_parameters", None)
            if reset is not None:
                reset()
        plain: Any = super()
        reset = getattr(plain, "reset_parameters", None) or getattr(plain, "_reset_parameters", None)
        if reset is not None:
            reset()
        if "flipout" in self.__dict__:  # torch's own __init__ calls this method before there is any noise
            reset_companions(self)


def set_plan(layer: Perturbed, plan: Plan) -> None:
    """Give a layer its plan: which Parameters, which distributions, which scheme."""
    check_scheme(type(layer), plan.scheme, plan.distributions, plan.label or type(layer).__name__)
    layer.flipout = plan
    padding = getattr(layer, "padding_idx", None)
    if padding is not None and "weight" in plan.distributions:
        plan.quiet_rows["weight"] = padding
