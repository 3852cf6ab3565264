"""What one call is: an inference, a step of a stream, a training step."""

import pytest
import torch
from torch import nn

from grainshift.bench.mode import Mode, first_answer, plain, surroundings


@pytest.fixture
def gru() -> nn.GRU:
    torch.manual_seed(0)
    return nn.GRU(4, 4)


def test_a_stream_carries_its_state(gru: nn.GRU) -> None:
    x, state = torch.randn(1, 2, 4), torch.zeros(1, 2, 4)
    y, after = first_answer(plain(gru, (x, state), Mode.STREAM), Mode.STREAM)
    whole, last = gru(x.repeat(3, 1, 1))
    assert torch.allclose(y[0], whole[-1]) and torch.allclose(after, last)


def test_the_answer_of_a_stream_tells_who_forgets(gru: nn.GRU) -> None:
    x, state = torch.randn(1, 2, 4), torch.zeros(1, 2, 4)
    kept, _ = first_answer(plain(gru, (x, state), Mode.STREAM), Mode.STREAM)
    forgotten, _ = first_answer(lambda: gru(x, state), Mode.STREAM)
    assert not torch.allclose(kept, forgotten, atol=1e-3)


def test_a_training_step_answers_gradients_that_do_not_pile_up(gru: nn.GRU) -> None:
    call = plain(gru, (torch.randn(3, 2, 4),), Mode.TRAIN)
    (_, first), (_, second) = call(), call()
    assert len(first) == 4 and all(gradient.abs().max() > 0.0 for gradient in first)
    assert all(map(torch.equal, first, second))


def test_an_inference_keeps_no_gradient(gru: nn.GRU) -> None:
    call = plain(gru, (torch.randn(3, 2, 4),), Mode.CALL)
    with surroundings(Mode.CALL):
        assert call()[0].is_inference()
    with surroundings(Mode.TRAIN):
        assert call()[0].requires_grad
