"""Returns are claimed for every seed, and compared within their spread."""

from flipout.experiments.es.rl import claims as es_returns
from flipout.experiments.es.rl.claims import Returns
from flipout.experiments.running.results import REPORTED


def returns(method: str, *finals: float) -> list[Returns]:
    return [
        Returns(method, seed, [1, 2], [final / 3, final], [final - 1, final + 1], 1.0)
        for seed, final in enumerate(finals)
    ]


def test_solved_is_solved_by_every_seed():
    curves = [*returns("FlipES", 480, 500, 490), *returns("IdealES", 480, 470, 500)]
    flip, ideal = (es_returns.learned(curves, method, 475) for method in ("FlipES", "IdealES"))
    assert (flip.kind, flip.holds, flip.value) == (REPORTED, True, 480)
    assert (ideal.holds, ideal.value) == (False, 470)


def test_no_loss_is_within_the_spread_of_the_seeds():
    ideal = returns("IdealES", 400, 450, 500)
    assert all(check.holds for check in es_returns.no_loss([*returns("FlipES", 420, 440, 460), *ideal]))
    assert not any(check.holds for check in es_returns.no_loss([*returns("FlipES", 100, 110, 120), *ideal]))
