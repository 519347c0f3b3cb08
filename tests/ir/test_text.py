"""Programs as text: they read back to what prints the same, and mistakes are found at their place."""

from __future__ import annotations

import pytest

from treadle.base.errors import TreadleError
from treadle.ir.core import If, Region
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify

TEXT = """\
program everything
  numerics tf32 = false
  numerics functions = "2ulp"
  numerics repeatable = none
  staged act = "say \\"hi\\""
  dim M
  dim N
  dim J alias M
  dim D = 64
  dim MD product M, D
  dim L = 2*M - 1
  dim S = 3 static
  dim i_range = max(%n(), 0)
  let L = 2*M - 1
  require M - 8*((M) // (8)) == 0
  require N - 1 >= 0
  tensor X: bf16[M, N]
  tensor H: f32[MD]
  tensor ids: i32[M] optional
  tensor Y: f32[M, N] out
  tensor C: i32[N] out
  scalar n: i32 = %n
  scalar eps: f32 = %eps
  body
    %T: f32[M, N] = full uninitialised
    %0: f32[] = full -0.0
    %1: f32[] = full inf
    %2: bool[] = full true
    %3: f32[] = full 1e-05
    region R0 parallel (m in M by 16, n in N reversed) scope "workgroup" carry (%T.1: f32[M, N] = %T) -> (%T.2)
      %x: bf16[m, n] = load X[m, n]
      %4: f32[m, n] = cast %x saturate
      %5: i64[m] = coords m
      %6: i64[] = index -m.start + m.stop
      %7: i64[m] = add %5, %6
      %8: f32[m, n] = load Y[%7, n] fill %0
      %9: f32[m, n] = where %2, %4, %8
      %10: u32[m, n] = bitcast %9
      %11: f32[m, n] = bitcast %10
      %T.3: f32[M, N] = insert %T.1[m, n] = %11
      yield %T.3
    %zero: f32[N] = full 0.0
    region fold reduce (j in J[1 : min(%n(), M)] each) order fold_left versions 3 carry (%s: f32[N] = %zero) -> (%s.1)
      stage "load"
      %12: f32[N] = extract %T.2[j, N]
      stage "add"
      %13: f32[N] = add %s, %12
      yield %13
    region R1 serial (i in i_range each)
      %14: i32[M] = load ids[M]
      %15: f32[M] = extract %T.2[in_range(%14), 0]
      %16: f32[] = load H[{i, 3}]
      check %2 "inside"
    %k: i32[N] = load C[N]
    %17: f32[N] = reduce max %T.2 over M nan ignore
    %18: i64[] = argreduce max %17 over N
    %19: f32[] = extract %17[(N)] fill %3
    if %2 -> (%b: i32[N])
      yield %k
    else
      %20: i32[N] = neg %k
      yield %20
    %old: i32[N] = store C[N] add %b where %2 order ordered
    %21: i32[] = reduce add %old over N order ordered
    store Y[M, N] = %T.2 where %2
    print "row" %17 where %2
    check %2 "all is well"
"""


def test_text_reads_back():
    program = parse_program(TEXT)
    assert print_program(program) == TEXT
    verify(program)
    fold = next(op for op in program.body.walk() if isinstance(op, Region) and op.name == "fold")
    assert (fold.order, fold.versions, fold.stages) == ("fold_left", 3, [("load", 0), ("add", 1)])
    assert any(isinstance(op, If) for op in program.body.walk())
    assert [d.name for d in program.dims if d.static] == ["S"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("full -0.0", "full zero", "    %0: f32[] = full zero"),
        ("load X[m, n]", "load Q[m, n]", "load Q"),
        ("cast %x", "cast %y", "cast %y"),
        ("dim J alias M", "dim J alias Q", "alias Q"),
        ("bf16[M, N]", "bf17[M, N]", "bf17"),
        ("order fold_left", "order sideways", "sideways"),
        ("%T.3: f32", "%T.1: f32", "insert"),
        ('print "row"', "show", "show"),
    ],
)
def test_mistakes_in_text(old, new, line):
    text = TEXT.replace(old, new)
    with pytest.raises(TreadleError) as caught:
        parse_program(text)
    assert caught.value.code == "text/syntax"
    assert caught.value.span is not None
    assert line in text.splitlines()[caught.value.span.line - 1]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("%7: i64[m] = add %5, %6", "%7: i64[n] = add %5, %6", "ir/type"),
        ("%9: f32[m, n] = where %2, %4, %8", "%9: f32[m, n] = where %4, %4, %8", "ir/type"),
        ("%9: f32[m, n] = where %2, %4, %8", "%9: f32[m, n] = where %2, %x, %8", "ir/type"),
        ("      yield %T.3\n", "", "ir/structure"),
        ("yield %13", "yield %0", "ir/type"),
        ("store Y[M, N] = %T.2", "store Y[M, N] = %17", ""),
        ("store Y[M, N] = %T.2", "store Y[N] = %T.2", "ir/structure"),
        ("store Y[M, N] = %T.2", "store Y[M, N] = %13", "ir/dominance"),
        ("index -m.start + m.stop", "index -m.start + q.stop", "ir/structure"),
        ("region fold reduce", "region R0 reduce", "ir/structure"),
        ("%k: i32[N] = load C[N]", "%k: i32[M] = load C[M]", "ir/type"),
        ("bitcast %9", "bitcast %x", "ir/type"),
        ("if %2 ->", "if %18 ->", "ir/type"),
    ],
)
def test_verifier(old, new, code, snapshot):
    text = TEXT
    assert old in text
    program = parse_program(text.replace(old, new))
    if not code:
        verify(program)
        return
    with pytest.raises(TreadleError) as caught:
        verify(program, pass_name="test")
    assert caught.value.code == code
    assert str(caught.value) == snapshot
