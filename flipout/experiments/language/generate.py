"""Text from the language models of a run: at the mean weights, and under draws of their noise."""

import copy
import shlex
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

import flipout
from flipout.errors import DataError, InvalidArgument

from .. import data
from ..registry import EXPERIMENTS
from ..running.experiment import check_least, config_from
from ..running.reader import Settings, convert, load
from ..running.runs import CONFIG
from .models import RegularizedModel
from .work import LanguageConfig, Table


@dataclass(frozen=True)
class Writing:
    """How a text is written: token by token, each drawn from what the model predicts."""

    length: int = 200  # tokens
    temperature: float = 0.8  # of the prediction; 0: always the likeliest token
    prompt: str = ""  # characters, or words with blanks between
    seed: int = 0

    def __post_init__(self) -> None:
        check_least(self, length=1, seed=0, temperature=0)


def texts(folder: Path, row: str, seed: int, draws: int, how: Writing) -> dict[str, str]:
    """By their weights: "mean", then "draw 0", "draw 1", …; rows without weight noise have only the mean."""
    if draws < 0:
        raise InvalidArgument(f"generate(draws={draws}): expected a whole number ≥ 0.")
    table, config, started = _opened(folder)
    weights = folder / "pieces" / f"{row}.{seed}.weights.safetensors"
    there = sorted(path.name.removesuffix(".weights.safetensors") for path in weights.parent.glob("*.weights.*"))
    if row not in [one.name for one in table.rows]:
        rows = list(dict.fromkeys(name.partition(".")[0] for name in there))
        fix = shlex.join(
            ["flipout", "generate", str(folder), "--row", rows[0]]
            if rows
            else [*started, "--out", str(folder), "--resume"]
        )
        raise InvalidArgument(f"--row {row}: this run has {', '.join(rows) or 'no trained row yet'}. Use: {fix}")
    if not weights.exists():
        left_behind = weights.with_name(f"{row}.{seed}.json").exists()  # it is trained, so --resume would do nothing
        out, resume = (f"{folder}-again", []) if left_behind else (str(folder), ["--resume"])
        fix = shlex.join([*started, "--out", out, "--rows", row, "--seeds", str(seed), *resume])
        raise DataError(
            f"{folder} has no weights of row {row} with seed {seed}: expected {weights.name} in its pieces. "
            f"There are {', '.join(there) or 'none'}; choose by --row and --model, or train it, with the settings that "
            f"the run was started with: {fix}"
        )
    text = data.text(config.text)
    model = table.row(row).model(len(text.vocabulary), config.shape, 0).eval()
    with torch.no_grad():
        held = load_file(weights)
        if held["decoder.bias"].shape != model.decoder.bias.shape:
            raise DataError(
                f"{weights.name} is of a text with {len(held['decoder.bias'])} kinds of tokens, and {text.source} has "
                f"{len(text.vocabulary)}: use the data, or the version of Python, that it was trained with."
            )
        for name, parameter in model.named_parameters():
            parameter.copy_(held[name])
    made = {"mean": write(model, text.vocabulary, how)}
    for number in range(draws if table.row(row).noisy else 0):
        one = copy.deepcopy(model)
        with flipout.hold(one, seed=number):
            flipout.freeze(one, at="draw")
        made[f"draw {number}"] = write(one, text.vocabulary, how)
    return made


@torch.no_grad()
def write(model: RegularizedModel, vocabulary: tuple[str, ...], how: Writing) -> str:
    """The text, its prompt included."""
    by_word = max(map(len, vocabulary)) > 1 and "<eos>" in vocabulary
    tokens = _prompt(vocabulary, how.prompt, by_word)
    generator = torch.Generator().manual_seed(how.seed)
    made = model(torch.tensor([tokens]), model.start(1))
    for _ in range(how.length):
        tokens.append(int(_next(made.logits[0, -1], how.temperature, generator)))
        made = model(torch.tensor([tokens[-1:]]), made.state)
    written = [vocabulary[token] for token in tokens]
    if not by_word:
        return "".join(written)
    return " ".join(written).replace(" <eos> ", "\n").replace("<eos>", "\n").strip(" ")


def _next(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    if not temperature:
        return logits.argmax()
    return torch.multinomial((logits.double() / temperature).softmax(0), 1, generator=generator)


def _prompt(vocabulary: tuple[str, ...], prompt: str, by_word: bool) -> list[int]:
    """A text begins as a line does."""
    begin = "<eos>" if by_word else "\n"
    asked = prompt.split() if by_word else list(prompt)
    unknown = [token for token in asked if token not in vocabulary]
    if unknown:
        raise InvalidArgument(
            f"--prompt: {unknown[0]!r} is not among the {len(vocabulary)} tokens that the model knows, such as "
            f"{', '.join(map(repr, vocabulary[:8]))}."
        )
    return [vocabulary.index(token) for token in [begin, *asked]]


def _opened(folder: Path) -> tuple[Table, LanguageConfig, list[str]]:
    """The table and the settings of a run, and the command that started it, without its settings and folder."""
    try:
        config = load(folder / CONFIG)
        settings = convert(config, Settings)
        experiment = EXPERIMENTS[settings.experiment]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{folder} is not the folder of a run ({type(error).__name__}: {error}). Give one of flipout run."
        ) from error
    table, preset = getattr(experiment.work, "__self__", None), experiment.config(settings.preset)
    if not isinstance(table, Table) or not isinstance(preset, LanguageConfig):
        raise DataError(f"{folder} is a run of {experiment.name}, which has no language models to write with.")
    started = ["flipout", "run", experiment.name, "--preset", settings.preset]
    return table, config_from(config, preset), started
