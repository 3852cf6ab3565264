"""The peers, in the order in which a report shows them. A new one is a file and a name here."""

from grainshift.bench.peers import (
    aot,
    compiled,
    compiled_max,
    eager,
    eager_channels_last,
    onnxruntime,
    openvino_bf16,
    openvino_f32,
)

PEERS = (
    eager.PEER,
    eager_channels_last.PEER,
    compiled.PEER,
    compiled_max.PEER,
    aot.PEER,
    onnxruntime.PEER,
    openvino_f32.PEER,
    openvino_bf16.PEER,
)
