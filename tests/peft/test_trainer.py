"""The KL in transformers' Trainer: once per optimiser step, whatever the step is made of."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import flipout
from flipout import bayes, errors

from .. import ranks
from .models import adapted, bayesian, tokens

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
COUNT, NUM_DATA = 11, 50  # sequences: steps of 2 × 3, the last one has 3 and 2, or 2 alone


class Trainer(flipout.peft.BayesianTrainerMixin, transformers.Trainer):
    """Keeps the gradients of every optimiser step."""

    def create_optimizer(self, model: Any = None) -> Any:
        self.optimizer = torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad], 0.0)  # pyright: ignore[reportOptionalMemberAccess]
        return self.optimizer


class Gradients(transformers.TrainerCallback):
    def __init__(self) -> None:
        self.steps: list[dict[str, Tensor]] = []

    def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
        inside = getattr(model, "module", model)
        self.steps.append({name: p.grad.clone() for name, p in inside.named_parameters() if p.grad is not None})


def data() -> list[dict[str, Tensor]]:
    found = []
    for n in range(COUNT):
        row = tokens(1, 5, seed=n)["input_ids"][0]
        labels = torch.where(torch.arange(5) <= n % 3, -100, row)  # sequences have unequal numbers of labels
        found.append({"input_ids": row, "labels": labels})
    return found


def steps(folder: Path, kl_weight: float, rows: int = 3, counts_items: bool = True, **options: Any) -> Any:
    model = bayesian()
    settings = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.0, "num_train_epochs": 1, "seed": 3}
    arguments = transformers.TrainingArguments(
        str(folder),
        **{**settings, "per_device_train_batch_size": rows, "use_cpu": True, "report_to": [], **options},
        disable_tqdm=True,
        save_strategy="no",
        dataloader_drop_last=False,
    )
    kept = Gradients()
    trainer = Trainer(model, arguments, train_dataset=data(), callbacks=[kept], num_data=NUM_DATA, kl_weight=kl_weight)
    trainer.model_accepts_loss_kwargs = counts_items
    trainer.train()
    return model, kept.steps, trainer


def worst_difference(model: nn.Module, with_kl: list[dict[str, Tensor]], without: list[dict[str, Tensor]]) -> float:
    """Return how far the KL's part of the gradients is from that of kl / num_data."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    expected = torch.autograd.grad(bayes.kl(model) / NUM_DATA, list(trained.values()), materialize_grads=True)
    assert len(with_kl) == len(without) == 2
    worst = 0.0
    for a, b in zip(with_kl, without, strict=True):
        for name, part in zip(trained, expected, strict=True):
            worst = max(worst, float((a[name] - b[name] - part).abs().max()))
    assert max(float(part.abs().max()) for part in expected) > 1e-3
    return worst


@pytest.mark.parametrize("counts_items", [True, False])
@pytest.mark.parametrize("rows", [3, 1])
def test_a_step_has_the_kl_once(tmp_path: Path, counts_items: bool, rows: int) -> None:
    options = {"gradient_accumulation_steps": 2 if rows == 3 else 6}
    _, without, _ = steps(tmp_path, 0.0, rows, counts_items, **options)
    model, with_kl, _ = steps(tmp_path, 1.0, rows, counts_items, **options)
    assert worst_difference(model, with_kl, without) < 1e-9


def test_the_weight_follows_the_step(tmp_path: Path) -> None:
    _, without, _ = steps(tmp_path, 0.0)
    model, with_kl, _ = steps(tmp_path, lambda step: float(step))  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(with_kl[0], without[0])
    assert worst_difference(model, [with_kl[1]] * 2, [without[1]] * 2) < 1e-9


def test_evaluation_is_at_the_mean_and_logs_have_the_kl(tmp_path: Path) -> None:
    model, _, trainer = steps(tmp_path, 1.0, logging_steps=1)
    logged = [entry for entry in trainer.state.log_history if "kl" in entry]
    assert logged
    assert logged[0]["kl"] == pytest.approx(bayes.kl(model).item(), rel=1e-5)
    evaluated = trainer.evaluate(data())["eval_loss"]
    items = rows = 0.0
    with torch.no_grad():
        for row in data():
            labels = row["labels"][None]
            count = int((labels[:, 1:] != -100).sum())
            items += count * float(model(input_ids=row["input_ids"][None], labels=labels).loss)
            rows += count
    assert evaluated == pytest.approx(items / rows, rel=0.05)  # a mean over batches
    assert trainer.evaluate(data())["eval_loss"] == evaluated


def test_weight_decay_spares_the_spreads(tmp_path: Path) -> None:
    _, _, trainer = steps(tmp_path, 1.0)
    names = trainer.get_decay_parameter_names(trainer.model)
    assert any(name.endswith("lora_A.default.weight") for name in names)
    assert not any(name.endswith("_rho") for name in names)


def test_a_run_is_resumed_with_its_spreads(tmp_path: Path) -> None:
    model = flipout.peft.bayesian_lora(adapted(), std=0.2)

    def trainer(network: Any, epochs: int) -> Any:
        arguments = transformers.TrainingArguments(
            str(tmp_path),
            num_train_epochs=epochs,
            per_device_train_batch_size=4,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            save_strategy="epoch",
            learning_rate=0.05,
        )

        class Plain(flipout.peft.BayesianTrainerMixin, transformers.Trainer): ...

        return Plain(network, arguments, train_dataset=data(), num_data=NUM_DATA)

    trainer(model, 1).train()
    trained = {name: p.detach().clone() for name, p in model.named_parameters() if name.endswith("_rho")}
    again = flipout.peft.bayesian_lora(adapted(), std=0.2)
    resumed = trainer(again, 1)
    resumed.train(resume_from_checkpoint=True)  # nothing is left to do
    found = dict(again.named_parameters())
    for name, spread in trained.items():
        torch.testing.assert_close(found[name].detach(), spread)
        assert not torch.allclose(spread, torch.full_like(spread, float(spread.mean())))


def _work(rank: int) -> dict[str, Any]:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    folder = Path(os.environ["FOLDER"]) / str(rank)
    options = {"gradient_accumulation_steps": 2, "ddp_backend": "gloo", "average_tokens_across_devices": True}
    _, without, _ = steps(folder, 0.0, 2, **options)
    model, with_kl, _ = steps(folder, 1.0, 2, **options)
    return {"worst": worst_difference(model, with_kl, without)}


@pytest.mark.slow  # two processes import transformers
def test_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29653")
    found = ranks.spawned(_work, 2, tmp_path)
    assert max(result["worst"] for result in found) < 1e-9


def test_labels_are_counted_as_trainer_counts_them() -> None:
    batches = [{"labels": torch.tensor([[5, 6, -100], [5, -100, 7]])}, {"labels": torch.tensor([[1, 2, 3]])}]
    assert flipout.peft.count_labels(batches) == 4
    assert flipout.peft.count_labels(batches, shifted=False) == 7
    with pytest.raises(errors.InvalidArgument, match="'labels' in it"):
        flipout.peft.count_labels([{"input_ids": torch.ones(1, 2)}])
    with pytest.raises(errors.InvalidArgument, match="no label"):
        flipout.peft.count_labels([])


@pytest.mark.parametrize(
    ("options", "match"),
    [({"num_data": 0}, "num_data=0"), ({"num_data": 5, "kl_weight": -1.0}, r"kl_weight=-1\.0")],
)
def test_bad_arguments(options: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=match):
        Trainer(bayesian(), **options)
