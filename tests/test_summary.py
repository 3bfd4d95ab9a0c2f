"""summary(): one row per Parameter, whatever the model."""

import pytest
import torch
from torch import nn

import flipout
from tests.networks import TiedLM, encoder, mlp


def test_table():
    model = flipout.perturb(mlp(), flipout.Gaussian(0.5), where="2.*")
    lines = str(flipout.summary(model)).splitlines()
    assert lines[0].split() == ["parameter", "shape", "layer", "noise", "scheme"]
    assert lines[1].split() == ["0.weight", "6×4", "Linear", "–", "–"]
    assert lines[3].split()[:4] == ["2.weight", "3×6", "Linear", "Gaussian(std=0.5)"]
    assert "Flipout" in lines[3]
    assert lines[-2:] == [
        "42.9% of the weights (vectors do not count) are perturbed.",  # 18 of 24 + 18
        "2 of 4 Parameters are perturbed.",
    ]
    assert flipout.summary(model).share == 18 / 42
    assert repr(flipout.summary(model)) == str(flipout.summary(model))


def test_plain_models_have_a_summary_too():
    assert str(flipout.summary(nn.Sequential())).splitlines()[-1] == "0 of 0 Parameters are perturbed."
    assert not any(row.noise for row in flipout.summary(mlp()).rows)


def test_learned_spreads_are_rows_without_noise():
    rows = {row.parameter: row for row in flipout.summary(flipout.perturb(mlp(), flipout.MeanField())).rows}
    assert rows["0.weight"].noise.startswith("MeanField")
    assert rows["0.weight_rho"].noise == ""
    assert rows["0.weight_rho"].shape == (6, 4)
    assert rows["0.weight_rho"].learned_for == "weight"


def test_what_is_learned_for_a_spread_and_for_a_prior_is_told_apart():
    prior = flipout.bayes.Normal(learn_scale=True)
    said = str(flipout.summary(flipout.perturb(mlp(), flipout.MeanField(prior=prior)))).splitlines()
    rows = {line.split()[0]: line for line in said if "." in line}
    assert " spread of weight " in rows["0.weight_rho"]
    assert " prior of weight " in rows["0.weight_prior_log_std"]
    assert said[-1].endswith("; perturb added 2 learned spreads and 2 learned numbers of priors.")
    single = flipout.perturb(mlp(), flipout.MeanField(), where="0.weight")
    assert str(flipout.summary(single)).endswith("1 of 4 Parameters are perturbed; perturb added 1 learned spread.")


def test_defaults_are_left_out_but_the_size_of_the_noise_is_said():
    model = flipout.perturb(mlp(), flipout.MeanField(prior=flipout.bayes.Normal(0.0, 2.0)), scheme=flipout.Flipout(4))
    lines = str(flipout.summary(model)).splitlines()
    assert " MeanField(std=0.0486, prior=Normal(std=2.0))  Flipout(group=4)  closed form" in lines[1]
    assert " spread of weight " in lines[3]
    assert lines[-1] == "2 of 4 Parameters are perturbed; perturb added 2 learned spreads."
    wide = flipout.bayes.Normal(torch.zeros(4), 1.0)
    assert "prior=Normal(mean=<" in str(
        flipout.summary(flipout.perturb(mlp(), flipout.MeanField(prior={"0.*": wide, "*": flipout.bayes.Normal()})))
    )
    plain = flipout.summary(flipout.perturb(mlp(), flipout.Gaussian(0.5)))
    assert "Flipout()" in str(plain)
    for distribution, said in [
        (flipout.MultiplicativeGaussian(), "MultiplicativeGaussian(std=1.0)"),
        (flipout.DropConnect(0.5), "DropConnect(p=0.5)"),
        (flipout.MeanField(std=0.2), "MeanField(std=0.2)"),
        (flipout.MeanField(relative=0.1), "MeanField(relative=0.1)"),
    ]:
        assert flipout.summary(flipout.perturb(mlp(), distribution)).rows[0].noise == said


