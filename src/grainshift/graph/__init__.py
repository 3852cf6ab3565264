"""Models as data: Programs of nodes and the data that flows between them. Knows no family."""

from grainshift.graph.program import Node, Program

__all__ = ["Node", "Program"]
