"""A Program: a model as nodes and the data that flows between them. Knows no module or tensor.

Nodes stand in an order in which they can run, so a Program has no circles.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from grainshift.core.site import Named


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: a stable address, what kind it is, and its sizes by name."""

    address: str
    kind: str
    features: Named = ()


@dataclass(frozen=True)
class Program:
    """Nodes in an order in which they can run, and edges (from, to) along which data flows."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len(self._places) < len(self.nodes):
            raise ValueError("two nodes of a Program have one address")
        for edge in self.edges:
            if not {*edge} <= self._places.keys():
                raise ValueError(f"the edge {edge} leads to no node of the Program")
            if self._places[edge[0]] >= self._places[edge[1]]:
                raise ValueError(f"the edge {edge} leads backwards")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {node.address: place for place, node in enumerate(self.nodes)}

    @property
    def fingerprint(self) -> str:
        """A word that is the same for the same nodes and edges, whatever their addresses."""
        places = self._places
        nodes = [(node.kind, node.features) for node in self.nodes]
        edges = sorted((places[begin], places[end]) for begin, end in self.edges)
        return blake2b(repr((nodes, edges)).encode(), digest_size=8).hexdigest()

    def node(self, address: str) -> Node:
        """The node at an address; KeyError where there is none."""
        return self.nodes[self._places[address]]

    def before(self, address: str) -> tuple[Node, ...]:
        """The nodes whose data flows into one."""
        return tuple(self.node(begin) for begin, end in self.edges if end == address)

    def after(self, address: str) -> tuple[Node, ...]:
        """The nodes into which the data of one flows."""
        return tuple(self.node(end) for begin, end in self.edges if begin == address)
