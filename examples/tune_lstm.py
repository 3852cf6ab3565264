"""Tune an LSTM while it is used, and see what came of it. Run it: python examples/tune_lstm.py"""

import sys

import torch
from torch import nn

import grainshift


def main(seconds: float = 10.0) -> None:
    torch.manual_seed(0)
    model = nn.LSTM(512, 512)  # any nn.Module with recurrent layers in it
    frames = torch.randn(16, 4, 512)
    with torch.no_grad():
        expected, _ = model(frames)

    grainshift.tune(model)  # from here on, every call may teach it something

    settled = grainshift.settle(model, frames, timeout=seconds)  # or just go on using the model
    print(grainshift.report(model))
    print("Settled." if settled else f"Not settled within {seconds:g} s: it goes on as you use it.")

    with torch.no_grad():
        outputs, _ = model(frames)
    print(f"Largest difference to stock PyTorch: {(outputs - expected).abs().max():.1g}")
    grainshift.untune(model)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
