"""sb3-contrib's MaskablePPO, trained on the same kind of episodes as ours: a check, no more."""

from collections.abc import Sequence

from grainshift.core.trace import Trace
from grainshift.policies.pretrain.gym import (
    extra,
    make_environment,
    mask_of,
    observed,
    vocabulary,
)
from grainshift.policies.pretrain.regret import Picker, Question
from grainshift.policies.pretrain.simulator import Simulator

__all__ = ["maskable_ppo"]

_ROUND, _BATCH, _PASSES = 4096, 256, 8  # as ours has them


def maskable_ppo(
    traces: Sequence[Trace], lessons: int, seed: int = 0, gamma: float = 0.0
) -> Picker:
    """A trained MaskablePPO as a picker; MissingExtra where it is not installed.

    It addresses a Choice by its place among all that were trained on; one that it never met it
    cannot pick.
    """
    sb3 = extra("sb3_contrib")
    actions = vocabulary(traces)
    places = {choice: place for place, choice in enumerate(actions)}
    model = sb3.MaskablePPO(
        "MlpPolicy",
        make_environment(Simulator(traces), actions),
        1e-3,
        n_steps=min(_ROUND, max(lessons // 4, _BATCH)),
        batch_size=_BATCH,
        n_epochs=_PASSES,
        gamma=gamma,
        seed=seed,
        device="cpu",
    )
    model.learn(lessons)

    def pick(question: Question) -> Sequence[int]:
        query = question.query
        mask = mask_of(query, actions)
        place, _ = model.predict(observed(query), action_masks=mask, deterministic=True)
        by_place = {places.get(choice): arm for arm, choice in enumerate(query.choices)}
        return [by_place[int(place)]]

    return pick
