"""Contractions along rows of both operands as folds of their products: chosen where an operand is used a few times."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cpu.test_families import facts_for

from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.ir.expand import expand
from treadle.lib.decode import decode_attention
from treadle.machine.form import Load, walk
from treadle.machine.form import Mma as MachineMma
from treadle.planner.enumerate import choose, realised
from treadle.targets.cpu.blocking import fitting
from treadle.targets.cpu.families import families
from treadle.targets.cpu.folded import FoldedProducts

EXTENTS = {"B": 4, "KV": 8, "R": 4, "Sk": 4096, "D": 128, "DV": 128}


def program_of(extents: dict[str, int], dtype: type = np.float32):
    b, kv, r, s, d, dv = (extents[n] for n in ("B", "KV", "R", "Sk", "D", "DV"))
    q, k, v = (np.zeros(n, dtype) for n in ((b, kv * r, d), (b, kv, s, d), (b, kv, s, dv)))
    return decode_attention.program(q, k, v, np.zeros(b, np.int32))


def test_few_queries_read_keys_and_values_in_place() -> None:
    program = program_of(EXTENTS)
    meant = expand(program)
    facts = facts_for(meant, extents=EXTENTS)
    choice = choose(meant, facts, families())
    assert choice.plan.family == "folded products", choice.explain()
    way = FoldedProducts().derivation(meant, facts, choice.plan.point)
    assert way is not None and [s.kind for s in way.steps] == ["products"]
    assert all(v.status == "verified" for v in validate_derivation(way.programs, way.steps))
    machine = realised(choice.plan, meant, facts, families())
    assert check(machine).status == "verified"
    stmts = [s for k in machine.kernels for role in k.roles for s in walk(role.body)]
    assert sum(isinstance(s, MachineMma) for s in stmts) == 1
    # Nothing is copied: what is loaded of keys and values is used from registers.
    assert sum(isinstance(s, Load) and s.src.name in "KV" for s in stmts) == 2
    assert not any(b.dtype.name == "f32" and len(b.shape) > 2 for k in machine.kernels for b in k.buffers)


def test_many_queries_do_not() -> None:
    few = {**EXTENTS, "R": 512}
    meant = expand(program_of(few))
    choice = choose(meant, facts_for(meant, extents=few), families())
    assert choice.plan.family == "tiled regions", choice.explain()


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1, 1, 1), (2, 2, 3, 0, 5, 4), (1, 2, 4, 130, 33, 17), (2, 1, 7, 300, 16, 70)]
)
def test_values_over_ragged_shapes(shape: tuple[int, ...]) -> None:
    b, kv, r, s, d, dv = shape
    rng = np.random.default_rng(s)
    q, k, v = (rng.standard_normal(n).astype(np.float32) for n in ((b, kv * r, d), (b, kv, s, d), (b, kv, s, dv)))
    length = rng.integers(0, s + 1, b).astype(np.int32)
    got, lse = decode_attention(q, k, v, length)
    for i in range(b):
        n = length[i]
        for h in range(kv * r):
            scores = k[i, h // r, :n].astype(np.float64) @ q[i, h].astype(np.float64) / np.sqrt(d)
            if n == 0:
                assert not got[i, h].any() and lse[i, h] == -np.inf
                continue
            p = np.exp(scores - scores.max())
            want = p / p.sum() @ v[i, h // r, :n].astype(np.float64)
            assert np.abs(got[i, h] - want).max() <= 1e-5
            assert abs(lse[i, h] - (scores.max() + np.log(p.sum()))) <= 1e-5 * (1 + np.abs(scores).max())


def test_a_register_block_is_no_higher_than_its_rows() -> None:
    assert [fitting(rows, 14) for rows in (1, 2, 4, 7, 14, 16, 28)] == [1, 2, 4, 7, 14, 8, 14]
