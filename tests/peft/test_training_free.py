"""The training-free spread: equal noise on all adapted weights, as large as the tolerance allows."""

from typing import Any

import peft
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import flipout
from flipout import errors
from flipout.peft._training_free import _largest

from ..statistics import assert_covariance
from .models import adapted, bayesian, randomise, tokens


def batches(count: int = 2) -> list[dict[str, Tensor]]:
    found = [tokens(4, 9, seed=n) for n in range(count)]
    return [{**batch, "labels": batch["input_ids"]} for batch in found]


class Plain(nn.Module):
    """One linear layer, whose loss under noise is known."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def linear(**options: Any) -> Any:
    torch.manual_seed(0)
    model = peft.get_peft_model(Plain(), peft.LoraConfig(r=3, target_modules=["fc"], **options))  # pyright: ignore[reportArgumentType]
    randomise(model, 1.0)
    return model.double().eval()


def test_the_loss_comes_close_to_the_tolerance() -> None:
    model = adapted(target_modules=["q_proj", "v_proj", "lm_head"])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 0.05)
    for _ in range(40):
        for batch in batches():
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    before = model(**tokens()).logits
    fitted = flipout.peft.fit_spread(model, batches(), tolerance=0.02, samples=2)
    assert fitted.loss_at_mean < fitted.loss <= fitted.loss_at_mean + 0.02
    larger = [loss for std, loss in fitted.trials if std > fitted.std]
    assert larger
    assert all(loss > fitted.loss_at_mean + 0.02 for loss in larger)
    assert min(std for std, _ in fitted.trials if std > fitted.std) < 1.01 * fitted.std
    torch.testing.assert_close(model(**tokens()).logits, before)  # the product of B and A is the same
    again = flipout.peft.fit_spread(model, batches(), tolerance=0.02, samples=2)  # of a posterior that exists
    assert again.std == pytest.approx(fitted.std, rel=0.5)  # turned again, A has other samples


def test_the_spread_has_the_loss_of_theory() -> None:
    """Noise σ in each of r directions of U adds σ² r |x|² to the expected square of the output."""
    model, sigma, rank = linear(lora_alpha=6), 0.5, 3
    x = torch.randn(4000, 6, generator=torch.Generator().manual_seed(1)).double()

    def loss(network: nn.Module, batch: Tensor) -> Tensor:
        return network(batch).square().sum(1).mean()

    added = sigma**2 * rank * float(x.square().sum(1).mean())
    fitted = flipout.peft.fit_spread(model, [x], tolerance=added, loss=loss, samples=32)
    assert fitted.std == pytest.approx(sigma, rel=0.1)


def test_the_noise_is_the_same_in_every_direction_of_b() -> None:
    model = linear(lora_alpha=6)
    columns = model.base_model.model.fc.lora_B["default"].weight.detach().clone()
    fitted = flipout.peft.fit_spread(
        model, [torch.ones(2, 6).double()], tolerance=1.0, loss=lambda net, x: net(x).square().mean()
    )
    x = torch.zeros(20_000, 6).double()
    x[:, 2] = 1.0  # each example sees one column of its own weight
    with torch.no_grad(), flipout.hold(model, seed=1, group=1):
        noise = model(x) - model.base_model.model.fc.base_layer(x)
    u = torch.linalg.svd(columns, full_matrices=False)[0]
    assert_covariance(noise, fitted.std**2 * u @ u.T)


def test_rows_of_a_have_the_spreads_that_their_columns_of_b_ask_for() -> None:
    model = linear()
    fitted = flipout.peft.fit_spread(
        model, [torch.ones(2, 6).double()], tolerance=1.0, loss=lambda net, x: net(x).square().mean()
    )
    layer = model.base_model.model.fc
    lengths, scaling = layer.lora_B["default"].weight.norm(dim=0), layer.scaling["default"]
    spread = softplus(layer.lora_A["default"].weight_rho)
    torch.testing.assert_close(spread, (fitted.std / (scaling * lengths))[:, None].expand_as(spread))


@pytest.mark.parametrize(
    ("make", "options", "error", "match"),
    [
        (adapted, {"tolerance": 0.0}, errors.InvalidArgument, "tolerance=0.0"),
        (adapted, {"samples": 0}, errors.InvalidArgument, "samples=0"),
        (adapted, {"batches": []}, errors.InvalidArgument, "no batches"),
        (lambda: flipout.peft.bayesian_lora(adapted(), which="AB"), {}, errors.Unsupported, "posterior on AB"),
        (bayesian, {"loss": lambda model, batch: torch.tensor(float("nan"))}, errors.NonFinite, "is nan"),
    ],
)
def test_refusals(make: Any, options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        flipout.peft.fit_spread(make(), **{"batches": batches(), **options})


def test_a_loss_that_sets_no_limit_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="sets no limit"):
        flipout.peft.fit_spread(bayesian(), batches(), loss=lambda model, batch: torch.tensor(1.0), samples=1)


def test_a_tolerance_that_no_spread_meets_is_refused() -> None:
    def loss(model: Any, _: Any) -> Tensor:
        is_noisy = model.base_model.model.model.layers[0].self_attn.q_proj.lora_A["default"].flipout.held is not None
        return torch.tensor(1.0 if is_noisy else 0.0)

    with pytest.raises(errors.InvalidArgument, match=r"changes the loss by 1\. Give a larger tolerance"):
        flipout.peft.fit_spread(bayesian(), batches(), loss=loss)


def test_a_loss_that_is_finite_under_no_spread_is_refused() -> None:
    losses = iter([1.0])

    with pytest.raises(errors.NonFinite, match="the loss is nan even under a spread of 1e-09, and 1 without noise"):
        flipout.peft.fit_spread(
            bayesian(), batches(1), samples=1, loss=lambda model, batch: torch.tensor(next(losses, float("nan")))
        )


def test_a_rank_above_the_number_of_features() -> None:
    torch.manual_seed(0)
    model: Any = peft.get_peft_model(Plain(), peft.LoraConfig(r=9, target_modules=["fc"]))  # pyright: ignore[reportArgumentType]
    randomise(model, 1.0)
    x = torch.randn(4000, 6, generator=torch.Generator().manual_seed(1)).double()
    before = model.double().eval()(x)

    def loss(network: nn.Module, batch: Tensor) -> Tensor:
        return network(batch).square().sum(1).mean()

    sigma, directions = 0.5, 5  # as many as there are output features
    added = sigma**2 * directions * float(x.square().sum(1).mean())
    fitted = flipout.peft.fit_spread(model, [x], tolerance=added, loss=loss, samples=32)
    torch.testing.assert_close(model(x), before)
    assert fitted.std == pytest.approx(sigma, rel=0.1)


def test_a_loss_that_is_not_monotone() -> None:
    """Bisection ends at a spread that is accepted, next to one that is not, wherever the loss crosses the tolerance."""

    def is_accepted(std: float) -> bool:
        tried.append(std)
        return std < 0.01 or 0.03 < std < 0.04

    tried: list[float] = []
    found = _largest(is_accepted, 20)
    assert found is not None
    assert is_accepted(found)
    assert any(found < std < found * 1.001 and not is_accepted(std) for std in list(tried))


def test_adapters_without_effect_are_refused() -> None:
    model = adapted(lora_alpha=0)
    with pytest.raises(errors.InvalidArgument, match="lora_alpha=0"):
        flipout.peft.fit_spread(model, batches())
    model = adapted()
    with model.disable_adapter(), pytest.raises(errors.InvalidArgument, match="adapters are disabled"):
        flipout.peft.fit_spread(model, batches())


def test_batches_without_labels_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"batch of \['input_ids'\]; expected 'labels'"):
        flipout.peft.fit_spread(adapted(), [tokens()])


def test_a_b_of_zero_is_refused() -> None:
    model = adapted()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.zero_()
    with pytest.raises(errors.InvalidArgument, match="B starts at 0"):
        flipout.peft.fit_spread(model, batches())
    assert not any(row.noise for row in flipout.summary(model).rows)
