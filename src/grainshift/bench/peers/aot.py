"""AOTInductor: the exported model compiled ahead of time, with frozen weights."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from grainshift.bench.peer import Inputs, Peer, Run


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Export, compile into a package, and load it; what is loaded outlives the package's file."""
    import torch._inductor.config as inductor
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    inductor.freezing = True
    with TemporaryDirectory() as folder, torch.no_grad():
        package = aoti_compile_and_package(
            torch.export.export(model, inputs),
            package_path=str(Path(folder) / "model.pt2"),
        )
        loaded = aoti_load_package(package)
    return lambda: loaded(*inputs)


PEER = Peer("aot", prepare)
