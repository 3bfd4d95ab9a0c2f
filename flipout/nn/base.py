"""What every perturbed layer has: a plan of its noise, and the way to the draw of a call."""

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..backend import autocasts
from ..distributions import Distribution, LearnedDistribution
from ..distributions.prior import PREFIX, Prior
from ..draw import Draw, fresh_seed
from ..errors import InvalidArgument, InvalidInput, UnknownParameter, Unsupported
from ..schemes import Scheme, scheme_of
from .beside import beside, complete_checkpoint, count_anew, forget_written, mark_pending, reset_beside
from .perturbations import Perturbations, parameter_of
from .plan import Keys, Plan, parameter_key
from .root import Root
from .roster import roster_of
from .spans import recomputing
from .structure import look_alone
from .tape import decided, replaying

Where = str | Iterable[str] | Callable[[str], bool]


def patterns(where: str | Iterable[str]) -> list[str]:
    listed = [where] if isinstance(where, str) or not isinstance(where, Iterable) else list(where)
    if not all(isinstance(pattern, str) for pattern in listed):
        raise InvalidArgument(
            f"where={where!r}: expected a glob, a list of globs, or a predicate over Parameter names."
        )
    return listed


def matcher(where: Where) -> Callable[[str], bool]:
    """A glob, several globs, or a predicate, as a predicate over Parameter names."""
    if isinstance(where, (type, nn.Module)):
        raise InvalidArgument(
            f"where={where!r}: expected a glob such as '*.weight', a list of globs, or a predicate over names."
        )
    if callable(where):
        return where
    globs = patterns(where)
    return lambda name: any(fnmatchcase(name, glob) for glob in globs)


def own_parameter(layer: nn.Module, name: str) -> nn.Parameter | None:
    """The Parameter of that (dotted) name, None where there is none or it is computed (parametrised)."""
    owner, _, local = name.rpartition(".")
    return layer.get_submodule(owner)._parameters.get(local)


def no_effect(module: nn.Module, args: Any) -> None:
    """A forward hook that changes nothing."""


def check_module(model: Any) -> None:
    """Refuse what is given in place of a model."""
    if not isinstance(model, nn.Module):
        given = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise InvalidArgument(
            f"{given} given; expected an nn.Module: the model itself, not its class or its parameters(). Of a list of "
            "layers, make one: nn.Sequential(*layers)."
        )


def check_distribution(given: Any) -> None:
    """Refuse what is no noise: a name, a number, or the class of one."""
    if not isinstance(given, Distribution):
        made = f"flipout.{given.__name__}(…)" if isinstance(given, type) else "flipout.Gaussian(0.1)"
        raise InvalidArgument(f"distribution={given!r}: expected a Distribution, such as {made}.")


def check_fit(distribution: Distribution, parameter: Tensor, label: str) -> None:
    if parameter.is_complex():
        raise Unsupported(f"{label}: a Parameter of dtype {parameter.dtype}; only real Parameters can be perturbed.")
    std, prior = getattr(distribution, "std", None), getattr(distribution, "prior", None)
    given = {"std": tuple(std.shape)} if isinstance(std, Tensor) else {}
    if isinstance(prior, Prior):
        given["prior"] = prior.shape
    whole = tuple(parameter.shape)
    for what, shape in given.items():
        sizes = zip(shape[::-1], whole[::-1], strict=False)
        if len(shape) > len(whole) or any(size not in (1, full) for size, full in sizes):
            raise InvalidArgument(
                f"{label}: {what} of shape {shape} given; expected one that broadcasts to the Parameter's {whole}."
            )


