"""An experiment: a claim of the paper, settings at three prices, and the work."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from flipout.errors import InvalidArgument

from .environment import device_of
from .progress import Progress
from .results import Check, Number, Result
from .runs import Run, opened

Preset = Literal["smoke", "quick", "paper"]


@dataclass(frozen=True)
class Config:
    """What every experiment has; each adds its own settings. `choices` names those that a run may be extended by: it
    is taken up again with others, and has them all."""

    choices: ClassVar[tuple[str, ...]] = ()

    seed: int = 0
    device: str = "auto"  # auto (CUDA where there is one), cpu, cuda, cuda:1


def check_least(settings: Any, prefix: str = "", **least: int) -> None:
    """Refuse settings, named as their options are, that are below what they have to be."""
    for name, value in least.items():
        if getattr(settings, name) < value:
            raise InvalidArgument(f"{prefix}{name}={getattr(settings, name)}: expected at least {value}.")


def settled(config: Any, held: Mapping[str, Any]) -> Any:
    """The settings in a run's file, as those of an experiment; `config` has what the file does not say."""
    made = {}
    for field in fields(config):
        value = held.get(field.name, getattr(config, field.name))
        if is_dataclass(getattr(config, field.name)) and isinstance(value, dict):
            value = settled(getattr(config, field.name), value)
        made[field.name] = tuple(value) if isinstance(value, list) else value
    return type(config)(**made)


@dataclass(frozen=True)
class Outcome:
    setting: str
    measured: Mapping[str, Number]
    paper: Mapping[str, Number]
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Experiment:
    """One table or figure: its presets, what they cost, and the work."""

    name: str
    title: str
    claim: str
    presets: Mapping[Preset, Config]
    costs: Mapping[Preset, str]
    work: Callable[[Any, Run], Outcome]
    draw: Callable[[Any, Run], None]  # the figures, from what the work has left in the folder

    def config(self, preset: str) -> Config:
        """Its settings, to be changed by `dataclasses.replace`."""
        if preset not in self.presets:
            raise InvalidArgument(f"{self.name} has no preset {preset!r}: use one of {', '.join(self.presets)}.")
        return self.presets[preset]  # pyright: ignore[reportArgumentType]

    def run(
        self,
        config: Config,
        folder: Path,
        *,
        preset: str,
        resume: bool = False,
        tensorboard: bool = False,
        progress: Progress | None = None,
    ) -> Result:
        """Work, or go on with it, in a folder; what was found is written there too."""
        settings = {
            "experiment": self.name,
            "preset": preset,
            **asdict(config),
            "device": str(device_of(config.device)),
        }
        with (
            progress or Progress() as shown,
            opened(
                folder, settings, resume=resume, tensorboard=tensorboard, progress=shown, choices=config.choices
            ) as run,
        ):
            found = self.work(config, run)
            self.draw(config, run)
            result = Result(
                experiment=self.name,
                preset=preset,
                title=self.title if preset == "paper" else f"{self.title}: tried in small, as the setting says",
                claim=self.claim,
                setting=found.setting,
                measured=found.measured,
                paper=found.paper,
                checks=_linked(found.checks, [figure.name for figure in run.figures]),
                figures=tuple(run.figures),
            )
            run.write(result)
        return result


def _linked(checks: tuple[Check, ...], drawn: Collection[str]) -> tuple[Check, ...]:
    """Drop links to figures that this run did not draw: a table without a row of the paper has none."""
    return tuple(check if check.figure in drawn else replace(check, figure=None) for check in checks)
