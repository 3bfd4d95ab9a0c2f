"""measure agrees with the theorem on a regression whose variances are known in closed form."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import flipout
from flipout.schemes import scheme_of
from flipout.variance._gradients import BatchGradients
from flipout.variance._sampler import Sampler
from tests.variance import regression

ERRORS = 5.0  # standard errors


def measured(**options) -> flipout.variance.Measurements:
    return flipout.variance.measure(
        options.pop("model", None) or regression.model(),
        regression.loss,
        regression.data,
        generator=torch.Generator().manual_seed(1),
        **options,
    )


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_variance_at_each_batch_size(scheme: str) -> None:
    for record in measured(batch_sizes=[1, 4, 64], schemes=[scheme], draws=400, repeats=20):
        assert abs(record.variance - regression.variance(scheme, record.batch_size)) < ERRORS * record.error
        assert record.error < 0.15 * record.variance
        assert record.low < record.variance < record.high


@pytest.mark.parametrize("sub_batch", [5, 16, 1000])
def test_accumulation_over_sub_batches_changes_nothing(sub_batch: int) -> None:
    """Under `shared` a mistake would show: sub-batches with different bases would halve the floor."""
    (record,) = measured(batch_sizes=[32], schemes=["shared"], draws=300, repeats=12, sub_batch=sub_batch)
    assert abs(record.variance - regression.variance("shared", 32)) < ERRORS * record.error


def test_several_bases_are_several_independent_batches() -> None:
    """Two shares of 16 examples with one base each have half the variance of a batch of 16."""
    (record,) = measured(batch_sizes=[32], schemes=["shared"], draws=400, repeats=20, bases=2)
    assert abs(record.variance - regression.variance("shared", 16) / 2) < ERRORS * record.error
    assert record.variance + 3 * record.error < regression.variance("shared", 32)


def test_data_and_estimation_terms() -> None:
    """The data term is 1/N of the variance over examples of the expected gradient, known here in closed form."""
    (record,) = measured(batch_sizes=[8], schemes=["flipout"], draws=2000, repeats=20, split=True)
    w, u, v = regression.MEAN, regression.OFFSET, regression.SIGMA**2
    # E_ΔW[G | x] = e x_i + σ² w̄_i x_i², with e = u·x − η
    data = u.square().sum() + u.square() + regression.NOISE**2 + 2 * v**2 * w.square() + 4 * v * w * u
    assert record.data_term is not None
    assert record.estimation_term is not None
    assert record.data_term == pytest.approx(float(data.mean()) / 8, rel=0.05)
    assert record.data_term + record.estimation_term == pytest.approx(record.variance)


def test_vmapped_and_single_draws_agree() -> None:
    """Single draws use the schemes' own backward passes."""
    for at_once in (1, 64):
        (record,) = measured(batch_sizes=[1], schemes=["flipout"], draws=300, repeats=6, at_once=at_once)
        assert abs(record.variance - regression.variance("flipout", 1)) < ERRORS * record.error


def test_the_same_generator_gives_the_same_records() -> None:
    options = {"batch_sizes": [2], "draws": 5, "repeats": 2}
    assert measured(**options).to_rows() == measured(**options).to_rows()


def test_a_model_on_tensors_with_several_parameters() -> None:
    net = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), flipout.MeanField(std=0.1))
    data = torch.randn(50, 4), torch.randint(2, (50,))
    found = flipout.variance.measure(
        net, nn.functional.cross_entropy, data, batch_sizes=[1, 3], schemes=["shared", "flipout"], draws=4, repeats=2
    )
    assert {r.parameter for r in found} == {name for name, _ in net.named_parameters()}
    assert len(found) == 6 * 2 * 2
    assert all(p.grad is None for p in net.parameters())


def test_bad_arguments() -> None:
    for options, message in (
        ({"draws": 1}, "draws=1"),
        ({"batch_sizes": [0]}, "batch_size=0: expected a whole number ≥ 1"),
        ({"batch_sizes": [True]}, "batch_size=True"),
        ({"repeats": 0}, "repeats=0: expected a whole number ≥ 1"),
        ({"draws": 2.0}, r"draws=2\.0: expected a whole number ≥ 2: a variance needs two"),
        ({"bases": 3}, "bases=3"),
        ({"sub_batch": 0}, "sub_batch=0"),
        ({"at_once": 0}, "at_once=0"),
        ({"schemes": "flipout"}, "schemes='flipout': expected a list"),
        ({"schemes": []}, "not empty"),
        ({"batch_sizes": [4, 4]}, "nothing in it twice"),
        ({"batch_sizes": [1.5]}, "batch_size=1.5: expected a whole number ≥ 1"),
        ({"model": nn.Linear(3, 1)}, "perturb"),
    ):
        with pytest.raises(flipout.errors.FlipoutError, match=message):
            measured(**{"batch_sizes": [4], "draws": 2, "repeats": 1, **options})


def small(**options: Any) -> flipout.variance.Measurements:
    net = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)), flipout.Gaussian(0.1))
    settings = {"data": (torch.randn(9, 4), torch.randint(3, (9,))), "loss": nn.functional.cross_entropy, **options}
    net.train(settings.pop("train", False))
    loss, data = settings.pop("loss"), settings.pop("data")
    return flipout.variance.measure(net, loss, data, **{"batch_sizes": [2], "draws": 4, "repeats": 2, **settings})


