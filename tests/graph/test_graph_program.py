from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grainshift.graph import Node, Program


@st.composite
def programs(draw: Any) -> Program:
    count = draw(st.integers(1, 8))
    nodes = tuple(Node(f"n{n}", draw(st.sampled_from("AB"))) for n in range(count))
    pairs = [(f"n{a}", f"n{b}") for b in range(count) for a in range(b)]
    return Program(
        nodes, tuple(draw(st.lists(st.sampled_from(pairs), unique=True))) if pairs else ()
    )


@given(programs())
def test_before_and_after_tell_the_same_edges(program: Program) -> None:
    forwards = {(n.address, m.address) for n in program.nodes for m in program.after(n.address)}
    backwards = {(m.address, n.address) for n in program.nodes for m in program.before(n.address)}
    assert forwards == backwards == {*program.edges}


@given(programs())
def test_a_fingerprint_knows_no_addresses_but_every_edge(program: Program) -> None:
    nodes = tuple(Node(f"m{node.address}", node.kind, node.features) for node in program.nodes)
    renamed = Program(nodes, tuple((f"m{a}", f"m{b}") for a, b in program.edges))
    assert renamed.fingerprint == program.fingerprint
    if program.edges:
        fewer = Program(program.nodes, program.edges[1:])
        assert fewer.fingerprint != program.fingerprint


def test_what_is_no_program_is_refused() -> None:
    one, two = Node("one", "A"), Node("two", "A")
    with pytest.raises(ValueError, match="one address"):
        Program((one, one))
    with pytest.raises(ValueError, match="no node"):
        Program((one,), (("one", "three"),))
    with pytest.raises(ValueError, match="backwards"):
        Program((one, two), (("two", "one"),))
    with pytest.raises(ValueError, match="backwards"):
        Program((one,), (("one", "one"),))


def test_programs_are_values() -> None:
    nodes = (Node("one", "A", (("size", 2.0),)), Node("two", "B"))
    edges = (("one", "two"),)
    assert Program(nodes, edges) == Program(nodes, edges)
    assert len({Program(nodes, edges), Program(nodes, edges)}) == 1
    assert Program(nodes, edges).node("two").kind == "B"
