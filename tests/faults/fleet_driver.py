"""Evolve with Ray workers until a number of generations: python -m tests.faults.fleet_driver FOLDER GENERATIONS"""

import sys

import ray

from flipout import es
from tests.es.toys import full

if __name__ == "__main__":
    ray.init("local", num_cpus=2, _node_ip_address="127.0.0.2", include_dashboard=False, log_to_driver=False)
    with es.RayFleet(2) as fleet:
        evolution = full()
        evolution.fleet = fleet
        evolution.resume(sys.argv[1])
        evolution.run(int(sys.argv[2]), checkpoint=sys.argv[1])
    ray.shutdown()
