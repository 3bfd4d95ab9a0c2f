"""An experiment: a claim of the paper, settings at three costs, and the work to test it."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_type_hints

from msgspec.structs import replace

from flipout.errors import DataError, FlipoutError, InvalidArgument

from ..door import SHORT, Mismatch
from .environment import device_of
from .folder import open_run
from .progress import RunProgress
from .reader import convert
from .results import DEMO, Check, Number, Result
from .runs import Run

Preset = Literal["smoke", "quick", "paper"]


@dataclass(frozen=True)
class Config:
    """The settings that every experiment has. Each adds its own.

    `choices` names settings by which a run may be extended: resumed with other values, it has them all.
    """

    choices: ClassVar[tuple[str, ...]] = ()

    seed: int = 0
    device: str = "auto"  # auto (CUDA if there is a device), cpu, cuda, cuda:1


def check_least(settings: Any, prefix: str = "", **least: int) -> None:
    """Refuse settings below their least value. `prefix` makes their names those of the command line."""
    for name, value in least.items():
        if getattr(settings, name) < value:
            raise InvalidArgument(f"{prefix}{name}={getattr(settings, name)}: expected at least {value}.")


def config_from(content: Mapping[str, Any], default: Any, prefix: str = "") -> Any:
    """Return the config that a run's config.json describes; `default` has what the file does not say.

    Raises:
        DataError: A setting is of another type than that of the default.
    """
    values, hints = {}, get_type_hints(type(default))
    for field in fields(default):
        known, name = getattr(default, field.name), prefix + field.name
        value = content.get(field.name, known)
        if is_dataclass(known) and isinstance(value, dict):
            value = config_from(value, known, f"{name}.")
        elif value is not known:
            try:
                value = convert(value, hints[field.name])
            except (Mismatch, TypeError) as error:  # TypeError: a dataclass was expected, in a union that msgspec lacks
                raise DataError(
                    f"config.json: {name}: {SHORT.repr(value)} found; expected a setting like {known!r}. Give the "
                    "folder of a run, as `flipout run NAME` leaves it."
                ) from error
        values[field.name] = value
    try:
        return type(default)(**values)
    except FlipoutError as error:
        raise DataError(f"config.json: {error}") from error
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise DataError(f"config.json: no settings of this experiment ({type(error).__name__}: {error}).") from error


@contextmanager
def refusing_unchecked(run: Run) -> Iterator[None]:
    """If work fails that read files without checksums, raise an error that names them. Otherwise the error is a bug."""
    try:
        yield
    except (FlipoutError, OSError):
        raise
    except Exception as error:
        unchecked = sorted(run.files.unchecked)
        if not unchecked:
            raise
        raise DataError(
            f"{run.folder} holds a file with another content than this version writes ({type(error).__name__}: "
            f"{error}). These have no checksum that could tell which: {', '.join(unchecked[:8])}. Copy them again, or "
            "run the experiment again in another folder."
        ) from error


@dataclass(frozen=True)
class Outcome:
    """What the work of an experiment returns: the parts of its `Result`."""

    setting: str
    measured: Mapping[str, Number]
    paper: Mapping[str, Number]
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper: presets, what they cost, and the work."""

    name: str
    title: str
    claim: str
    presets: Mapping[Preset, Config]
    costs: Mapping[Preset, str]
    work: Callable[[Any, Run], Outcome]
    draw: Callable[[Any, Run], None]  # draws the figures from the files that the work left in the folder
    # Returns the title of a run from its settings. Without it the title names nothing that settings change.
    describe: Callable[[Any], str] | None = None

    def config(self, preset: str) -> Config:
        """Return the settings of a preset. Change them with `dataclasses.replace`."""
        preset = "quick" if preset == DEMO else preset
        if preset not in self.presets:
            raise InvalidArgument(f"{self.name} has no preset {preset!r}: use one of {', '.join(self.presets)}.")
        return self.presets[preset]  # pyright: ignore[reportArgumentType]

    def title_of(self, config: Config) -> str:
        """Return the title of a run with these settings."""
        return self.title if self.describe is None else self.describe(config)

    def run(
        self,
        config: Config,
        folder: Path,
        *,
        preset: str,
        resume: bool = False,
        tensorboard: bool = False,
        progress: RunProgress | None = None,
    ) -> Result:
        """Run the experiment, or resume it, and write its result and figures.

        Args:
            config: The settings, such as `experiment.config("quick")`.
            folder: The folder of the run.
            preset: The name of the preset that the settings come from.
            resume: Continue the run in the folder, or start it if there is none.
            tensorboard: Log the metrics for TensorBoard too.
            progress: Shows how far the run is; on stderr unless given.

        Returns:
            The result, as in the result.json of the folder.

        Raises:
            RunError: The folder holds something else, or a run with other settings.
        """
        settings = {
            "experiment": self.name,
            "preset": preset,
            **asdict(config),
            "device": str(device_of(config.device)),
        }
        with (
            progress or RunProgress() as shown,
            open_run(
                folder, settings, resume=resume, tensorboard=tensorboard, progress=shown, choices=config.choices
            ) as run,
            refusing_unchecked(run),
        ):
            outcome = self.work(config, run)
            self.draw(config, run)
            result = Result(
                experiment=self.name,
                preset=preset,
                title=self.title_of(config),
                claim=self.claim,
                setting=outcome.setting,
                measured=outcome.measured,
                paper=outcome.paper,
                checks=_linked(outcome.checks, [figure.name for figure in run.figures]),
                figures=tuple(run.figures),
            )
            run.write(result)
        return result


def _linked(checks: tuple[Check, ...], drawn: Collection[str]) -> tuple[Check, ...]:
    """Drop links to figures that this run did not draw: a table without a row of the paper has none."""
    return tuple(check if check.figure in drawn else replace(check, figure=None) for check in checks)
