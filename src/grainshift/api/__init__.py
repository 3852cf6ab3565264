"""The public functions: they read what was given, wire the parts together, and decide nothing."""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from grainshift.api import arguments
from grainshift.api.monitor import Monitor
from grainshift.api.reporting import Report, SiteLine
from grainshift.api.session import ATTRIBUTE, Plan, Session, session_of
from grainshift.core.forecast import Limits
from grainshift.core.settings import Settings
from grainshift.environment import environment
from grainshift.machine import find_machine

__all__ = ["Monitor", "Report", "SiteLine", "freeze", "report", "settle", "tune", "untune"]

Model = TypeVar("Model", bound=nn.Module)


def tune(
    model: Model,
    *,
    memory_budget: int | str | None = None,
    error_budget: float | None = None,
    latency_budget: float | None = None,
    goal: str = "latency",
    engines: Sequence[str] | None = None,
    families: Sequence[str] | None = None,
    policy: str | None = None,
    settings: Settings | None = None,
) -> Model:
    """Make a model retune its own execution from now on; the answer is the same model.

    memory_budget: most bytes that Choices may hold beyond the model's own ("2GB", "10%").
    error_budget: largest relative error that lower precision may cause; without it none is used.
    latency_budget: seconds that no call of a Site may be made to exceed. A Choice's first call
        runs the baseline too, so only what fits into them together is tried.
    goal: "latency" or "throughput". engines: such as ["cpu:0", "cpu:1"]; all unless named.
    families, policy: which of them to use instead of the defaults.
    """
    arguments.check_model(model)
    arguments.check_torch(torch.__version__)
    checked = arguments.read_settings(settings)
    machine = find_machine(environment().rates_folder)
    limits = Limits(
        arguments.read_bytes("memory_budget", memory_budget, machine.memory_bytes),
        arguments.read_positive("error_budget", error_budget, "a relative error such as 1e-2"),
        arguments.read_positive("latency_budget", latency_budget, "seconds a call such as 0.02"),
    )
    arguments.read_goal(goal)
    plan = Plan(
        arguments.read_engines(engines, machine),
        limits,
        checked,
        arguments.read_families(families, checked),
        arguments.read_policy(policy),
    )
    session = Session(model, plan)
    while model.__dict__.setdefault(ATTRIBUTE, session) is not session:
        untune(model)  # other threads may be tuning it too: the last one has it
    session.begin(model)
    return model


def untune(model: Model) -> Model:
    """Give a model back as it was before `tune`; a model that is not tuned stays as it is."""
    arguments.check_model(model)
    session = model.__dict__.pop(ATTRIBUTE, None)
    if isinstance(session, Session) and session.tunes(model):
        session.close()
    return model


def report(model: nn.Module) -> Report:
    """Every Site of a tuned model: its live Choice, what it gains, and why."""
    return session_of(arguments.check_model(model)).report()


def settle(model: nn.Module, *inputs: Any, timeout: float = 60.0) -> bool:
    """Wait until exploring is over; whether it is.

    With inputs, the model is called with them meanwhile, without gradients; otherwise somebody
    else must be calling it.
    """
    session = session_of(arguments.check_model(model))
    timeout_s = arguments.read_wait(timeout)
    if not inputs:
        return session.settle(timeout_s, None)

    def call() -> None:
        with torch.no_grad():
            model(*inputs)

    return session.settle(timeout_s, call)


def freeze(model: Model) -> Model:
    """End exploring for good; what is live stays live, and faults still fall back."""
    session_of(arguments.check_model(model)).freeze()
    return model
