"""Four methods are scored on the same pictures."""

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments import data
from flipout.experiments.shift import claims
from flipout.experiments.shift import work as shift
from flipout.experiments.shift.training import ShiftTraining, plain_network

TINY = shift.ShiftConfig(
    data="digits",
    training=ShiftTraining(width=2, blocks=1, epochs=1, bayes_epochs=1, batch=512, moved=False),
    members=2,
    samples=2,
    tested=40,
)


def test_scores_are_those_of_the_stored_networks(run, monkeypatch):
    monkeypatch.setattr(claims, "CONDITIONS", (claims.CLEAN, ("contrast", 3)))
    monkeypatch.setattr(claims, "evaluate", lambda found: [])
    monkeypatch.setattr(claims, "measured_numbers", lambda found: {})
    shift.work(TINY, run)
    images, prepared, standardise = shift._prepared(TINY, run)
    x = data.standardised(images.x_test[:40], by=images.x_train)
    torch.testing.assert_close(standardise(images.x_test[:40].float()), x)
    torch.testing.assert_close(prepared.x, data.standardised(images.x_train))
    logits = []
    for number in range(2):
        model = plain_network(TINY.training, prepared)
        model.load_state_dict(run.read_tensors(f"network.{number}"))
        logits.append(model.eval()(x).detach())
    y = images.y_test[:40]
    plain, ensemble = (run.read_piece(claims.piece(method, *claims.CLEAN)) for method in ("plain", "ensemble"))
    losses = [float(torch.nn.functional.cross_entropy(each, y)) for each in logits]
    assert plain["nll"] == pytest.approx(losses[0], rel=1e-4)
    assert ensemble["member_nll"] == pytest.approx(losses, rel=1e-4)
    mixed = torch.stack(logits).softmax(-1).mean(0)
    assert ensemble["nll"] == pytest.approx(float(torch.nn.functional.nll_loss(mixed.log(), y)), rel=1e-4)
    assert ensemble["risk"][-1] == pytest.approx(1 - ensemble["accuracy"])
    for method in claims.METHODS:
        assert run.read_piece(claims.piece(method, "contrast", 3))["nll"] > 0


def test_each_condition_is_made_once_and_only_if_a_piece_is_missing(run, monkeypatch):
    conditions = []
    corrupted = shift._corrupted
    monkeypatch.setattr(shift, "_corrupted", lambda *args: conditions.append(args[1:3]) or corrupted(*args))
    monkeypatch.setattr(claims, "CONDITIONS", (claims.CLEAN, ("contrast", 3)))
    monkeypatch.setattr(claims, "evaluate", lambda found: [])
    monkeypatch.setattr(claims, "measured_numbers", lambda found: {})
    shift.work(TINY, run)
    assert conditions == [claims.CLEAN, ("contrast", 3)]
    lost = claims.piece("flipout", "contrast", 3)
    before = run.read_piece(lost)
    (run.folder / "pieces" / f"{lost}.json").unlink()
    shift.work(TINY, run)
    assert conditions == [claims.CLEAN, ("contrast", 3), ("contrast", 3)]
    assert run.read_piece(lost) == before


def test_figures_are_drawn_without_the_data(run, monkeypatch):
    shift.work(TINY, run)
    monkeypatch.setattr(data, "images", pytest.fail)
    shift.draw(TINY, run)
    assert [figure.name for figure in run.figures] == ["strength", "rejection", "pictures"]


def test_bad_settings_are_refused():
    with pytest.raises(InvalidArgument, match="members=1: expected at least 2"):
        shift.ShiftConfig(members=1)
    with pytest.raises(InvalidArgument, match=r"training.batch=1: expected at least 2"):
        ShiftTraining(batch=1)
