"""A Parameter that several layers use has one draw, or is refused."""

import pytest

from flipout import errors
from tests.nn.structures import X, stack


def test_local_reparameterisation_of_a_weight_that_is_tied_later_is_refused():
    model = stack(scheme="local_reparam")
    model.fc2.weight = model.fc1.weight
    with pytest.raises(errors.WeightReused, match=r"fc1\.weight and fc2\.weight are one Parameter"):
        model(X)
