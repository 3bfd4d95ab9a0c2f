"""A run on busy cores uses few threads, and goes on with as many as it began with."""

import json
import os

import pytest
import torch

from flipout.experiments.running.runs import ENVIRONMENT
from flipout.experiments.running.threads import VARIABLE, chosen_threads, free_threads


@pytest.fixture
def machine(monkeypatch):
    """Set the load, the cores and torch's threads of this machine."""
    monkeypatch.delenv(VARIABLE, raising=False)
    threads = [torch.get_num_threads()]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: threads.__setitem__(0, count))

    def are(load: float, cores: int, count: int) -> None:
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        threads[0] = count

    return are


def used(folder) -> tuple[int, list[str]]:
    """Return the threads inside of the context, and what was said."""
    said: list[str] = []
    before = torch.get_num_threads()
    with chosen_threads(folder, said.append):
        inside = torch.get_num_threads()
    assert torch.get_num_threads() == before
    return inside, said


@pytest.mark.parametrize(
    ("load", "cores", "threads", "free"), [(17.0, 2, 2, 1), (12.0, 16, 16, 4), (6.0, 16, 16, None), (17.0, 2, 1, None)]
)
def test_one_thread_for_each_free_core(machine, tmp_path, load, cores, threads, free):
    machine(load, cores, threads)
    assert free_threads() == free
    inside, said = used(tmp_path)
    assert inside == (free or threads)
    assert bool(said) == (free is not None)


def test_it_says_why_and_what_else_can_be_chosen(machine, tmp_path):
    machine(17.0, 2, 2)
    assert used(tmp_path)[1] == [
        "the cores are busy (load 17.0 on 2): this run uses 1 thread. OMP_NUM_THREADS sets another number."
    ]


def test_who_set_the_variable_has_chosen(machine, tmp_path, monkeypatch):
    machine(17.0, 2, 2)
    (tmp_path / ENVIRONMENT).write_text(json.dumps({"threads": 1}))
    monkeypatch.setenv(VARIABLE, "2")
    assert used(tmp_path) == (2, [])


def test_a_run_goes_on_with_the_threads_that_it_began_with(machine, tmp_path):
    machine(17.0, 2, 2)
    (tmp_path / ENVIRONMENT).write_text(json.dumps({"threads": 2}))
    assert used(tmp_path) == (2, [])
    machine(0.0, 16, 16)
    assert used(None) == (16, [])  # a new run in this folder, which will be refused
    inside, (said,) = used(tmp_path)
    assert inside == 2
    assert said.startswith("it goes on as it began: this run uses 2 threads.")


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"threads": 0}', '{"threads": "many"}', '{"threads": 1e9}'])
def test_a_folder_that_says_nothing_of_threads_is_no_reason(machine, tmp_path, content):
    machine(0.0, 16, 16)
    (tmp_path / ENVIRONMENT).write_text(content)
    assert used(tmp_path) == (16, [])
