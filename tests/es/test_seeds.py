"""Seeds of generations and purposes are the same in every process, and all different."""

from flipout.es._seeds import seed_of


def test_seeds() -> None:
    assert seed_of(0, 0) == 7793430555373040950  # must never change: checkpoints and workers rely on it
    seeds = [seed_of(*place) for place in ((0, 0), (0, 1), (1, 0), (10, 1), (1, 1))]
    seeds += [seed_of(0, 0, purpose) for purpose in ("data", "noise ")]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
