"""What a generation cost a fleet of workers, as metrics that `flipout watch` plots while the run goes on."""

from flipout.es import Fleet, Generation, RayFleet


def fleet_metrics(fleet: Fleet, generation: Generation) -> dict[str, float]:
    """Return workers, members per second, and what went wrong so far; nothing for a fleet in this process."""
    if not isinstance(fleet, RayFleet):
        return {}
    counts = fleet.counts()
    return {
        "workers": counts["workers"],
        "members_per_second": generation.members_per_second,
        "workers_replaced": counts["replaced"],
        "groups_rerun": counts["rerun"],
        "groups_lost": counts["dropped"],
    }
