"""The Program of a model's recurrent layers: a node for each layer and direction of each module.

Data flows from every direction of a layer to every direction of the next. What flows between two
modules is their model's own doing, and not known here.
"""

from collections.abc import Iterator

from torch import nn

from grainshift.core.site import Site
from grainshift.families.recurrence.find import find
from grainshift.families.recurrence.shape import parse
from grainshift.graph import Node, Program


def program(model: nn.Module) -> Program:
    """The Program of all layers of a model that can be tuned."""
    sites, _ = find(model)
    nodes = tuple(_node(part) for site in sites for part in site.parts or (site,))
    return Program(nodes, tuple(edge for site in sites for edge in _edges(site)))


def _node(part: Site) -> Node:
    return Node(part.path, parse(part).kind, part.features)


def _edges(site: Site) -> Iterator[tuple[str, str]]:
    beside = parse(site).directions
    paths = [part.path for part in site.parts]
    for at in range(beside, len(paths), beside):
        for begin in paths[at - beside : at]:
            yield from ((begin, end) for end in paths[at : at + beside])
