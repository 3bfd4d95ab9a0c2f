"""An answer counts only for the request that it answers. A late error does not end the run."""

from collections import deque
from typing import Any

import pytest
import torch

from flipout import errors, es
from flipout.es._ray_work import Answer, Evaluation, Ticket
from flipout.es._ray_worker import StrategyCopy
from tests.es.fake_ray import ActorError, Call, FakeRay, installed
from tests.es.toys import regression, strategy


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return installed(monkeypatch)


@pytest.fixture
def fleet(fake: FakeRay) -> es.RayFleet:
    return es.RayFleet(2, patience=1.0)


class Failing:
    """A fitness that fails for the given pairs of worker and generation."""

    def __init__(self, fake: FakeRay, *where: tuple[int, int]) -> None:
        self.fake, self.where = fake, set(where)

    def __deepcopy__(self, memo: Any) -> "Failing":
        return self  # one for all workers

    def __call__(self, population: es.Population) -> Any:
        if (self.fake.answering, population.generation) in self.where:
            raise ZeroDivisionError(f"by worker {self.fake.answering}")
        return regression(population)


def alike(evolution: es.EvolutionStrategy) -> bool:
    """Return True if the weights equal those of a local run."""
    expected = strategy(fleet=es.Local(members=4))
    expected.run(evolution.generation)
    pairs = zip(evolution.model.state_dict().values(), expected.model.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_the_fake_is_a_fleet(fleet: es.RayFleet) -> None:
    evolution = strategy(fleet=fleet)
    evolution.run(3)
    assert alike(evolution)
    assert [event for event in fleet.events if "joins" in event] == [f"generation 0: worker {i} joins" for i in (0, 1)]


@pytest.mark.parametrize("fails", [True, False])
def test_an_answer_of_an_earlier_generation_is_dropped_with_a_word(fake: FakeRay, fleet: es.RayFleet, fails) -> None:
    """Another worker has evaluated these chunks meanwhile, so even an error is dropped."""
    evolution = strategy(Failing(fake, *[(0, 1)] * fails), fleet=fleet)
    fake.held = lambda call: call.actor.number == 0 and call.generation == 1 == evolution.generation
    evolution.run(5)
    assert alike(evolution)
    (said,) = [event for event in fleet.events if "dropped" in event]
    why = " (ZeroDivisionError: by worker 0)" if fails else ""
    assert said == f"generation 2: worker 0 is slow; its answer for generation 1 is dropped{why}"


def test_an_error_of_another_strategy_ends_nothing(fake: FakeRay, fleet: es.RayFleet) -> None:
    wrong = strategy(Failing(fake, (0, 0), (1, 0)), fleet=fleet)
    with pytest.raises(ZeroDivisionError, match="by worker 0"):
        wrong.step()
    assert fleet._dispatcher.pool.workers[1].call.name == "evaluate"  # fails as well, and is heard below
    evolution = strategy(fleet=fleet)
    evolution.run(3)
    assert alike(evolution)
    assert [event for event in fleet.events if "dropped" in event] == [
        "generation 0: worker 1 is slow; its answer to an earlier request is dropped (ZeroDivisionError: by worker 1)"
    ]


def test_an_error_of_an_earlier_attempt_ends_nothing(fake: FakeRay, fleet: es.RayFleet) -> None:
    """The strategy and the generation are the same, but the fitness was repaired in between."""
    fitness = Failing(fake, (0, 2), (1, 2))
    evolution = strategy(fitness, fleet=fleet)
    evolution.run(2)
    fake.held = lambda call: call.actor.number == 1 and call.generation == 2
    with pytest.raises(ZeroDivisionError, match="by worker 0"):
        evolution.step()
    late = fleet._dispatcher.pool.workers[1].call
    with pytest.raises(ZeroDivisionError, match="by worker 1"):
        fake.get(late)
    fitness.where.clear()
    fake.held = lambda call: False
    evolution.run(4)
    assert alike(evolution)


@pytest.mark.parametrize("again", [True, False])
def test_a_copy_that_failed_earlier_ends_nothing(fake: FakeRay, fleet: es.RayFleet, monkeypatch, again) -> None:
    """The failed copy may be of another strategy, or of an earlier attempt at this one."""
    join, broken = StrategyCopy.join, {0, 1}

    def joined(self: StrategyCopy, *arguments: Any) -> None:
        if fake.answering in broken:
            raise ModuleNotFoundError("No module named 'mine'")
        join(self, *arguments)

    monkeypatch.setattr(StrategyCopy, "join", joined)
    first = strategy(fleet=fleet)
    with pytest.raises(errors.FleetError, match="Worker 0 cannot make a copy of the strategy: No module named 'mine'"):
        first.step()
    late = fleet._dispatcher.pool.workers[1].call
    assert late.name == "join"
    with pytest.raises(ModuleNotFoundError):
        fake.get(late)
    broken.clear()
    evolution = first if again else strategy(fleet=fleet)
    evolution.run(3)
    assert alike(evolution)


@pytest.mark.parametrize("who", ["another strategy", "this one, after its weights were changed"])
def test_copies_follow_what_they_evaluated_alone(fleet: es.RayFleet, who: str) -> None:
    """Numbers told by hand must not reach copies of another strategy, or of other weights."""
    first = strategy(fleet=fleet)
    with torch.no_grad():
        first.model.get_parameter("0.weight").mul_(0.5)
    first.step()
    evolution = first if who.startswith("this") else strategy(fleet=fleet)
    if evolution is not first:
        evolution.tell(torch.arange(24.0))  # as first was told: both are at generation 1
    with torch.no_grad():
        evolution.model.get_parameter("0.bias").add_(1.0)
    evolution.tell(torch.arange(24.0))
    expected = evolution.replica()
    expected.fleet = es.Local(members=4)
    evolution.step()
    expected.step()
    pairs = zip(evolution.model.state_dict().values(), expected.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_an_error_on_what_another_worker_has_answered_ends_nothing(fake: FakeRay, fleet: es.RayFleet) -> None:
    """The first answer counts. An error on a chunk that nobody has answered is raised."""
    evolution = strategy(Failing(fake, (0, 1)), fleet=fleet)
    evolution.step()
    worker = fleet._dispatcher.pool.workers[0]
    for answered in ({0, 1}, {0}):
        work = Evaluation(deque([2]), fleet._dispatcher.edition, 1, answers={i: [0.0] * 4 for i in answered})
        worker.chunks, worker.evaluation = [0, 1], work
        worker.call = worker.actor.evaluate.remote(worker.edition, 1, [0, 1], 4)
        if len(answered) == 2:
            fleet._dispatcher.receive(worker, evolution, work)
            assert "its answer for generation 1 is dropped (ZeroDivisionError" in fleet.events[-1]
            assert (worker.chunks, worker.evaluation, worker.call) == ([], None, None)
        else:
            with pytest.raises(ZeroDivisionError, match="by worker 0"):
                fleet._dispatcher.receive(worker, evolution, work)


def test_hung_workers_are_replaced_and_the_run_goes_on(fake: FakeRay) -> None:
    """Both workers stop in generation 2. Before, nothing was said and nothing happened."""
    fleet = es.RayFleet(2, patience=1.0, timeout=0.05)
    evolution = strategy(fleet=fleet)
    fake.held = lambda call: call.actor.number < 2 and call.generation == 2
    with pytest.warns(
        UserWarning, match=r"generation 2: worker \d has not answered for 0.05 s; .* A new worker is req"
    ):
        evolution.run(4)
    assert alike(evolution)
    assert len([event for event in fleet.events if "has not answered" in event]) == 2
    assert [worker.number for worker in fleet._dispatcher.pool.workers] == [2, 3]
    counts = fleet.counts()
    assert counts == {"workers": 2, "replaced": 2, "rerun": counts["rerun"], "dropped": 0}
    assert counts["rerun"] >= 1


def test_what_hung_workers_had_is_counted_as_dropped(fake: FakeRay) -> None:
    fleet = es.RayFleet(2, patience=1e9, timeout=0.05, lost="drop")
    evolution = strategy(fleet=fleet)
    fake.held = lambda call: call.actor.number == 0 and call.generation == 1
    with pytest.warns(UserWarning, match="left out of the update"):
        evolution.run(3)
    counts = fleet.counts()
    assert counts == {"workers": 2, "replaced": 1, "rerun": 0, "dropped": counts["dropped"]}
    assert counts["dropped"] * fleet.most(evolution) == evolution.history[1].missing


def test_a_fleet_that_hangs_again_and_again_ends_with_a_word(fake: FakeRay) -> None:
    fleet = es.RayFleet(1, timeout=0.01)
    evolution = strategy(fleet=fleet)
    fake.held = lambda call: call.generation == 1
    says = r"Generation 1: 3 workers were replaced, and none has answered\. .* RayFleet\(timeout=0\.08\)"
    with pytest.warns(UserWarning, match="has not answered for"), pytest.raises(errors.FleetError, match=says):
        evolution.run(2)
    fake.held = lambda call: False
    evolution.run(3)
    assert alike(evolution)


def test_a_fleet_whose_workers_all_die_ends_with_a_word(fake: FakeRay, monkeypatch) -> None:
    get = fake.get

    def dying(call: Call) -> Any:
        if call.generation == 1:
            raise ActorError("killed")
        return get(call)

    monkeypatch.setattr(fake, "get", dying)
    evolution = strategy(fleet=es.RayFleet(1))
    said = "Generation 1: 5 workers died one after another"
    with pytest.warns(UserWarning, match="died"), pytest.raises(errors.FleetError, match=said):
        evolution.run(2)
    monkeypatch.setattr(fake, "get", get)
    evolution.run(3)
    assert alike(evolution)


def test_an_answer_that_waits_for_the_driver_is_no_silence(fake: FakeRay, fleet: es.RayFleet) -> None:
    evolution = strategy(fleet=fleet)
    fleet.timeout = 0.01
    fake.held = lambda call: call.actor.number == 0 and call.generation == 1 == evolution.generation
    evolution.run(2)  # worker 0 is late
    fake.now += 0.02  # the driver does something else
    evolution.run(4)
    assert alike(evolution)


def test_an_answer_to_another_question_does_not_count(fake: FakeRay, fleet: es.RayFleet, monkeypatch) -> None:
    evaluate, wrong = StrategyCopy.evaluate, [Ticket(7, 1, (0,)), Ticket(1, 0, (0,))]

    def confused(self: StrategyCopy, *question: Any) -> Answer:
        answer = evaluate(self, *question)
        return answer._replace(ticket=wrong.pop()) if wrong and question[1] == 1 else answer

    monkeypatch.setattr(StrategyCopy, "evaluate", confused)
    evolution = strategy(fleet=fleet)
    evolution.run(4)
    assert not wrong
    assert alike(evolution)


def test_an_error_of_the_question_itself_ends_the_run(fake: FakeRay, fleet: es.RayFleet) -> None:
    fitness = Failing(fake, (1, 2))
    evolution = strategy(fitness, fleet=fleet)
    with pytest.raises(ZeroDivisionError, match="by worker 1"):
        evolution.run(4)
    assert evolution.generation == 2
    fitness.where.clear()
    evolution.run(4)
    assert alike(evolution)


def test_workers_start_again_after_ray_was_shut_down(fake: FakeRay, fleet: es.RayFleet) -> None:
    evolution = strategy(fleet=fleet)
    evolution.run(2)
    old, fake.session = list(fake.actors), 1
    for actor in old:
        actor.called = None  # pyright: ignore[reportAttributeAccessIssue]  # Ray refuses calls of an ended session
    evolution.run(4)
    assert alike(evolution)
    assert "generation 2: Ray was shut down; workers start again" in fleet.events
    assert fleet.counts() == {"workers": 2, "replaced": 0, "rerun": 0, "dropped": 0}
