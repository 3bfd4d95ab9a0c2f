"""flipout generate: text from the models of a run."""

import shlex
import shutil
from pathlib import Path

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments.cli import main
from flipout.experiments.language.generate import Writing, write
from flipout.experiments.language.models import Shape
from flipout.experiments.language.rows import CHARACTERS
from flipout.experiments.registry import EXPERIMENTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ("--rows", "flipout", "unregularised", "--most", "1500", "--training.schedule.epochs", "1")
    assert main(["run", "ptb-char", "--preset", "smoke", "--device", "cpu", *words, "--out", str(folder)]) == 0
    return folder


def written(capsys) -> dict[str, str]:
    parts = capsys.readouterr().out.split("--- ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_text_at_the_mean_and_under_draws(folder, capsys):
    again = ["generate", str(folder), "--row", "flipout", "--length", "60", "--prompt", "def ", "--draws", "2"]
    assert main(again) == 0
    first = written(capsys)
    assert list(first) == ["flipout, mean", "flipout, draw 0", "flipout, draw 1"]
    assert all("def " in text and len(text) >= 60 for text in first.values())
    assert main(again) == 0
    assert written(capsys) == first
    assert main([*again, "--seed", "1"]) == 0
    assert written(capsys) != first


def test_rows_without_weight_noise_have_only_a_mean(folder, capsys):
    assert main(["generate", str(folder), "--row", "unregularised", "--length", "5"]) == 0
    samples = written(capsys)
    assert list(samples) == ["unregularised, mean"]
    assert samples["unregularised, mean"].endswith(
        "(Row unregularised has no weight noise, so there is nothing to draw.)\n"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--row", "flipout", "--model", "3"], "There are flipout.0, unregularised.0; choose by --row and --model"),
        (["--row", "flipout", "--model", "3"], "--rows flipout --seeds 3 --resume"),
        (["--row", "wd"], "--row wd: this run has flipout, unregularised. Use: flipout generate"),
        (["--row", "flipout", "--prompt", "λ"], "--prompt: 'λ' is not among the"),
        (["--row", "flipout", "--length", "0"], "length=0: expected at least 1"),
        (["--row", "flipout", "--draws", "-2"], "draws=-2): expected a whole number ≥ 0"),
    ],
)
def test_what_is_not_there_is_refused(folder, capsys, words, says):
    try:
        status = main(["generate", str(folder), *words])
    except SystemExit as refused:
        status = refused.code
    assert status == 2
    assert says in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_the_line_that_is_given_generates(folder, capsys):
    assert main(["generate", str(folder), "--row", "wd"]) == 2
    line = shlex.split(capsys.readouterr().err.partition("Use: flipout ")[2])
    assert main([*line, "--length", "5"]) == 0


def test_a_run_without_weights_says_how_it_is_trained(folder, tmp_path, capsys):
    shutil.copy(folder / "config.json", tmp_path)
    assert main(["generate", str(tmp_path), "--row", "wd"]) == 2
    line = f"flipout run ptb-char --preset smoke --out {tmp_path} --resume"
    assert f"no trained row yet. Use: {line}" in capsys.readouterr().err


def test_a_row_whose_weights_were_left_behind_is_trained_in_another_folder(folder, tmp_path, capsys):
    (tmp_path / "pieces").mkdir()
    for name in ("config.json", "pieces/flipout.0.json"):
        shutil.copy(folder / name, tmp_path / name)
    assert main(["generate", str(tmp_path), "--row", "flipout"]) == 2
    line = f"flipout run ptb-char --preset smoke --out {tmp_path}-again --rows flipout --seeds 0\n"
    assert capsys.readouterr().err.endswith(line)


def test_other_folders_are_refused(tmp_path, capsys):
    assert main(["generate", str(tmp_path), "--row", "flipout"]) == 2
    assert f"{tmp_path} is not the folder of a run" in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"experiment": "variance-multigpu", "preset": "smoke", "seed": 0}')
    assert main(["generate", str(tmp_path), "--row", "flipout"]) == 2
    assert "a run of variance-multigpu, which has no language models" in capsys.readouterr().err


def test_the_likeliest_token_at_temperature_0():
    model = CHARACTERS[0].model(3, Shape(0, 4, 1), 0).eval()
    with torch.no_grad():
        model.decoder.weight.zero_()
        model.decoder.bias.copy_(torch.tensor([0.0, 9.0, 0.0]))
    assert write(model, ("\n", "a", "b"), Writing(length=3, temperature=0)) == "\naaa"
    with pytest.raises(InvalidArgument, match="'c' is not among the 3 tokens"):
        write(model, ("\n", "a", "b"), Writing(prompt="abc"))


def test_every_language_table_is_known():
    assert all(hasattr(EXPERIMENTS[name].work, "__self__") for name in ("ptb-char", "ptb-word", "ptb-large-batch"))
