"""Guard: a step with a non-finite gradient is reported, and changes nothing."""

import math
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from flipout.bayes import ELBO, Guard, Normal, Skipped


def setup() -> tuple[Any, torch.optim.Optimizer, Guard]:
    model = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=Normal()))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    return model, optimizer, Guard(optimizer, model)


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    moments = [value for state in optimizer.state.values() for value in state.values()]
    return [tensor.detach().clone() for tensor in (*model.parameters(), *moments)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_gradient_changes_neither_parameters_nor_the_optimiser(bad: float) -> None:
    model, optimizer, guard = setup()
    model(torch.randn(5, 4)).sum().backward()
    assert guard.step() is None
    before = snapshot(model, optimizer)
    assert len(before) > 3
    model.weight_rho.grad[1, 2] = bad
    with pytest.warns(
        RuntimeWarning, match=r"Step 1 was skipped and the Parameters are unchanged: .* not finite in weight_rho"
    ):
        report = guard.step()
    assert report == Skipped(1, None, ("weight_rho",))
    assert guard.skipped == [report]
    after = snapshot(model, optimizer)
    assert len(after) == len(before)
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_a_good_step_is_the_optimisers_own() -> None:
    model, _, guard = setup()
    other: Any = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(prior=Normal()))
    other.load_state_dict(model.state_dict())
    optimizer, x = torch.optim.Adam(other.parameters(), 0.1), torch.randn(5, 4)
    for stepped, step in ((model, guard.step), (other, optimizer.step)):
        with flipout.hold(stepped, seed=1):
            stepped(x).square().sum().backward()
        step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert not guard.skipped


def test_a_bad_loss_is_enough() -> None:
    model, optimizer, guard = setup()
    model(torch.randn(5, 4)).sum().backward()
    before = snapshot(model, optimizer)
    with pytest.warns(RuntimeWarning, match="the loss is inf, the gradient is not finite in no Parameter"):
        report = guard.step(torch.tensor(math.inf))
    assert report == Skipped(0, math.inf, ())
    assert all(torch.equal(a, b) for a, b in zip(snapshot(model, optimizer), before, strict=True))


def test_training_goes_on_after_a_bad_batch() -> None:
    model, optimizer, guard = setup()
    elbo = ELBO(model, "categorical", num_data=100, check=False)
    batches = [torch.randn(5, 4) for _ in range(3)]
    batches[1][2, 3] = math.nan
    reports = []
    for x in batches:
        optimizer.zero_grad()
        loss = elbo(x, torch.zeros(5).long()).loss
        loss.backward()
        if loss.isfinite():
            reports.append(guard.step(loss))
        else:
            with pytest.warns(RuntimeWarning):
                reports.append(guard.step(loss))
    assert [report is not None for report in reports] == [False, True, False]
    assert set(reports[1].parameters) == {"weight", "weight_rho", "bias"}
    assert all(p.isfinite().all() for p in model.parameters())


def test_without_a_model_parameters_are_numbered() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([0.0, math.nan])
    with pytest.warns(RuntimeWarning, match="group 0, Parameter 0"):
        Guard(torch.optim.SGD([weight], 0.1)).step()
    assert torch.equal(weight, torch.ones(2))


def test_bad_input() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"Guard\(.*expected the optimiser"):
        Guard(nn.Linear(2, 2))  # pyright: ignore[reportArgumentType]


def test_sparse_gradients_and_what_is_no_loss() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    guard = Guard(torch.optim.SGD(table.parameters(), 0.1), table)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(errors.InvalidArgument, match=r"terms\.loss"):
        guard.step((torch.ones(()),))  # pyright: ignore[reportArgumentType]
    assert guard.step() is None
    assert table.weight.grad is not None
    table.weight.grad.values().fill_(math.nan)
    with pytest.warns(RuntimeWarning, match="skipped"):
        assert guard.step() is not None


def test_an_optimiser_that_was_made_too_early() -> None:
    model = nn.Linear(4, 3)
    early = torch.optim.SGD(model.parameters(), 0.1)
    flipout.perturb(model, flipout.MeanField(prior=Normal()))
    with pytest.warns(RuntimeWarning, match="does not have weight_rho"):
        Guard(early, model)


def regression() -> ELBO:
    return ELBO(flipout.perturb(nn.Linear(4, 1), flipout.MeanField(prior=Normal())), "gaussian", num_data=10)


def test_an_optimiser_without_the_noise_of_the_likelihood() -> None:
    elbo = regression()
    with pytest.warns(RuntimeWarning, match=r"does not have likelihood\.log_std, .*elbo\.parameters\(\)"):
        Guard(torch.optim.Adam(elbo.model.parameters()), elbo)


def test_an_optimiser_that_decays_what_is_learned() -> None:
    elbo = regression()
    with pytest.warns(RuntimeWarning, match=r"pulls model\.weight_rho and 1 more to 0.*parameter_groups\(elbo"):
        Guard(torch.optim.AdamW(elbo.parameters()), elbo)


@pytest.mark.filterwarnings("error")
def test_an_optimiser_that_is_right_is_not_warned_about() -> None:
    elbo = regression()
    Guard(torch.optim.Adam(elbo.parameters()), elbo)
    Guard(torch.optim.AdamW(flipout.parameter_groups(elbo, weight_decay=0.1)), elbo)
    for name, parameter in elbo.named_parameters():  # what is frozen on purpose need not be there
        parameter.requires_grad_(name == "model.weight")
    Guard(torch.optim.SGD([elbo.model.weight], 0.1), elbo)  # pyright: ignore[reportArgumentType]
    Guard(torch.optim.AdamW(nn.Linear(2, 2).parameters()), nn.Linear(2, 2))
