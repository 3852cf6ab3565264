"""The network and its gradient against torch's, and the actor against the network."""

import copy
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np
import pytest
import torch

from grainshift.core.choice import Choice, Exactness
from grainshift.policies.descent import Descent
from grainshift.policies.describe import CHOICE_WIDTH, describe, squash
from grainshift.policies.network import (
    NetworkActor,
    Scale,
    Sizes,
    cut,
    first_weights,
    gradient,
    scores,
)
from grainshift.policies.ppo import advantages, chances, logit_slopes

SIZES = Sizes(state=24)
CHOICES = (Choice("stock"), *(Choice("unrolled", (2**n,)) for n in range(1, 10)))


def weights(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.3, len(fresh())).astype(np.float32)


def fresh() -> np.ndarray:
    return first_weights(SIZES.shapes, np.random.default_rng(0))


def batch(states: int = 5, choices: int = 7) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(states, SIZES.state)).astype(np.float32)
    return x, draw.normal(size=(states, choices, CHOICE_WIDTH)).astype(np.float32)


def torch_scores(flat: torch.Tensor, x: np.ndarray, c: np.ndarray) -> torch.Tensor:
    ws, wc, b1, w2, b2, w3, b3 = (
        part.reshape(shape)
        for part, shape in zip(
            flat.split([int(np.prod(s)) for s in SIZES.shapes]), SIZES.shapes, strict=True
        )
    )
    x_t, c_t = torch.from_numpy(x), torch.from_numpy(c)
    first = torch.relu((x_t @ ws)[:, None, :] + c_t @ wc + b1)
    return torch.relu(first @ w2 + b2) @ w3 + b3


def test_scores_and_gradient_agree_with_torch() -> None:
    flat, (x, c) = weights(), batch()
    slopes = np.random.default_rng(2).normal(size=(5, 7)).astype(np.float32)
    leaf = torch.from_numpy(flat.copy()).requires_grad_()
    found = torch_scores(leaf, x, c)
    (expected,) = torch.autograd.grad((found * torch.from_numpy(slopes)).sum(), leaf)
    layers = cut(flat, SIZES.shapes)
    np.testing.assert_allclose(scores(layers, x, c), found.detach(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gradient(layers, x, c, slopes), expected, rtol=1e-3, atol=1e-3)


def test_adam_agrees_with_torch() -> None:
    flat = weights()
    leaf = torch.from_numpy(flat.copy()).requires_grad_()
    theirs, ours = torch.optim.Adam([leaf], lr=0.01), Descent(flat, 0.01, largest_norm=1e9)
    for seed in range(5):
        leaf.grad = torch.from_numpy(weights(seed))
        theirs.step()
        assert ours.step(weights(seed))
    np.testing.assert_allclose(ours.weights, leaf.detach(), atol=1e-5)


def test_a_broken_gradient_is_not_followed() -> None:
    descent, broken = Descent(weights(), 0.01), weights()
    broken[3] = np.nan
    assert not descent.step(broken)
    np.testing.assert_array_equal(descent.weights, weights())


def test_the_slopes_of_ppo_agree_with_torch() -> None:
    draw = np.random.default_rng(3)
    logits = draw.normal(size=(40, 6))
    mask = draw.random((40, 6)) < 0.7
    arm = draw.integers(6, size=40)
    mask[np.arange(40), arm] = True
    before = draw.uniform(0.1, 0.9, 40)
    gain = draw.normal(size=40)
    rows = {"arm": arm, "mask": mask, "before": before, "gain": gain}
    leaf, allowed = torch.from_numpy(logits.copy()).requires_grad_(), torch.from_numpy(mask)
    soft = torch.softmax(leaf.masked_fill(~allowed, -1e9), dim=1)
    mixed = 0.9 * soft + 0.1 * allowed / allowed.sum(dim=1, keepdim=True)
    ratio = mixed[torch.arange(40), torch.from_numpy(arm)] / torch.from_numpy(before)
    gains = torch.from_numpy(gain)
    clipped = torch.minimum(ratio * gains, ratio.clip(0.8, 1.2) * gains)
    entropy = -(soft * (soft + 1e-12).log()).sum(dim=1)
    mean = (leaf * allowed).sum(dim=1, keepdim=True) / allowed.sum(dim=1, keepdim=True)
    pulled = 0.3 * (((leaf - mean) * allowed) ** 2).sum(dim=1).mean()
    (expected,) = torch.autograd.grad(-clipped.mean() - 0.05 * entropy.mean() + 0.5 * pulled, leaf)
    found = logit_slopes(logits, rows, epsilon=0.1, clip=0.2, entropy=0.05, pull=0.3)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert (found[~mask] == 0.0).all()


def test_what_is_masked_has_no_chance_and_what_is_allowed_has_one() -> None:
    likely = chances(np.array([9.0, 1.0, -5.0]), np.array([False, True, True]), 0.1)
    assert likely[0] == 0.0 and likely.min(where=[False, True, True], initial=1.0) >= 0.05
    assert likely.sum() == pytest.approx(1.0)


def test_advantages_run_along_each_case_and_stop_at_its_end() -> None:
    found = advantages(np.array([1.0, 10.0, 1.0, 1.0]), np.array([2, -1, 3, -1]), 0.5)
    assert found.tolist() == [1.75, 10.0, 1.5, 1.0]


def actor() -> tuple[NetworkActor, Scale]:
    scale = Scale(SIZES.state)
    for row in np.random.default_rng(5).normal(3.0, 2.0, (50, 24)).astype(np.float32):
        scale.see(row)
    return NetworkActor(cut(weights(), SIZES.shapes), scale, CHOICES), scale


def expected_pick(state: np.ndarray, mask: np.ndarray, scale: Scale) -> int:
    x = scale.normal(squash(tuple(state.tolist()), SIZES.state))[None]
    c = np.stack([describe(choice) for choice in CHOICES])[None]
    return int(np.where(mask, scores(cut(weights(), SIZES.shapes), x, c)[0], -np.inf).argmax())


def test_the_actor_picks_what_the_network_scores_highest_from_many_threads() -> None:
    ours, scale = actor()
    draw = np.random.default_rng(6)
    states = draw.normal(0.0, 20.0, (400, 24)).astype(np.float32)
    states[:50, 20:] = 0.0
    masks = draw.random((400, len(CHOICES))) < 0.6
    masks[:, 0] = True
    expected = [expected_pick(s, m, scale) for s, m in zip(states, masks, strict=True)]
    assert len(set(expected)) > 3
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ours.pick, np.tile(states, (5, 1)), np.tile(masks, (5, 1))))
    assert found == expected * 5
    assert copy.deepcopy(ours).pick(states[0], masks[0]) == expected[0]


