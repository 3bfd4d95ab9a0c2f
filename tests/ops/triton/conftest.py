from collections.abc import Iterator

import pytest

from tests.poison import poisoned


@pytest.fixture(autouse=True, scope="module")
def in_poisoned_memory() -> Iterator[None]:
    with poisoned():
        yield