class Perturbed(nn.Module):
    """Mixed into a torch layer, before it. The torch layer's Parameters are the means."""

    torch_type: ClassVar[type[nn.Module]]
    # Names of Parameters, as regular expressions.
    default: ClassVar[tuple[str, ...]] = ()  # perturbed unless `where` says otherwise
    optional: ClassVar[tuple[str, ...]] = ()  # perturbed only where `where` names them
    vectors: ClassVar[tuple[str, ...]] = ("bias",)  # those with one sign per element
    refused: ClassVar[dict[str, str]] = {}  # options of the torch layer under which it cannot be perturbed → why
    fixed_layout: ClassVar[str] = ""  # why `batch_dim` cannot be chosen
    refused_schemes: ClassVar[dict[str, str]] = {}  # scheme → never / not yet / use this instead
    noise_at_once: ClassVar[bool] = True  # a call reads all of its noise
    quick_options: ClassVar[tuple[str, ...]] = ()  # options that decide how a call is computed

    plan: Plan
    _is_replica: bool = False  # nn.DataParallel says so of its copies; a module that lacks an attribute is slow to say

    def __init__(
        self,
        *args: Any,
        distribution: Distribution | None = None,
        scheme: str | Scheme = "flipout",
        where: Where | None = None,
        **kwargs: Any,
    ) -> None:
        """The torch layer's own arguments, and its noise. A layer made by hand is its own root."""
        label = type(self).__name__
        if distribution is None:
            raise InvalidArgument(
                f"flipout.nn.{label}(…) without its noise. Name it: "
                f"flipout.nn.{label}(…, distribution=flipout.Gaussian(0.1))."
            )
        check_distribution(distribution)
        super().__init__(*args, **kwargs)
        # torch leaves its fast path where a module inside has a hook, and nobody knows yet which module this joins.
        self.register_forward_pre_hook(no_effect)
        self.check_options(self, label)
        chosen = self.chosen_by_default if where is None else matcher(where)
        names = [name for name in self.perturbable(self) if chosen(name)]
        if not names:
            raise UnknownParameter(f"{label}: where={where!r} names none of its Parameters {self.perturbable(self)}.")
        named = {name: distribution.named(name) for name in names}
        self.set_plan(Plan(named, scheme_of(scheme), [(Root(), {name: parameter_key(name) for name in names})]))
        for name, own in named.items():
            check_fit(own, attrgetter(name)(self), f"{label}.{name}")
            if isinstance(own, LearnedDistribution):
                self.learn(name, beside(own, attrgetter(name)(self)))

    @classmethod
    def perturbable(cls, layer: nn.Module) -> list[str]:
        """The Parameters of a torch layer that noise may be put on."""
        own = [name for name, _ in layer.named_parameters(remove_duplicate=False)]
        return [name for pattern in cls.default + cls.optional for name in own if re.fullmatch(pattern, name)]

    @classmethod
    def chosen_by_default(cls, name: str) -> bool:
        """Whether a Parameter is perturbed where `where` is not given."""
        return any(re.fullmatch(pattern, name) for pattern in cls.default)

    @classmethod
    def check_options(cls, layer: nn.Module, label: str) -> None:
        """Refuse a torch layer with an option under which it cannot be perturbed."""
        for option, why in cls.refused.items():
            value = getattr(layer, option)
            if value is not None and value is not False:
                raise Unsupported(f"{label}: {option}={value} given; {why}")

    @classmethod
    def check_scheme(cls, scheme: Scheme, distributions: dict[str, Distribution], label: str) -> None:
        """Refuse a scheme that is wrong for this layer, or for one of its distributions."""
        if scheme.name in cls.refused_schemes:
            raise Unsupported(f"{label}: scheme '{scheme.name}' given; {cls.refused_schemes[scheme.name]}")
        for name, distribution in distributions.items():
            scheme.check(distribution, f"{label}.{name}")

    def set_plan(self, plan: Plan) -> None:
        """Take on a noise: which Parameters, which distributions, which scheme."""
        self.check_scheme(plan.scheme, plan.distributions, plan.label or type(self).__name__)
        self.plan = plan
        padding = getattr(self, "padding_idx", None)
        if padding is not None and "weight" in plan.distributions:
            plan.quiet_rows["weight"] = padding

    def learn(self, name: str, beside: dict[str, Tensor]) -> None:
        """Register what the distribution of Parameter `name` has beside it, a prior's numbers included."""
        kept = tuple(suffix for suffix in beside if suffix.startswith(PREFIX))
        self.plan.learned[name] = tuple(suffix for suffix in beside if suffix not in kept)
        self.plan.kept[name] = kept
        owner, _, local = name.rpartition(".")
        for suffix, value in beside.items():
            if isinstance(value, nn.Parameter):
                self.get_submodule(owner).register_parameter(f"{local}_{suffix}", value)
            else:
                self.get_submodule(owner).register_buffer(f"{local}_{suffix}", value)
        mark_pending(self)

    def names_beside(self, name: str) -> list[str]:
        """What stands beside a Parameter: `weight_rho`, and the numbers of a prior."""
        return [f"{name}_{suffix}" for suffix in self.plan.learned.get(name, ()) + self.plan.kept.get(name, ())]

    def learned_beside(self, name: str) -> dict[str, Tensor]:
        """Suffix → value: what the spread of a Parameter is made of."""
        return {suffix: parameter_of(self, f"{name}_{suffix}") for suffix in self.plan.learned.get(name, ())}

    def prior_numbers(self, name: str) -> dict[str, Tensor]:
        """The numbers of a Parameter's prior, as they are now: copies, since data parallelism writes into buffers."""
        prior = getattr(self.plan.distributions[name], "prior", None)
        if not isinstance(prior, Prior):
            return {}
        kept = {prior.number_of(s): attrgetter(f"{name}_{s}")(self) for s in self.plan.kept.get(name, ())}
        return {n: value.exp() if n in prior.learned else value.clone() for n, value in kept.items()}

    def prior_now(self, name: str) -> str:
        """What of its prior was learned, or loaded, and is other than its distribution says: " (prior now std=9)"."""
        prior = getattr(self.plan.distributions[name], "prior", None)
        if not isinstance(prior, Prior) or any(own in self.plan.pending for own in self.names_beside(name)):
            return ""
        first, moved = prior.numbers(), []
        for number, value in self.prior_numbers(name).items():
            same = first[number].float()
            same = same.log().to(value).exp() if number in prior.learned else same.to(value)
            if type(value) is Tensor and not value.is_meta and not torch.allclose(value, same):
                moved.append(f"{number}={value.item():.6g}" if value.numel() == 1 else f"another {number}")
        return f" (prior now {', '.join(moved)})" if moved else ""

    def extra_repr(self) -> str:
        """torch's own, and the noise."""
        plan = self.plan
        noise = [f"{name} ~ {distribution}{self.prior_now(name)}" for name, distribution in plan.distributions.items()]
        own = super().extra_repr()
        return ", ".join([*([own] if own else []), *noise, f"scheme={plan.scheme.name}"])

    @property
    def label(self) -> str:
        """What errors call it: its name in the model, and its kind."""
        kind = type(self).__name__
        return f"{self.plan.label} ({kind})" if self.plan.label else kind

    @property
    def noisy(self) -> bool:
        """Whether the next call perturbs: training, `sampling` or `hold`."""
        if self._is_replica:
            raise Unsupported("nn.DataParallel shares one draw between threads; use DistributedDataParallel instead.")
        return decided(self.is_noisy) if replaying() else self.is_noisy()

    @property
    def free(self) -> bool:
        """Whether the next call asks its root for the draw."""
        return self.is_noisy() and self.plan.held is None

    def is_noisy(self) -> bool:
        """`noisy`, as it is right now."""
        plan = self.plan
        return bool(plan.distributions) and (self.training or plan.sampled)

    def groups_of(self, name: str) -> int | None:
        """How signs run over a Parameter: groups of a convolution's kernel, 1 for a matrix, None for a vector."""
        vector = any(re.fullmatch(pattern, name) for pattern in self.vectors)
        return None if vector else getattr(self, "groups", 1)

    def perturbations(self, x: Tensor, dtype: torch.dtype) -> Perturbations:
        """The Parameters under the draw that this call sees; dimension 0 of x is the rows."""
        if replaying():
            draw, keys, read, scheme = decided(lambda: self._find_draw(x.device))
            if read is not None and recomputing():
                fresh_seed(read)  # as the forward pass did here: whatever draws next has to find the same generator
        else:
            draw, keys, _, scheme = self._find_draw(x.device)
        rows = x.shape[0]
        if rows != draw.examples or draw.rows != 1:
            draw.count(rows, self.label)
        if draw.seed.device != x.device:
            draw = draw.to(x.device)
        made = None
        if draw.roster is not None and not torch.compiler.is_compiling():
            made = draw.at_once(dtype, scheme.group, scheme.serves_bases)
        return Perturbations(self, draw, keys, dtype, scheme, made)

    def quickly(self, x: Tensor) -> Tensor | None:
        """The output of the usual call for this input, where one like it was made before; else None."""
        quick = self.plan.quick
        return None if quick is None else quick(self, x)

    def _find_draw(self, device: torch.device) -> tuple[Draw, Keys, torch.device | None, Scheme]:
        """The draw, the keys of the Parameters, where a seed was read for this layer alone, and the scheme."""
        plan = self.plan
        if not (plan.opened or recomputing() or torch.compiler.is_compiling()):
            for root, keys in plan.roots:  # the usual case, in few calls
                draw = root.thread.running.draw
                if draw is not None:
                    return draw, keys, None, plan.converted_scheme
        held, scheme = plan.held, plan.scheme
        if held is not None:
            assert held.draw is not None
            assert held.keys is not None
            return held.draw, held.keys[plan], None, scheme
        for root, keys in plan.roots:
            draw = root.current(device, self)
            if draw is not None:
                return draw, keys, None, scheme
        look_alone(self)
        root, keys = plan.roots[-1]
        draw = root.take(device)
        if not torch.compiler.is_compiling():
            if plan.alone is None:
                plan.alone = roster_of(self, [(self, keys)])
                plan.alone.is_lasting = True
            draw.roster = plan.alone
        return draw, keys, device, scheme

    def no_tensor(self, given: Any, what: str = "input") -> InvalidInput:
        """A refusal, where an array or a list is given."""
        return InvalidInput(f"{self.label}: {what} of {type(given)}; expected a tensor: torch.as_tensor({what}).")

    def rows_first(self, x: Tensor, inner: int) -> tuple[Tensor, int | None]:
        """x with the example's dimension first, and where that was; None for a single example without one.

        `inner` dimensions at the end are features.
        """
        asked = self.plan.batch_dim
        dim, outer = self.plan.follows if asked is None else asked, x.dim() - inner
        alone = outer == 1 and asked is None and self.plan.sequences
        if outer > dim and not alone:
            return x.movedim(dim, 0) if dim else x, dim
        if alone or outer == 0 or (outer == dim and asked is None):
            return x.unsqueeze(0), None
        raise InvalidInput(
            f"{self.label}: input of shape {tuple(x.shape)} has no dimension {dim} for the example before its {inner} "
            f"feature dimension(s). Give another batch_dim to perturb(…, batch_dim=…), for this layer alone with "
            f"batch_dim={{'{self.plan.label or '*'}': 0}}."
        )

    def rows_back(self, y: Tensor, batch_dim: int | None) -> Tensor:
        """`rows_first` undone; y itself where it can be, since `fully_shard` warns of modules that return views."""
        if batch_dim is None:
            return y.squeeze(0)
        return y.movedim(0, batch_dim) if batch_dim else y

    def compute_dtype(self, x: Tensor, weight: Tensor, what: str = "input") -> torch.dtype:
        """autocast's dtype, or that of input and weight, which have to agree."""
        if not isinstance(x, Tensor):
            raise self.no_tensor(x, what)
        kind = x.device.type
        if autocasts(kind) and x.is_floating_point() and torch.float64 not in (x.dtype, weight.dtype):
            return torch.get_autocast_dtype(kind)
        if x.dtype != weight.dtype:
            raise InvalidInput(
                f"{self.label}: {what} of dtype {x.dtype}; expected {weight.dtype}, the dtype of its Parameters. "
                f"Convert it, .to({weight.dtype})"
                + (f", or the layer, layer.to({x.dtype}), or use torch.autocast." if x.is_floating_point() else ".")
            )
        return x.dtype

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        """A plain checkpoint loads: learned spreads and priors that it does not have keep their values."""
        for name in self.plan.learned:
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
        if "plan" in self.__dict__:
            self.plan.seen = False

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        mark_pending(self)
        return self

    def reset_parameters(self) -> None:
        """Initialise the Parameters as torch's own layer does, then what stands beside them."""
        for child in self.children():  # the output projection of attention, which torch's own leaves as it is
            reset: Any = getattr(child, "reset_parameters", None)
            if reset is not None:
                reset()
        plain: Any = super()
        reset = getattr(plain, "reset_parameters", None) or getattr(plain, "_reset_parameters", None)
        if reset is not None:
            reset()
        if "plan" in self.__dict__:  # torch's own __init__ calls it before there is any noise
            reset_beside(self)
