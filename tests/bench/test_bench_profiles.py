"""Profiles by themselves: picking the best of them, switching between them, deciding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from grainshift.bench.contender import Workload
from grainshift.bench.measure import Plan, Timings, ratio
from grainshift.bench.recurrence.deciding import decision_rows
from grainshift.bench.recurrence.profiles import Stage, best_fixed, fixed_turns, stage
from grainshift.bench.recurrence.switching import cost_row, deviation_row, switch_costs_s
from grainshift.families.recurrence import Recurrence

SIZES = {"kind": "GRU", "hidden": 8, "batch": 2, "steps": 64}
SMALL = Workload("small", "grainshift.bench.workloads.recurrence", "layer", SIZES)


@pytest.fixture(scope="module", params=["GRU", "LSTM"])
def staged(request: pytest.FixtureRequest) -> Stage:
    """A small layer with the profiles made of operators, which need no compiler."""
    return stage(replace(SMALL, arguments=SIZES | {"kind": request.param}), Recurrence())


def noise(seed: int, names: int = 16, blocks: int = 30) -> dict[str, Timings]:
    draw = np.random.default_rng(seed)
    drawn = np.exp(0.1 * draw.standard_normal((names, blocks)))
    return {str(n): Timings(tuple((float(x),) for x in row)) for n, row in enumerate(drawn)}


def test_the_best_of_many_equals_is_not_made_to_look_faster() -> None:
    honest, naive = [], []
    for seed in range(100):
        seen = noise(seed)
        mine = seen.pop("0")
        honest.append(ratio(best_fixed(seen)[1], mine, resamples=2).value)
        naive.append(min(timings.median for timings in seen.values()) / mine.median)
    assert np.mean(naive) < 0.97 < 0.99 < np.mean(honest) < 1.01


def test_the_best_is_found_where_there_is_one() -> None:
    seen = noise(1)
    seen["quick"] = Timings(tuple((0.5 * block[0],) for block in seen["3"].blocks))
    names, best = best_fixed(seen)
    assert names == ("quick", "quick") and best == seen["quick"]


def test_no_block_is_read_that_the_profile_was_picked_by() -> None:
    even, odd = (Timings(tuple((1.0 + (n % 2 == at),) for n in range(8))) for at in (1, 0))
    names, best = best_fixed({"quick when even": even, "quick when odd": odd})
    assert names == ("quick when odd", "quick when even")
    assert [block[0] for block in best.blocks] == [2.0] * 8


def test_every_profile_has_its_turn_and_no_slot(staged: Stage) -> None:
    turns = fixed_turns(staged)
    assert list(turns) == [str(choice) for choice in staged.runs] and len(turns) > 4
    assert all(len(turn(2)) == 2 for turn in turns.values())
    assert "forward" not in staged.layer.__dict__  # only copies of the layer got an entry


def test_a_switch_costs_what_it_takes_beyond_both_that_stay() -> None:
    switching, first, second = (Timings(((s,), (2 * s,))) for s in (5.0, 2.0, 4.0))
    assert switch_costs_s(switching, first, second) == pytest.approx([2.0, 4.0])


def test_switching_is_measured_at_every_edge(staged: Stage) -> None:
    with torch.inference_mode():
        row = cost_row("small", staged, Plan(blocks=2, warm_readings=1, budget_s=0.01))
    assert row.limit == 5.0 and "2 blocks, 3 edges a sequence" in row.notes


def test_profiles_that_switch_at_random_edges_agree_with_eager(staged: Stage) -> None:
    with torch.inference_mode():
        row = deviation_row("small", staged)
    assert 0.0 < row.ours < row.limit == 1e-5


def test_a_profile_that_loses_the_state_is_found_out(staged: Stage) -> None:
    choice, run = list(staged.runs.items())[-1]
    broken = replace(
        staged, runs={**staged.runs, choice: lambda x, state: (run(x, state)[0], state)}
    )
    with torch.inference_mode():
        assert deviation_row("broken", broken).ours > 1e-3


def test_decisions_are_timed_where_they_are_asked(staged: Stage) -> None:
    decision, share = decision_rows("small", staged, measure_s=0.05)
    assert "policy ppo" in decision.notes and " 0 decisions" not in decision.notes
    assert decision.ours > 0.0 and 0.0 < share.ours < 1.0
    assert "forward" not in staged.layer.__dict__