def test_a_model_loss_or_data_set_that_cannot_be_measured_is_refused() -> None:
    sums = partial(nn.functional.cross_entropy, reduction="sum")
    single = partial(nn.functional.cross_entropy, reduction="none")
    for options, message in (
        ({"train": True}, "1 .BatchNorm1d. is in training mode"),
        ({"loss": sums}, "the mean over the examples"),
        ({"loss": single}, "the mean over the examples"),
        ({"loss": lambda output, _: output.mean() * torch.nan}, "expected a finite number"),
        ({"data": (torch.randn(9, 4), torch.randint(3, (8,)))}, "two tensors of one length"),
        ({"data": torch.randn(9, 4)}, "two tensors of one length"),
        ({"data": (np.zeros((9, 4)), np.zeros(9))}, "two tensors of one length"),
    ):
        with pytest.raises(flipout.errors.InvalidArgument, match=message):
            small(**options)


def test_records_name_the_options_of_schemes() -> None:
    found = small(schemes=["flipout", flipout.Flipout(group=2)])
    assert {r.scheme for r in found} == {"flipout", "flipout(group=2)"}
    assert "flipout(group=2)" in repr(found)
    assert found == flipout.variance.Measurements(found.records)
    with pytest.raises(flipout.errors.InvalidArgument, match="a record has parameter"):
        found.select(layer="0.weight")
    with pytest.raises(
        flipout.errors.InvalidArgument, match=r"scheme='shared'\): no record has it; there are 'flipout', "
    ):
        found.select(scheme="shared")
    with pytest.raises(flipout.errors.InvalidArgument, match="no records"):
        flipout.variance.Measurements([]).select(scheme="shared").plot()


OPTIONS = [
    "shared",
    "flipout",
    "independent",
    "local_reparam",
    flipout.Flipout(group=2),
    flipout.Flipout(reuse_signs=True),
    flipout.Flipout(group=3, reuse_signs=True),
    flipout.Flipout(perturbation_dtype=torch.float8_e4m3fn),
    flipout.LowRank(1),
    flipout.LowRank(3),
]


@pytest.mark.parametrize("bases", [1, 2])
@pytest.mark.parametrize("at_once", [1, 64])
@pytest.mark.parametrize("scheme", OPTIONS, ids=str)
def test_measured_gradients_are_those_of_training(scheme: Any, at_once: int, bases: int) -> None:
    """Under every option of every scheme, they equal the gradients of a training step with the same draws."""
    torch.manual_seed(0)
    net = flipout.perturb(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), flipout.Gaussian(0.5))
    x, y, seeds = torch.randn(5, 8, 4), torch.randint(3, (5, 8)), torch.arange(5 * bases).view(bases, 5)
    sampler = Sampler(net, nn.functional.cross_entropy, (x, y), torch.Generator(), sub_batch=2, at_once=at_once)
    with flipout.using(net, scheme=scheme):
        batches = BatchGradients(sampler, 8, scheme_of(scheme), bases)
        step = min(batches.at_once, 5)
        found = [batches.captured(x[i : i + step], y[i : i + step], seeds[:, i : i + step]) for i in range(0, 5, step)]
        for name, parameter in net.named_parameters():
            expected = []
            for i in range(5):
                net.zero_grad()
                for part in range(0, 8, 2):
                    here = slice(part, part + 2)
                    with flipout.hold(net, seed=int(seeds[part * bases // 8, i]), first=part):
                        (nn.functional.cross_entropy(net(x[i, here]), y[i, here]) / 4).backward()
                assert parameter.grad is not None
                expected.append(parameter.grad.clone())
            torch.testing.assert_close(torch.cat([gradients[name] for gradients in found]), torch.stack(expected))


def test_reused_signs_have_the_variance_of_training() -> None:
    """The mean gradient of ½ (w + e_n Δ)² over two examples is w + Δ (e_0 + e_1) / 2.

    If the signs e are the same in every batch, its variance is σ² or 0. If they are drawn, it is σ² / 2.
    """
    net: Any = flipout.perturb(nn.Sequential(nn.Linear(1, 1, bias=False).double()), flipout.Gaussian(1.0))
    data = torch.ones(4, 1, dtype=torch.float64), torch.zeros(4, 1, dtype=torch.float64)
    reused = flipout.Flipout(reuse_signs=True)
    with flipout.using(net, scheme=reused), flipout.hold(net):
        net(data[0])
        noise = flipout.example_weights(net[0])["weight"].detach().flatten() - net[0].weight.item()
    signs = noise / noise[0]
    for size, expected in ((2, float(signs[:2].mean() ** 2)), (4, float(signs.mean() ** 2))):
        for at_once in (1, None):
            found = flipout.variance.measure(
                net, regression.loss, data, batch_sizes=[size], schemes=["flipout", reused], draws=100, repeats=20,
                at_once=at_once, generator=torch.Generator().manual_seed(1),
            )  # fmt: skip
            drawn, reused_signs = found.records
            assert abs(drawn.variance - 1 / size) < ERRORS * drawn.error
            assert abs(reused_signs.variance - expected) <= ERRORS * reused_signs.error + 1e-12
            assert abs(1 / size - expected) > ERRORS * max(reused_signs.error, drawn.error)


def test_each_draw_has_its_own_dropout() -> None:
    net = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), flipout.Gaussian(0.0))
    data = torch.ones(1, 4), torch.zeros(1, dtype=torch.int64)
    found = flipout.variance.measure(net, nn.functional.cross_entropy, data, batch_sizes=[1], draws=20, repeats=2)
    assert all(r.variance > 0 for r in found)
