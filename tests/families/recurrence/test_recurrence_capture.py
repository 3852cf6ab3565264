import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from recurrence_doors import KINDS, Door, error_ratio, flat, tuned
from torch import Tensor, nn
from torch.export import Dim
from torch.fx import GraphModule

FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"batch_first": True, "bidirectional": True, "num_layers": 2},
)
ROUNDING = 1e-5


class Nested(nn.Module):
    """A recurrent layer behind a convolution, inside other modules, before a head."""

    def __init__(self, kind: Any, **form: Any) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 3, padding=1)
        self.inner = nn.ModuleDict({"layer": kind(6, 8, **form)})
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(8 * (1 + form.get("bidirectional", 0)), 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        y, state = self.inner["layer"](self.conv(x.transpose(1, 2)).transpose(1, 2))
        return self.head(y), state


class Stateful(nn.Module):
    """Two recurrent layers, of which the second begins where the first ended."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.first, self.second = kind(6, 8), kind(8, 8)

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.first(x, state)
        return self.second(y, hx=state)


def start(kind: Any, *sizes: int) -> Any:
    return tuple(torch.randn(2, *sizes)) if kind is nn.LSTM else torch.randn(sizes)


def open_doors(model: nn.Module) -> list[Door]:
    """Put a Door of PyTorch's own operator in every recurrent layer."""
    return [tuned(part)[0] for part in model.modules() if isinstance(part, nn.RNNBase)]


def nodes(graph: torch.fx.Graph) -> list[Any]:
    """What stands in a graph for recurrent layers, in one form or another."""
    words = ("grainshift", "lstm", "gru", "rnn")
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    return [target for target in targets if any(word in str(target) for word in words)]


def gradients(model: nn.Module, answer: Any) -> list[Tensor]:
    model.zero_grad()
    sum((part * part).sum() for part in flat(answer)).backward()  # type: ignore[union-attr]
    return [weight.grad for weight in model.parameters() if weight.grad is not None]


class Captured:
    """A backend of torch.compile that keeps the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.Graph] = []

    def __call__(self, module: GraphModule, inputs: list[Any]) -> Any:
        self.graphs.append(module.graph)
        return module.forward


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strict", [False, True])
def test_export_has_one_node_a_layer_for_all_lengths_and_batches(
    kind: Any, form: dict[str, Any], strict: bool
) -> None:
    model = Nested(kind, **form).eval()
    (door,) = open_doors(model)
    dims = ({0: Dim("batch", min=2, max=64), 1: Dim("steps", min=2, max=512)},)
    x = torch.randn(4, 7, 4)
    program = torch.export.export(model, (x,), dynamic_shapes=dims, strict=strict)
    assert nodes(program.graph) == [torch.ops.grainshift.recurrent.default]
    assert door.seen == []
    for size in ((4, 7), (2, 30)):
        x = torch.randn(*size, 4)
        with torch.no_grad():
            got = program.module()(x)
            assert error_ratio(got, model(x)) <= ROUNDING
            assert [part.stride() for part in flat(got)] == [p.stride() for p in flat(model(x))]
    assert len(door.seen) == 6
    assert {work for _, work in door.seen} == {28.0, 60.0}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(3,), ()], ids=["batched", "unbatched"])
def test_initial_states_and_unbatched_input_are_captured(kind: Any, sizes: tuple[int]) -> None:
    model = Stateful(kind)
    x, state = torch.randn(5, *sizes, 6), start(kind, 1, *sizes, 8)
    wanted = model(x, state)
    doors = open_doors(model)
    program = torch.export.export(model, (x, state))
    assert nodes(program.graph) == [torch.ops.grainshift.recurrent.default] * 2
    assert error_ratio(program.module()(x, state), wanted) <= ROUNDING
    assert [len(door.seen) for door in doors] == [1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_program_is_right_and_needs_no_tuned_layer(kind: Any) -> None:
    model = Nested(kind)
    (door,) = open_doors(model)
    x, file = torch.randn(4, 7, 4), io.BytesIO()
    torch.export.save(torch.export.export(model, (x,)), file)
    wanted = model(x)
    for weight in model.parameters():
        nn.init.zeros_(weight)
    door.seen.clear()
    file.seek(0)
    assert error_ratio(torch.export.load(file).module()(x), wanted) <= ROUNDING
    assert door.seen == []  # those are not the layer's weights any more


FRESH = """
import sys, torch, grainshift
layer = grainshift.tune(torch.nn.GRU(3, 4))
assert "torch._dynamo" not in sys.modules, "tuning should not load Dynamo"
x = torch.randn(5, 2, 3)
with torch.no_grad():
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))
program = torch.export.load(sys.argv[1])
x, *wanted = torch.load(sys.argv[2])
torch.testing.assert_close(list(program.module()(x)), wanted)
print("right")
"""


def test_a_fresh_process_runs_a_saved_program_and_compiles(tmp_path: Path) -> None:
    model = Nested(nn.GRU)
    open_doors(model)
    x = torch.randn(4, 7, 4)
    files = [str(tmp_path / name) for name in ("program.pt2", "answer.pt")]
    torch.export.save(torch.export.export(model, (x,)), files[0])
    torch.save([x, *flat(model(x))], files[1])
    command = [sys.executable, "-c", FRESH, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "right\n", done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_compiled_inference_has_one_graph_and_passes_the_door(
    kind: Any, form: dict[str, Any]
) -> None:
    model, x, backend = Nested(kind, **form), torch.randn(4, 7, 4), Captured()
    wanted = model(x)
    (door,) = open_doors(model)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            assert error_ratio(compiled(x), wanted) <= ROUNDING
    assert len(backend.graphs) == 1
    assert len(nodes(backend.graphs[0])) == 1
    assert len(door.seen) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_compiled_training_has_the_gradients_of_pytorch(kind: Any, form: dict[str, Any]) -> None:
    model, x = Nested(kind, **form), torch.randn(4, 7, 4)
    wanted = model(x)
    expected = [grad.clone() for grad in gradients(model, wanted)]
    (door,) = open_doors(model)
    got = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
    assert error_ratio(got, wanted) <= ROUNDING
    assert error_ratio(gradients(model, got), expected) <= ROUNDING
    assert door.seen == []  # what wants gradients is not tuned


def test_frozen_weights_and_wanted_inputs_get_what_they_want() -> None:
    model = nn.LSTM(6, 8)
    model.weight_hh_l0.requires_grad_(False)
    x, c = torch.randn(5, 2, 6, requires_grad=True), torch.randn(1, 2, 8, requires_grad=True)
    h = torch.randn(1, 2, 8)

    def grads(run: Any) -> list[Tensor]:
        x.grad = c.grad = None
        return [*gradients(model, run(x, (h, c))[1][1]), x.grad, c.grad]  # type: ignore[list-item]

    wanted = grads(model)
    assert len(wanted) == 5
    tuned(model)
    got = grads(torch.compile(model, backend="aot_eager", fullgraph=True))
    assert error_ratio(got, wanted) <= ROUNDING
    assert model.weight_hh_l0.grad is None


def test_compiled_checkpointing_has_the_gradients_of_pytorch() -> None:
    model, x = Nested(nn.GRU), torch.randn(4, 7, 4)
    expected = [grad.clone() for grad in gradients(model, model(x))]
    open_doors(model)

    def run(x: Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    assert error_ratio(gradients(model, compiled(x)), expected) <= ROUNDING


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_and_batches_change_without_compiling_again(kind: Any) -> None:
    model, backend = Nested(kind), Captured()
    (door,) = open_doors(model)
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for size in ((5, 7), (3, 20), (9, 2), (6, 100)):
            x = torch.randn(*size, 4)
            assert error_ratio(compiled(x), model(x)) <= ROUNDING
    assert len(backend.graphs) == 1
    assert len(door.seen) == 8


def test_many_layers_of_one_model_are_one_graph() -> None:
    stack = nn.ModuleList(nn.GRU(6, 6) for _ in range(12))
    doors = [tuned(layer)[0] for layer in stack]
    backend = Captured()

    def run(x: Tensor) -> Tensor:
        for layer in stack:
            x = layer(x)[0]
        return x

    compiled = torch.compile(run, backend=backend, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            compiled(torch.randn(5, 2, 6))
    assert len(backend.graphs) == 1
    assert [len(door.seen) for door in doors] == [2] * 12


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", (nn.LSTM, nn.GRU))
def test_onnx_knows_pytorchs_operator_and_gets_that(kind: Any) -> None:
    pytest.importorskip("onnxscript")
    layer = kind(6, 8).eval()
    tuned(layer)
    program = torch.onnx.export(layer, (torch.randn(5, 2, 6),), dynamo=True, verbose=False)
    assert program is not None
    assert kind.__name__ in [node.op_type for node in program.model.graph]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_inductor_answers_and_trains_as_pytorch_does(kind: Any, form: dict[str, Any]) -> None:
    model, x = Nested(kind, **form), torch.randn(4, 7, 4)
    wanted = model(x)
    expected = [grad.clone() for grad in gradients(model, wanted)]
    (door,) = open_doors(model)
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    with torch.no_grad():
        assert error_ratio(compiled(x), wanted) <= ROUNDING
        other = torch.randn(2, 20, 4)
        assert error_ratio(compiled(other), model(other)) <= ROUNDING
    assert error_ratio(gradients(model, compiled(x)), expected) <= ROUNDING
    assert len(door.seen) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_a_package_of_aotinductor_answers_as_pytorch_does(kind: Any, tmp_path: Path) -> None:
    model, x = Nested(kind).eval(), torch.randn(4, 7, 4)
    wanted = model(x)
    open_doors(model)
    program = torch.export.export(model, (x,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=f"{tmp_path}/m.pt2")
    assert error_ratio(torch._inductor.aoti_load_package(package)(x), wanted) <= ROUNDING
