"""The kernels as other processors build them: narrower vectors, and other counts of registers."""

import dataclasses
import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from recurrence_doors import KINDS, error_ratio, flat
from torch import nn

from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.choice import unrolled
from grainshift.families.recurrence.library import Library, load, native
from grainshift.families.recurrence.net import Net
from grainshift.families.recurrence.shape import parse
from grainshift.families.recurrence.train import Turned, build
from grainshift.families.recurrence.weights import current
from grainshift.runtime.pool import Pool

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only an x86-64 processor stands in for these"
)
PROCESSORS = {
    "SSE": ("-march=x86-64",),
    "NEON": ("-march=x86-64", "-D__aarch64__"),  # as wide as SSE, with twice the registers
    "AVX": ("-march=x86-64-v3",),
}


@pytest.fixture(scope="module", params=PROCESSORS)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    whole = native(Path(tmp_path_factory.mktemp("narrow")))
    path = dataclasses.replace(whole, flags=(*PROCESSORS[request.param], "-O1")).build()
    assert path is not None
    return load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients_agree_with_pytorch(library: Library, kind: Any) -> None:
    torch.manual_seed(0)
    layer: nn.RNNBase = kind(9, 13)
    (site,), _ = Recurrence().find(layer)
    net, turned = Net(library, layer, "fp32"), Turned(library, parse(site))
    run = build(library, net, turned, layer, unrolled(4), Pool()).run
    x, h = torch.randn(300, 2, 9), torch.randn(1, 2, 13)  # more rows than are packed at once
    state = (h, h) if kind is nn.LSTM else h
    answers = []
    for answer in (run(x, state, current(layer)), layer(x, state)):
        layer.zero_grad()
        sum(out.cos().sum() for out in flat(answer)).backward()
        outs = [out.detach() for out in flat(answer)]
        answers.append((outs, [weight.grad.clone() for weight in layer.parameters()]))
    assert error_ratio(*answers) <= 1e-4
