"""What is live: against all ways through a body, each loop gone round none, one or two times."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.view.plans import NAMES, machine

from treadle.algebra.expr import const, sym
from treadle.machine.form import Compute, FragRef, If, Loop, Role, Stmt
from treadle.view.facts import fragment_written, fragments_read, slots, statements
from treadle.view.liveness import bytes_live, held

NAMED = st.sampled_from("abc")
PLAIN = st.builds(lambda d, a, b: Compute(dst=d, fn="add", args=(FragRef(a), FragRef(b))), NAMED, NAMED, NAMED)
SMALL = st.lists(PLAIN, min_size=1, max_size=2)


def _loop(body):
    return Loop(var="i", lo=const(0), hi=sym("N"), step=const(1), body=body)


INNER = st.one_of(PLAIN, SMALL.map(_loop), st.tuples(SMALL, SMALL).map(lambda p: If(then=p[0], orelse=p[1])))
OUTER = st.one_of(PLAIN, st.lists(INNER, min_size=1, max_size=2).map(_loop))
BODIES = st.lists(OUTER, min_size=1, max_size=4)


def ways(body):
    """All sequences of statements that a body may execute."""
    parts = []
    for item in body:
        if isinstance(item, Stmt):
            parts.append([[item]])
        elif isinstance(item, Loop):
            once = ways(item.body)
            parts.append([[], *once, *([*a, *b] for a, b in itertools.product(once[:12], repeat=2))])
        else:
            parts.append([*ways(item.then), *ways(item.orelse)])
    return [list(itertools.chain(*choice)) for choice in itertools.islice(itertools.product(*parts), 600)]


@settings(max_examples=60)
@given(BODIES)
def test_live_is_what_some_way_on_reads_before_it_is_written(body):
    wanted: dict[int, set[str]] = {}
    for way in ways(body):
        live: set[str] = set()
        for stmt in reversed(way):
            wanted.setdefault(id(stmt), set()).update(live)
            live = (live - {fragment_written(stmt)}) | set(fragments_read(stmt))
    found = held(Role("r", 1, 1, body))
    assert [id(s) for s in found.statements] == [id(s) for s in statements(body)]
    for stmt, live in zip(found.statements, found.live):
        assert wanted.get(id(stmt), set()) <= live
        if id(stmt) in wanted and len(ways(body)) < 600:
            assert live == wanted[id(stmt)]


def test_every_fragment_that_is_read_is_live_somewhere_and_peaks_fit():
    for name in NAMES:
        for kernel in machine(name).kernels:
            for role in kernel.roles:
                found = held(role)
                read = {n for s in found.statements for n in fragments_read(s)}
                assert read & {f.name for f in kernel.frags} <= {n for live in found.live for n in live}
                for frag in kernel.frags:
                    spans = found.spans(frag.name)
                    assert all(a[1] + 1 < b[0] for a, b in zip(spans, spans[1:]))
                if machine(name).target.startswith("cuda") and role.registers:
                    assert max(bytes_live(kernel, found)) <= 4 * role.registers
                    assert all(slots(f) <= 256 for f in kernel.frags)
