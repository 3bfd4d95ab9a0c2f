"""The benchmarks' command line: which cases there are, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import es_generate_gpu, es_llama_gpu, predict_gpu
from benchmarks.__main__ import main
from benchmarks.cases import CASES, listing
from benchmarks.es_traffic import messages
from flipout.bayes import _fold
from tests.networks import convnet

FOLDER = Path(__file__).parents[1] / "benchmarks"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    main()


def test_every_file_with_a_run_is_a_case() -> None:
    """`es` calls `es_gpu` itself."""
    files = [path.stem for path in FOLDER.glob("*.py") if "\ndef run(" in path.read_text(encoding="utf-8")]
    assert sorted([*CASES, "es_gpu"]) == sorted(files)


def test_help_lists_the_cases(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--help")
    assert ended.value.code == 0
    assert listing() in capsys.readouterr().out
    for name, case in CASES.items():
        (line,) = (line for line in listing().splitlines() if name in line.split()[:2])
        assert all(part in line for part in (case.runs_on, case.takes, case.measures))
        assert line.startswith("*") == case.is_default


def test_an_unknown_case_is_refused_with_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "linear", "liner", "convolution")
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert "unknown case liner, convolution; expected some of:" in shown
    assert listing() in shown


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_gpu_case_is_refused_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "linear", "training_gpu")
    assert ended.value.code == 2
    assert "training_gpu: needs a CUDA device" in capsys.readouterr().err


def test_every_file_can_be_imported() -> None:
    """In the interpreter, so that the cases of a GPU are imported too."""
    pytest.importorskip("triton")
    names = [f"benchmarks.{path.stem}" for path in FOLDER.glob("*.py") if path.stem != "no_device"]
    code = f"import importlib; [importlib.import_module(name) for name in {names}]"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(FOLDER.parent)}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER.parent, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_predictions_of_the_gpu_case_agree_with_plain_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case itself needs a GPU. Its runs do not: here with a small network, whose weights are formed too."""
    formed = []
    passes = _fold.Fold._formed_passes
    monkeypatch.setattr(_fold, "_LARGE", 1)
    monkeypatch.setattr(_fold.Fold, "_formed_passes", lambda *args: formed.append(args[2:]) or passes(*args))
    model = convnet().to(memory_format=torch.channels_last)
    x = torch.randn(32, 2, 6, 6).to(memory_format=torch.channels_last)
    plain, noisy = predict_gpu.networks(model)
    runs = predict_gpu.predictions(plain, noisy, x, 16)
    expected = runs["plain"]()
    torch.testing.assert_close(runs["joint"](), expected, rtol=0, atol=0.1)
    assert [draw for draw, *_ in formed] == [0, 8]
    torch.testing.assert_close(runs["own weights"](), expected, rtol=0, atol=0.1)
    assert len(formed) == 2


def test_messages_of_a_fleet_do_not_depend_on_the_model() -> None:
    """No weight travels: 20 and 4,160 weights give the same bytes, which grow with the members alone."""
    small, large = messages(2, 4, members=64), messages(2, 64, members=64)
    assert small == large
    assert messages(2, 4, members=640)["sent to a worker"] > small["sent to a worker"] + 8 * 500


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch.compile
def test_a_population_of_a_llama_at_a_tiny_size() -> None:
    """All that the case does on a device, but for captures."""
    pytest.importorskip("transformers")
    sizes = {"width": 16, "inner": 24, "heads": 2, "layers": 2, "few_layers": 1, "members": 4, "few_members": 2}
    setting = es_llama_gpu.Setting("cpu", "aot_eager", **sizes, tokens=3, decoded=(5,), pairs=1, seconds=0, least=2)
    found = list(es_llama_gpu.measured(setting))
    shares = {(row.case, row.variant): row.median for row in found if row.what == "ratio"}
    variants = {variant for _, variant in shares}
    assert {"plain", "rank_one", "rank_one compiled", "low_rank compiled", "flipout", "independent"} <= variants
    times = {(row.case, row.variant): row.median for row in found if row.what == "ms"}
    assert all(value > 0 for value in (*shares.values(), *times.values()))
    torch.compiler.reset()


def test_texts_of_a_population_at_a_tiny_size() -> None:
    """All that the case does on a device, but for captures."""
    pytest.importorskip("transformers")
    sizes = {"width": 16, "inner": 24, "layers": 2, "heads": 4, "groups": 2, "vocabulary": 40}
    setting = es_generate_gpu.Setting("cpu", members=3, length=4, tokens=4, **sizes, seconds=0, least=2)
    found = list(es_generate_gpu.measured(setting))
    shares = {(", captured" in row.case, row.variant) for row in found if row.what == "ratio"}
    assert shares == {
        (False, "plain by transformers"),
        *((c, s) for c in (False, True) for s in ("rank_one", "low_rank")),
    }
    assert all(row.median > 0 for row in found)
