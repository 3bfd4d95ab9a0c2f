"""What a LoRA layer of PEFT does differently once one of its adapters has a posterior."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from ..errors import InvalidArgument, Unsupported
from ..nn.base import Perturbed
from ..nn.call import is_noisy
from ..nn.companions import companion_names, unlearn
from ..nn.switches import Switch
from ._mixing import Mixin

MODULES = ("lora_A", "lora_B")  # dicts of layers, whose Parameter is `weight`
TABLES = ("lora_embedding_A", "lora_embedding_B")  # dicts of Parameters


def posterior_parameters(layer: Any, adapter: str | None = None) -> Iterator[tuple[str, str, Perturbed, str]]:
    """Yield the perturbed Parameters of a LoRA layer.

    Args:
        layer: The LoRA layer.
        adapter: One adapter of it, or None for all.

    Yields:
        The dict of PEFT that has the Parameter, the adapter, the perturbed module, and the Parameter's name there.
    """
    for kind in MODULES:
        for name, module in getattr(layer, kind).items():
            if isinstance(module, Perturbed) and adapter in (None, name):
                yield kind, name, module, "weight"
    for kind in TABLES:
        table = getattr(layer, kind)
        if isinstance(table, Perturbed):
            for name in table.flipout.distributions:
                if adapter in (None, name):
                    yield kind, name, table, name


class BayesianLayer(Mixin, Switch):
    """Mixed into a LoRA layer of PEFT, before it."""

    def idle(self) -> Iterator[tuple[Perturbed, str]]:
        layer: Any = self
        active = () if layer.disable_adapters else layer.active_adapters
        for _, adapter, module, name in posterior_parameters(self):
            if adapter not in active:
                yield module, name

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        layer: Any = self
        if layer.merged_adapters and not layer.disable_adapters:
            self._refuse_noise(
                layer.merged_adapters,
                "is merged into the base weights, at its mean, so the model has no noise to draw. Take it out first: "
                "model.unmerge_adapter().",
            )
        return super().forward(x, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Merge the means of the adapters."""
        layer: Any = self
        self._refuse_noise(
            layer.active_adapters if adapter_names is None else adapter_names,
            "would be merged while the model is noisy. Merging takes the mean: call model.eval() first, outside of "
            "`hold` and `sampling`. For samples as plain adapters: flipout.peft.export_samples(model, folder).",
        )
        super().merge(safe_merge, adapter_names)  # pyright: ignore[reportAttributeAccessIssue]

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        """Set the active adapters. Spreads are trained where their means are."""
        super().set_adapter(adapter_names, inference_mode)  # pyright: ignore[reportAttributeAccessIssue]
        for kind, _, module, name in posterior_parameters(self):
            if kind in TABLES:  # PEFT does not know what stands beside the Parameters of its tables
                for companion in map(module.__getattr__, companion_names(module, name)):
                    if isinstance(companion, nn.Parameter):
                        companion.requires_grad_(module._parameters[name].requires_grad)  # pyright: ignore[reportOptionalMemberAccess]

    def delete_adapter(self, adapter_name: str) -> None:
        """Delete an adapter, with its spreads."""
        tables = [
            (module, name) for kind, _, module, name in posterior_parameters(self, adapter_name) if kind in TABLES
        ]
        for module, name in tables:
            unlearn(module, name)
        super().delete_adapter(adapter_name)  # pyright: ignore[reportAttributeAccessIssue]

    def _mixed_batch_forward(self, x: Tensor, *args: Any, adapter_names: list[str], **kwargs: Any) -> Tensor:
        """PEFT's forward pass with an adapter for each row, in which a row keeps its number in the whole batch."""
        with ExitStack() as hooks:
            for kind, adapter, module, _ in posterior_parameters(self):
                rows = [row for row, name in enumerate(adapter_names) if name == adapter]
                if rows and len(rows) < len(adapter_names) and is_noisy(module):
                    if kind in TABLES:
                        raise Unsupported(
                            f"adapter_names={adapter_names} with a posterior on {kind} of adapter {adapter!r}: a table "
                            "is noisy for all rows of a batch or for none. Call the model once for each adapter."
                        )
                    hooks.enter_context(_in_whole_batch(module, rows, len(adapter_names)))
            plain: Any = super()
            return plain._mixed_batch_forward(x, *args, adapter_names=adapter_names, **kwargs)

    def _refuse_noise(self, adapters: Sequence[str], why: str) -> None:
        for _, adapter, module, _ in posterior_parameters(self):
            if adapter in adapters and is_noisy(module):
                raise InvalidArgument(f"{module.flipout.label}: adapter {adapter!r} {why}")


@contextmanager
def _in_whole_batch(module: nn.Module, rows: list[int], count: int) -> Iterator[None]:
    """Call a layer with all `count` rows of the batch, though its caller has only these rows.

    The noise of a row depends on its number. The layer is small, so the rows that nobody asks for cost little.
    """

    def spread_out(_: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        return (args[0].new_zeros(count, *args[0].shape[1:]).index_copy(0, _index(rows, args[0]), args[0]),)

    def take_back(_: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output.index_select(0, _index(rows, output))

    hooks = module.register_forward_pre_hook(spread_out), module.register_forward_hook(take_back)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _index(rows: list[int], like: Tensor) -> Tensor:
    return like.new_tensor(rows, dtype=int)  # pyright: ignore[reportArgumentType]
