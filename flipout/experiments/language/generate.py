"""Writing text with the language models of a run: at the mean weights, and under draws of their noise."""

import copy
import shlex
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import flipout
from flipout.errors import DataError, InvalidArgument

from .. import data
from ..door import SHORT, Mismatch
from ..registry import EXPERIMENTS
from ..running.experiment import check_least, config_from
from ..running.files import RunFiles
from ..running.reader import SavedSettings, convert
from ..running.runs import CONFIG
from .models import RegularizedModel
from .work import LanguageConfig, Table


@dataclass(frozen=True)
class Writing:
    """How a text is written: token by token, each drawn from the prediction of the model."""

    length: int = 200  # tokens
    temperature: float = 0.8  # of the prediction; 0: always the most likely token
    prompt: str = ""  # characters, or words separated by blanks
    seed: int = 0

    def __post_init__(self) -> None:
        check_least(self, length=1, seed=0, temperature=0)


def texts(folder: Path, row: str, seed: int, draws: int, how: Writing) -> dict[str, str]:
    """Return the texts by their weights: "mean", "draw 0", "draw 1", … A row without weight noise has only "mean"."""
    if draws < 0:
        raise InvalidArgument(f"generate(draws={draws}): expected a whole number ≥ 0.")
    table, config, started = _open(folder)
    weights = folder / "pieces" / f"{row}.{seed}.weights.safetensors"
    there = sorted(path.name.removesuffix(".weights.safetensors") for path in weights.parent.glob("*.weights.*"))
    if row not in [known.name for known in table.rows]:
        rows = list(dict.fromkeys(name.partition(".")[0] for name in there))
        fix = shlex.join(
            ["flipout", "generate", str(folder), "--row", rows[0]]
            if rows
            else [*started, "--out", str(folder), "--resume"]
        )
        raise InvalidArgument(f"--row {row}: this run has {', '.join(rows) or 'no trained row yet'}. Use: {fix}")
    if not weights.exists():
        # A row that is trained already: --resume would do nothing.
        left_behind = weights.with_name(f"{row}.{seed}.json").exists()
        out, resume = (f"{folder}-again", []) if left_behind else (str(folder), ["--resume"])
        fix = shlex.join([*started, "--out", out, "--rows", row, "--seeds", str(seed), *resume])
        raise DataError(
            f"{folder} has no weights of row {row} with seed {seed}: expected {weights.name} in its pieces. "
            f"There are {', '.join(there) or 'none'}; choose by --row and --model, or train it, with the settings that "
            f"the run was started with: {fix}"
        )
    text = data.text(config.text)
    try:
        model = table.row(row).model(len(text.vocabulary), config.shape, 0).eval()
    except (TypeError, ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
        shape = SHORT.repr(config.shape)
        raise DataError(f"{folder / CONFIG}: shape: {shape} found, of which no model can be made.") from error
    with torch.no_grad():
        saved = _saved(folder, weights.name, model)
        if saved["decoder.bias"].shape != model.decoder.bias.shape:
            raise DataError(
                f"{weights.name} knows {len(saved['decoder.bias'])} kinds of tokens, and {text.source} has "
                f"{len(text.vocabulary)}: use the data, or the version of Python, that it was trained with."
            )
        for name, parameter in model.named_parameters():
            if saved[name].shape != parameter.shape:
                raise DataError(
                    f"{weights}: {name}: shape {tuple(saved[name].shape)} found; expected {tuple(parameter.shape)}, as "
                    "config.json says. Copy the folder again, or train the row again."
                )
        for name, parameter in model.named_parameters():
            parameter.copy_(saved[name])
    written = {"mean": write(model, text.vocabulary, how)}
    for number in range(draws if table.row(row).noisy else 0):
        drawn = copy.deepcopy(model)
        with flipout.hold(drawn, seed=number):
            flipout.freeze(drawn, at="draw")
        written[f"draw {number}"] = write(drawn, text.vocabulary, how)
    return written


def _saved(folder: Path, name: str, model: RegularizedModel) -> dict[str, Tensor]:
    """Read the trained weights of one row of the table."""
    path, fix = folder / "pieces" / name, "copy it again, or train the row again"
    try:
        saved, _ = RunFiles(folder).load_tensors(f"pieces/{name}")
    except (OSError, Mismatch) as error:
        raise DataError(f"{path} is broken ({error}): {fix}.") from error
    missing = [parameter for parameter, _ in model.named_parameters() if parameter not in saved]
    if missing:
        raise DataError(f"{path} has no {missing[0]}: {fix}.")
    return saved


@torch.no_grad()
def write(model: RegularizedModel, vocabulary: tuple[str, ...], how: Writing) -> str:
    """Return a text, including its prompt."""
    by_word = max(map(len, vocabulary)) > 1 and "<eos>" in vocabulary
    tokens = _prompt(vocabulary, how.prompt, by_word)
    generator = torch.Generator().manual_seed(how.seed)
    output = model(torch.tensor([tokens]), model.start(1))
    for _ in range(how.length):
        tokens.append(int(_next(output.logits[0, -1], how.temperature, generator)))
        output = model(torch.tensor([tokens[-1:]]), output.state)
    written = [vocabulary[token] for token in tokens]
    if not by_word:
        return "".join(written)
    return " ".join(written).replace(" <eos> ", "\n").replace("<eos>", "\n").strip(" ")


def _next(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    if not temperature:
        return logits.argmax()
    return torch.multinomial((logits.double() / temperature).softmax(0), 1, generator=generator)


def _prompt(vocabulary: tuple[str, ...], prompt: str, by_word: bool) -> list[int]:
    """Return the tokens of a prompt, after the end of a line: texts begin as a line does."""
    begin = "<eos>" if by_word else "\n"
    words = prompt.split() if by_word else list(prompt)
    unknown = [token for token in words if token not in vocabulary]
    if unknown:
        raise InvalidArgument(
            f"--prompt: {unknown[0]!r} is not among the {len(vocabulary)} tokens that the model knows, such as "
            f"{', '.join(map(repr, vocabulary[:8]))}."
        )
    return [vocabulary.index(token) for token in [begin, *words]]


def _open(folder: Path) -> tuple[Table, LanguageConfig, list[str]]:
    """Return the table and the config of a run, and the command that started it, without settings and folder."""
    try:
        config = RunFiles(folder).load(CONFIG)
        settings = convert(config, SavedSettings)
        experiment = EXPERIMENTS[settings.experiment]
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise DataError(
            f"{folder} is not the folder of a run ({type(error).__name__}: {error}). Give one of flipout run."
        ) from error
    table, preset = getattr(experiment.work, "__self__", None), experiment.config(settings.preset)
    if not isinstance(table, Table) or not isinstance(preset, LanguageConfig):
        raise DataError(f"{folder} is a run of {experiment.name}, which has no language models to write with.")
    started = ["flipout", "run", experiment.name, "--preset", settings.preset]
    return table, config_from(config, preset), started