def test_no_long_number_and_no_long_array_is_printed():
    wide = flipout.bayes.Normal(torch.linspace(0, 1, 600), 1 / 3)
    model = torch.nn.Sequential(torch.nn.Linear(600, 2))
    (row, *_) = flipout.summary(flipout.perturb(model, flipout.MeanField(std=1 / 7, prior=wide))).rows
    assert row.noise == "MeanField(std=0.1429, prior=Normal(mean=<600 tensor>, std=0.3333))"
    said = str(flipout.summary(flipout.perturb(mlp(), flipout.Gaussian(2 / 3), scheme=flipout.Flipout(4))))
    assert "Gaussian(std=0.6667)" in said


def test_a_spread_that_was_learned_is_shown_as_it_is_now():
    model = flipout.perturb(mlp(), flipout.MeanField(std=0.2))
    with torch.no_grad():
        model[2].weight_rho.fill_(-1.0)  # softplus gives 0.313
    rows = {row.parameter: row.noise for row in flipout.summary(model).rows}
    assert rows["0.weight"] == "MeanField(std=0.2)"
    assert rows["2.weight"] == "MeanField(std=0.2) (now 0.313 on average)"


class Foreign(nn.Module):
    """A type that nobody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.gain, self.spare = nn.Linear(4, 4), nn.Parameter(torch.ones(4)), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.gain


def test_types_of_others_have_their_path_and_unread_parameters_are_named():
    model = flipout.perturb(nn.Sequential(Foreign()), flipout.Gaussian(0.1), where="*")
    assert flipout.summary(model).rows[0].layer == "tests.test_summary.Foreign"
    assert flipout.summary(model).rows[1].layer == "Linear"
    assert "did not read" not in str(flipout.summary(model))
    with pytest.warns(flipout.errors.NeverRead):
        model(torch.randn(3, 4))
    assert [row.parameter for row in flipout.summary(model).rows if row.unread] == ["0.spare.weight", "0.spare.bias"]
    assert "did not read 0.spare.weight, 0.spare.bias. Their KL is counted" in str(flipout.summary(model))


def test_tied_parameters_have_one_row():
    rows = flipout.summary(flipout.perturb(TiedLM(), flipout.MeanField(), where="decoder.weight")).rows
    assert [row.parameter for row in rows if row.noise] == ["embedding.weight"]
    assert len(rows) == len(list(TiedLM().parameters())) + 1


def test_parameters_of_submodules_belong_to_the_layer_that_perturbs_them():
    rows = {row.parameter: row for row in flipout.summary(flipout.perturb(encoder(layers=1), flipout.MeanField())).rows}
    assert rows["layers.0.self_attn.out_proj.weight"].layer == "MultiheadAttention"
    assert rows["layers.0.self_attn.out_proj.weight"].noise
    assert not rows["layers.0.self_attn.out_proj.weight_rho"].noise


def test_using_shows_the_scheme_in_use():
    model = flipout.perturb(mlp(), flipout.Gaussian(0.5))
    with flipout.using(model, scheme="independent"):
        assert "Independent" in flipout.summary(model).rows[0].scheme
    assert "Flipout" in flipout.summary(model).rows[0].scheme


def test_a_prior_that_was_loaded_is_said():
    def noisy(std: float) -> nn.Module:
        torch.manual_seed(0)
        return flipout.perturb(mlp(), flipout.MeanField(prior=flipout.bayes.Normal(0.0, std)))

    model = noisy(1.0)
    assert "prior now" not in f"{model}{flipout.summary(model)}"
    model.load_state_dict(noisy(9.0).state_dict())
    assert str(model).count("(prior now std=9)") == 2
    assert flipout.summary(model).rows[0].noise.endswith("(prior now std=9)")
    assert flipout.bayes.kl(model) == flipout.bayes.kl(noisy(9.0))
    assert "(prior now" not in str(noisy(1.0).to("meta"))
    learned = flipout.perturb(mlp(), flipout.MeanField(prior=flipout.bayes.Normal(0.0, 2.0, learn_scale=True)))
    assert "prior now" not in str(learned)
    tenth = flipout.MeanField(prior=flipout.bayes.Normal(0.0, 0.1, learn_scale=True))
    assert "prior now" not in str(flipout.perturb(mlp(), tenth).to(torch.bfloat16))
    with torch.no_grad():
        learned[0].weight_prior_log_std.fill_(0.0)
    assert str(learned).count("(prior now std=1)") == 1
