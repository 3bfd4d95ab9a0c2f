"""measure agrees with the theorem on a regression whose variances are known in closed form."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from tests.variance import regression
from tests.variance.measured import ERRORS, measured, small


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


def test_the_mirrored_pair_is_a_scheme_of_its_own() -> None:
    """The gradient (w̃·x − y) x of a linear map is linear in the noise: what is left is the variance of the data / N."""
    torch.manual_seed(0)
    model: Any = flipout.perturb(nn.Linear(3, 1, bias=False).double(), flipout.Gaussian(0.5))
    x, y = torch.randn(40, 3).double(), torch.randn(40, 1).double()
    of_each = (model.weight.detach() @ x.T - y.T).T * x
    schemes: list[Any] = ["flipout", flipout.variance.Antithetic("flipout"), flipout.variance.Antithetic("shared")]
    found = flipout.variance.measure(
        model,
        lambda output, target: (output - target).square().mean() / 2,
        (x, y),
        batch_sizes=[4, 32],
        schemes=schemes,
        draws=300,
        repeats=12,
        sub_batch=16,
        generator=torch.Generator().manual_seed(1),
    )
    for record in found:
        theory = float(of_each.var(0, correction=0).mean()) / record.batch_size
        if record.scheme == "flipout":
            assert record.variance > 1.2 * theory
        else:
            assert abs(record.variance - theory) < ERRORS * record.error
    assert {record.scheme for record in found} == {"flipout", "antithetic(flipout)", "antithetic(shared)"}
    with pytest.raises(flipout.errors.InvalidArgument, match="scheme"):
        measured(schemes=[flipout.variance.Antithetic("flip")], batch_sizes=[4])  # pyright: ignore[reportArgumentType]
