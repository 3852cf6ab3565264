"""A family, policies and sessions with faults in them, for the tests of the session."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from tuned_models import rest

import grainshift
from grainshift.api.session import ATTRIBUTE, Plan, Session
from grainshift.core.choice import Choice
from grainshift.core.family import Family, Runner
from grainshift.core.forecast import Limits
from grainshift.core.machine import Machine
from grainshift.families.recurrence import Recurrence

MACHINE = Machine("m", "cpu", (0, 1), 2.0, 1 << 34)
STOCK = Choice("stock")


class Sabotage(Exception):
    """What the broken parts raise."""


def sabotage(*args: Any, **kwargs: Any) -> Any:
    raise Sabotage("by the test")


def late(*args: Any, **kwargs: Any) -> Any:
    """Answers, but what it answers raises when it is read."""

    def items() -> Iterator[Any]:
        sabotage()
        yield

    return items(), ()


@dataclass
class Broken:
    """The recurrence family, with some of its methods replaced; a method named here raises."""

    faults: dict[str, Callable[..., Any]] = field(default_factory=dict)
    whole: Family = field(default_factory=Recurrence)
    name: str = "recurrence"
    policy: str = "bandit"

    def __getattr__(self, word: str) -> Any:
        return self.faults.get(word) or getattr(self.whole, word)


def building(run: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Broken:
    """A family whose Choices beside stock run what `run` makes of them."""
    family = Broken()

    def build(model: Any, site: Any, bucket: str, choice: Choice, folder: str) -> Runner:
        runner = family.whole.build(model, site, bucket, choice, folder)
        return runner if choice == STOCK else Runner(run(runner.run))

    family.faults["build"] = build
    return family


def session(
    model: nn.Module, *families: Any, limits: Limits | None = None, **settings: Any
) -> Session:
    """The session of a model tuned by these families, eager to explore, pumped by hand."""
    eager = {"warm_calls": 2, "opening_calls": 1e6, "epsilon": 1.0, "retry_calls": 1}
    plan = Plan(
        MACHINE, limits or Limits(), grainshift.Settings(**(eager | settings)), families, None
    )
    made = Session(model, plan)
    model.__dict__[ATTRIBUTE] = made
    made.begin(model)
    rest(made)
    return made


def explore(
    made: Session, model: nn.Module, *inputs: Any, until: Callable[[], Any], most: int = 4000
) -> Any:
    """Call the model and pump until something shows; every answer must be right."""
    with torch.no_grad():
        wanted = [tensor.clone() for tensor in model(*inputs)]
        for _ in range(most):
            for got, right in zip(model(*inputs), wanted, strict=True):
                assert torch.allclose(got, right, atol=1e-5)
            made.driver.pump()
            if answer := until():
                return answer
    raise AssertionError("it did not show")
