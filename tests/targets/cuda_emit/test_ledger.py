"""Which functions a program hands to the hardware, and what the text then calls; loads ahead of their task."""

from __future__ import annotations

import numpy as np
import pytest
from tests.realise.texts import TEXTS
from tests.realise.texts import program as sample

from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.simulate.run import simulate
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.rows import Rows


def with_class(accuracy: str) -> Program:
    lines = TEXTS["softmax_bf16"].strip().splitlines()
    return parse_program("\n".join([*lines[:1], f'  numerics functions = "{accuracy}"', *lines[1:]]))


def source_of(program: Program, columns: int = 8192, warps: int = 8) -> tuple[str, str]:
    facts, family = contiguous(program, "cuda:sm_90a", {"M": 4096, "N": columns}), Rows()
    point = {"warps": warps, "held": True}
    machine = family.build(program, facts, point, family.guard(program, facts, point))
    return print_machine(machine), emit(machine).source


def test_the_ledger_decides() -> None:
    line = functions_by_hardware(sample("softmax_bf16"), "cuda:sm_90a")
    assert line == ("functions: exp by the hardware's ex2 and rcp (<= 1.8 ulp, measured)",)
    text, source = source_of(sample("softmax_bf16"))
    assert f'numerics "{line[0]}"' in text and "exp_near(" in source and "exp_2ulp(" not in source
    without = "\n".join(x for x in text.splitlines() if "by the hardware" not in x)
    source = emit(parse_machine(without)).source
    assert "exp_near(" not in source and "exp_2ulp(" in source


@pytest.mark.parametrize(
    ("accuracy", "called"),
    [("exact", "exp_wide("), ("storage", "exp_wide("), ("2ulp", "exp_near("), ("fast", "exp_approx(")],
)
def test_classes(accuracy: str, called: str) -> None:
    assert called in source_of(with_class(accuracy))[1]


def test_not_where_nothing_was_measured() -> None:
    assert functions_by_hardware(sample("softmax_bf16"), "cuda:sm_80") == ()
    assert functions_by_hardware(with_class("exact"), "cuda:sm_90a") == ()


def test_a_lone_workgroup_reads_ahead() -> None:
    text, source = source_of(sample("softmax_bf16"), 32768, 16)
    assert "tags (ahead)" in text
    loop = source.index("for (int task")
    assert source.index("*(const uint4*)") < loop
    assert source.index("*(const uint4*)", loop) > source.index("// x = cast x0", loop)
    assert "tags (ahead)" not in source_of(sample("softmax_bf16"), 8192, 8)[0]


def test_what_is_written_is_not_read_ahead() -> None:
    text, _ = source_of(sample("softmax_bf16"), 32768, 16)
    shared = "\n".join(x for x in text.splitlines() if x.strip() != "disjoint(X, Y)")
    source = emit(parse_machine(shared)).source
    assert source.index("*(const uint4*)") > source.index("for (int task")


def test_the_tag_says_nothing_about_values() -> None:
    """The simulator runs the text in order, with the tag as without."""
    text, _ = source_of(sample("softmax_bf16"), 32768, 16)
    program = parse_machine(text)
    dtype = program.program.tensors[0].dtype.numpy
    x = np.linspace(-3, 3, 2 * 64).reshape(2, 64).astype(dtype)
    outcomes = []
    for machine in (program, parse_machine(text.replace(" tags (ahead)", ""))):
        run = simulate(machine, {"X": x.copy(), "Y": np.zeros_like(x)}, seed=1)
        assert run.clean
        outcomes.append(run.outputs["Y"].astype(np.float32))
    assert np.array_equal(*outcomes)
