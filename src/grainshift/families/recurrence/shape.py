"""The Shape of a recurrent layer: what its Site's fingerprint says. Knows no module or tensor."""

from dataclasses import dataclass, replace

from grainshift.core.site import Named, Site

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Kind and sizes of a layer; experience transfers between layers whose Shapes are equal."""

    kind: str
    inputs: int
    hidden: int
    layers: int
    directions: int
    bias: bool
    projected: int = 0

    @property
    def gates(self) -> int:
        """Rows of a weight matrix for each hidden unit."""
        return GATES[self.kind]

    @property
    def sweeps(self) -> int:
        """How often the sequence is walked: layers times directions."""
        return self.layers * self.directions

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each sweep, as PyTorch ends its weights' names; plans have this order."""
        words = ("", "_reverse")[: self.directions]
        return tuple(f"l{layer}{word}" for layer in range(self.layers) for word in words)

    def sweep(self, number: int) -> "Shape":
        """One sweep as a layer of its own."""
        inputs = self.inputs_of(number // self.directions)
        return replace(self, inputs=inputs, layers=1, directions=1)

    @property
    def fingerprint(self) -> str:
        """The Shape as a word; the element type is fp32 in every Site of this family."""
        bias = "bias" if self.bias else "plain"
        sizes = f"I{self.inputs}.H{self.hidden}.L{self.layers}.D{self.directions}"
        projected = f".P{self.projected}" if self.projected else ""
        return f"{self.kind}.{sizes}.{bias}.fp32{projected}"

    @property
    def features(self) -> Named:
        """What a policy sees of the layer; it takes logarithms by itself."""
        return (
            ("gates", float(self.gates)),
            ("inputs", float(self.inputs)),
            ("hidden", float(self.hidden)),
            ("layers", float(self.layers)),
            ("directions", float(self.directions)),
            ("bias", float(self.bias)),
        )

    @property
    def recurrent_bytes(self) -> int:
        """The recurrent matrix of one sweep, and what projects its outputs."""
        return _FP32_BYTES * (self.gates * self.hidden + self.projected) * self.outputs

    def input_bytes(self, layer: int) -> int:
        """The input matrix of one sweep of a layer."""
        return _FP32_BYTES * self.gates * self.hidden * self.inputs_of(layer)

    def inputs_of(self, layer: int) -> int:
        """Features that go into a layer."""
        return self.inputs if layer == 0 else self.outputs * self.directions

    @property
    def outputs(self) -> int:
        """Features that come out of a layer in one direction."""
        return self.projected or self.hidden

    @property
    def weight_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of all weights, in PyTorch's flat order."""
        rows = self.gates * self.hidden
        rest = ((rows,),) * 2 * self.bias + ((self.projected, self.hidden),) * bool(self.projected)
        sweeps = (number // self.directions for number in range(self.sweeps))
        matrices = (((rows, self.inputs_of(layer)), (rows, self.outputs)) for layer in sweeps)
        return tuple(size for pair in matrices for size in (*pair, *rest))

    @property
    def input_matrix_bytes(self) -> int:
        """The input matrices of all sweeps."""
        return self.directions * sum(self.input_bytes(layer) for layer in range(self.layers))

    @property
    def matrix_bytes(self) -> int:
        """All weight matrices; biases left out."""
        return self.input_matrix_bytes + self.sweeps * self.recurrent_bytes


def parse(site: Site) -> Shape:
    """The Shape that a Site's fingerprint tells."""
    kind, inputs, hidden, layers, directions, bias, _, *more = site.fingerprint.split(".")
    return Shape(
        kind,
        inputs=int(inputs[1:]),
        hidden=int(hidden[1:]),
        layers=int(layers[1:]),
        directions=int(directions[1:]),
        bias=bias == "bias",
        projected=int(more[0][1:]) if more else 0,
    )
