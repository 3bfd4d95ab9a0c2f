"""`perturb` warns of the weights that it leaves plain."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from tests.known import Unknown, perturbed
from tests.networks import GAUSSIAN


class WithTable(nn.Module):
    """Layers, a table and a weight of an unknown type."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mixer = nn.Embedding(5, 4), nn.Bilinear(4, 4, 4)
        self.first, self.second = (nn.ModuleDict({"proj": nn.Linear(4, 4)}) for _ in range(2))


def test_unknown_layers_that_are_not_named_are_left_with_a_warning():
    with pytest.warns(errors.LeftPlain) as caught:
        model = flipout.perturb(Unknown(), GAUSSIAN)
    assert perturbed(model) == ["known.weight"]
    (said,) = [str(warning.message) for warning in caught]
    assert "noise to 30.8% of the weights of Unknown" in said  # 16 of 16 + 24 + 12
    assert "torch.nn.modules.linear.Bilinear: bilinear.weight\n" in said
    assert "tests.known.Custom: custom.gain\n" in said
    assert "where=['bilinear.weight', '*.gain']" in said
    assert "This is what has noise now: where=['known.weight']." in said
    assert "Embeddings" not in said


def test_what_the_warning_proposes_names_no_embedding():
    with pytest.warns(errors.LeftPlain) as caught:
        model = flipout.perturb(WithTable(), GAUSSIAN)
    assert perturbed(model) == ["first.proj.weight", "second.proj.weight"]
    (said,) = [str(warning.message) for warning in caught]
    assert said.endswith("where=['*.proj.weight'].")
    assert "It left these plain, since it does not know these types of modules:\n" in said
    assert "\nEmbeddings and norms (table.weight) stay plain too, unless `where` names them.\n" in said
    assert perturbed(flipout.perturb(WithTable(), GAUSSIAN, where="*.proj.weight")) == perturbed(model)


class NormedLinear(nn.Module):
    """Has Parameters of its own, whatever the words in its name."""

    def __init__(self, name: str, *shape: int) -> None:
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.randn(shape)))


class PatchEmbed(NormedLinear):
    pass


@pytest.mark.parametrize("kind", [NormedLinear, PatchEmbed])
@pytest.mark.parametrize("name", ["weight", "proj_weight", "token_mixing", "pos_proj", "gamma"])
@pytest.mark.parametrize("shape", [(4, 5), (1, 4), (4, 1, 1)])
def test_no_word_in_a_name_and_no_size_of_1_hides_a_weight(kind: Any, name: str, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), kind(name, *shape))
    with pytest.warns(errors.LeftPlain, match=rf"{kind.__name__}: 1\.{name}\n"):
        flipout.perturb(model, GAUSSIAN)


@pytest.mark.parametrize("name", ["cls_token", "pos_embed", "relative_position_bias_table"])
def test_tables_and_norms_are_plain_by_choice(name: str) -> None:
    tables = [NormedLinear(name, 1, 9, 4), nn.Embedding(3, 4), nn.LayerNorm([2, 2])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flipout.perturb(nn.Sequential(nn.Linear(4, 4), *tables), GAUSSIAN)


def test_a_weight_that_where_leaves_out_is_no_warning():
    assert perturbed(flipout.perturb(Unknown(), GAUSSIAN, where="known.*")) == ["known.weight", "known.bias"]