def test_the_actor_takes_short_states_and_counts_broken_numbers_as_average() -> None:
    ours, scale = actor()
    mask = np.ones(len(CHOICES), dtype=np.bool_)
    short = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    assert ours.pick(short, mask) == expected_pick(short, mask, scale)
    broken = np.array([1.0, np.nan, np.inf], dtype=np.float32)
    assert ours.pick(broken, mask) == expected_pick(broken, mask, scale)
    with pytest.raises(ValueError, match="allows no choice"):
        ours.pick(short, ~mask)


def test_scale_takes_no_notice_of_what_is_broken() -> None:
    whole, broken = Scale(2), Scale(2)
    for value in (1.0, 2.0, 4.0):
        whole.see(np.array([value, 0.0], dtype=np.float32))
        broken.see(np.array([value, 0.0], dtype=np.float32))
        broken.see(np.array([np.nan, 0.0], dtype=np.float32))
    assert broken.mean[0] == pytest.approx(7.0 / 3.0)
    np.testing.assert_allclose(broken.spread(), whole.spread())


def test_the_words_of_the_design_are_told_apart_and_near_arguments_are_near() -> None:
    names = "stock rolled unrolled hybrid none rows columns depth store recompute compress spill"
    names += " serial chunked eager inductor onnxruntime openvino aoti bf16 int8 packed plan tiling"
    seen = {describe(Choice(name)).tobytes() for name in names.split()}
    assert len(seen) == len(names.split())
    small, near, far = (describe(Choice("unrolled", (u,))) for u in (8, 16, 512))
    assert np.linalg.norm(small - near) < np.linalg.norm(small - far)
    exact, loose = Choice("a"), Choice("a", exactness=Exactness.LOWER)
    assert not np.array_equal(describe(exact), describe(loose))
    assert not np.array_equal(describe(Choice("a", ("x", "y"))), describe(Choice("a", ("y", "x"))))


def test_a_word_has_one_direction_wherever_it_stands() -> None:
    def shift(word: str, *args: int | str) -> np.ndarray:
        return describe(Choice("unrolled", (*args, word))) - describe(Choice("unrolled", args))

    alone, after, other = shift("solo", 8), shift("solo", 8, "bf16"), shift("wave", 8)
    assert np.linalg.norm(alone - after) < 0.5 * np.linalg.norm(alone - other)
    profiles = [
        Choice(name, (*args, *words))
        for words in ((), ("solo",), ("wave",), ("bf16",), ("solo", "bf16"), ("wave", "bf16"))
        for name, args in (("rolled", ()), ("hybrid", (8,)), ("hybrid", (32,)))
    ] + [Choice("unrolled", (2**n, *words)) for n in range(1, 6) for words in ((), ("solo",))]
    apart = [
        np.linalg.norm(describe(one) - describe(two)) for one, two in combinations(profiles, 2)
    ]
    assert min(apart) > 0.5


def test_bytes_and_ratios_fit_beside_each_other() -> None:
    assert np.abs(squash((1e12, 0.5, -3.0), 4)).max() < 40.0
    with pytest.raises(ValueError, match="at most 2"):
        squash((1.0, 2.0, 3.0), 2)
