"""Training one language model: steps, randomness, and checkpoints."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import flipout
from flipout.experiments import data
from flipout.experiments.language.models import DropoutRates, Shape
from flipout.experiments.language.rows import CHARACTERS, WORDS
from flipout.experiments.language.schedules import Schedule
from flipout.experiments.language.training import LanguageTraining, Randomness, RowTrainer
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from flipout.experiments.running.runs import Run

SHAPE = Shape(embedding=6, hidden=6)
TRAINING = LanguageTraining(batch=3, window=5, reading=2, schedule=Schedule(rate=2.0, epochs=4))
ADAM = replace(TRAINING, optimizer="amsgrad", clip=1.0, schedule=Schedule(rate=0.01, epochs=4))
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")],
    ),
]


@pytest.fixture(params=DEVICES)
def run(request, tmp_path):
    with open_run(tmp_path, {"seed": 0, "device": request.param}, resume=False, progress=RunProgress()) as opened:
        yield opened


def text(run: Run) -> data.Text:
    generator = torch.Generator().manual_seed(1)
    train, valid, test = (torch.randint(11, (n,), generator=generator).to(run.device) for n in (98, 40, 40))
    return data.Text(train, valid, test, tuple("abcdefghijk"), "random")


def epoch(*trainers: RowTrainer) -> None:
    for trainer in trainers:
        trainer.begin()
    for step in range(len(trainers[0].walk.places)):
        for trainer in trainers:
            trainer.advance(step)
    for trainer in trainers:
        trainer.validate()
    for trainer in trainers:
        trainer.finish(seconds=1.0)


def told(trainer: RowTrainer) -> tuple[list, list]:
    return trainer.history, [weight.tolist() for weight in trainer.weights().values()]


@pytest.mark.parametrize("config", [TRAINING, ADAM, replace(TRAINING, activation=2.0, temporal=1.0)])
def test_an_epoch_is_that_of_a_plain_loop(run, config):
    row = replace(WORDS[4], drop=DropoutRates())
    trainer, corpus = RowTrainer(config, SHAPE, row, 0, text(run), run), text(run)
    model = flipout.freeze(row.model(11, SHAPE, run.seed_of("network.0"))).to(run.device)
    kinds = {"sgd": torch.optim.SGD, "amsgrad": lambda p, lr: torch.optim.Adam(p, lr, amsgrad=True)}
    optimizer = kinds[config.optimizer](model.parameters(), config.schedule.rate)
    length, state, losses = 97 // 3, model.start(3), []
    inputs, targets = (corpus.train[i : i + 3 * length].view(3, length) for i in (0, 1))
    for words, following in zip(inputs.split(5, 1), targets.split(5, 1), strict=True):
        output = model(words, state)
        state = tuple(tuple(part.detach() for part in layer) for layer in output.state)
        loss = cross_entropy(output.logits.flatten(0, 1), following.flatten())
        losses.append(loss.item() * words.numel())
        if config.activation:
            loss = loss + 2.0 * output.output.square().mean()
            if words.shape[1] > 1:
                loss = loss + (output.raw[:, 1:] - output.raw[:, :-1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
    epoch(trainer)
    rtol, atol = (1e-5, 1e-6) if run.device.type == "cpu" else (2e-3, 2e-4)
    assert trainer.history[0]["train"] == pytest.approx(sum(losses) / (3 * length), rel=rtol)
    for parameter, reference in zip(trainer.parameters, model.parameters(), strict=True):
        torch.testing.assert_close(parameter, reference, rtol=rtol, atol=atol)


def test_side_by_side_is_as_alone(run):
    def trainers() -> list[RowTrainer]:
        shape = Shape(embedding=6, hidden=6)
        return [RowTrainer(TRAINING, shape, row, 1, text(run), run) for row in (WORDS[0], WORDS[1], WORDS[5])]

    together = trainers()
    for _ in range(3):
        epoch(*together)
    found = [told(trainer) for trainer in together]
    for trainer in together:
        trainer.close()
        run.drop_checkpoint(trainer.name)
    for alone, (history, weights) in zip(trainers(), found, strict=True):
        for _ in range(3):
            epoch(alone)
        if run.device.type == "cpu":
            assert told(alone) == (history, weights)
        assert [epoch["train"] for epoch in alone.history] == pytest.approx(
            [epoch["train"] for epoch in history], rel=1e-3
        )
        alone.close()


@pytest.mark.parametrize("config", [TRAINING, replace(ADAM, carried=False)])
def test_what_is_kept_is_all_that_the_next_epochs_need(run, config):
    first = RowTrainer(config, SHAPE, WORDS[0], 0, text(run), run)
    for _ in range(2):
        epoch(first)
    second = RowTrainer(config, SHAPE, WORDS[0], 0, text(run), run)  # takes up what the first has kept
    assert second.history == first.history
    for trainer in (first, second):
        epoch(trainer)
    if run.device.type == "cpu":
        assert told(second) == told(first)
    assert [epoch["valid"] for epoch in second.history] == pytest.approx(
        [epoch["valid"] for epoch in first.history], rel=1e-3
    )
    for weight, expected in zip(first.best, second.best, strict=True):
        torch.testing.assert_close(weight, expected, rtol=1e-3, atol=1e-4)


def test_the_best_weights_come_back(run, monkeypatch):
    trainer = RowTrainer(TRAINING, SHAPE, WORDS[1], 0, text(run), run)
    values = iter([3.0, 2.0, 2.5])
    trainer.validate = lambda: setattr(trainer, "valid_loss", torch.tensor(next(values)))
    epoch(trainer)
    epoch(trainer)
    with trainer.on_stream():
        lowest = [parameter.detach().clone() for parameter in trainer.parameters]
    epoch(trainer)
    with trainer.on_stream():
        assert not torch.equal(trainer.parameters[0], lowest[0])
        trainer.to_best()
        assert all(map(torch.equal, trainer.parameters, lowest))


def test_windows_from_a_zero_state_come_in_another_order_each_epoch(run):
    config = replace(ADAM, carried=False)
    trainer = RowTrainer(config, Shape(0, 6, 1), CHARACTERS[0], 0, text(run), run)
    orders = []
    for _ in range(2):
        epoch(trainer)
        orders.append([int(start) for start, _ in trainer.walk.places])
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == [0, 5, 10, 15, 20, 25, 30]
    assert orders[0][-1] == 30  # the short source


def test_randomness_of_ones_own(run):
    source, second = Randomness(run.device, 3), Randomness(run.device, 3)
    before = torch.rand(2, device=run.device)  # from the generator that all share
    drawn = []
    for randomness in (source, second, source, second):
        with randomness():
            drawn.append(torch.rand(2, device=run.device).tolist())
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]
    state = source.generator.get_state()
    with source():
        first = torch.rand(2, device=run.device)
    source.generator.set_state(state)
    with source():
        assert torch.equal(torch.rand(2, device=run.device), first)
    assert before.tolist() not in drawn


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("row", [*WORDS, CHARACTERS[0], CHARACTERS[1]], ids=lambda row: row.name)
def test_every_row_is_captured_and_learns(tmp_path, row, precision):
    settings = {"seed": 0, "device": "cuda"}
    shape = Shape(embedding=64, hidden=64) if row in WORDS else Shape(0, 64, 1, orthogonal=True, forget_bias=1.0)
    config = replace(ADAM, batch=8, window=12, precision=precision, schedule=Schedule(rate=0.01, epochs=9))
    tokens = torch.arange(4000) % 11
    with open_run(tmp_path, settings, resume=False, progress=RunProgress()) as run:
        tokens = tokens.to(run.device)
        corpus = data.Text(tokens, tokens[:500], tokens[:500], tuple("abcdefghijk"), "counting")
        trainer = RowTrainer(config, shape, row, 0, corpus, run)
        for _ in range(3):
            epoch(trainer)
        assert trainer.step.graph is not None
        assert trainer.valid.step.graph is not None
        trained = [epoch["train"] for epoch in trainer.history]
        assert trained[-1] < 0.8 * trained[0]
        if row.eval_factor == 1.0:  # else the weights that are tested are not those that were trained
            assert trainer.losses[-1] < 0.8 * trainer.losses[0]
        trainer.close()
