"""Floor division and modulus of floats, as NumPy defines them: from the exact remainder of truncated division.

The exact remainder is a loop, so it is a support function called lane by lane. It works on f32 values in f64, where
every step is exact: subtract the largest divisor * 2^k that is not above what is left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from treadle.dtype.formats import bool_, f32
from treadle.targets.cpu.emit.errors import unsupported
from treadle.targets.cpu.emit.lanes import Lanes, Vec, constant
from treadle.targets.cpu.emit.text import Function

_FMOD = """define internal float @fmod_f32(float %x, float %y) nounwind {
start:
  %ax = call float @llvm.fabs.f32(float %x)
  %ay = call float @llvm.fabs.f32(float %y)
  %wild = fcmp uge float %ax, 0x7FF0000000000000
  %void = fcmp ueq float %ay, 0.0
  %bad = or i1 %wild, %void
  %d = fpext float %ay to double
  %first = fpext float %ax to double
  br i1 %bad, label %none, label %test
none:
  ret float 0x7FF8000000000000
test:
  %r = phi double [ %first, %start ], [ %left, %step ]
  %more = fcmp oge double %r, %d
  br i1 %more, label %step, label %done
step:
  %rb = bitcast double %r to i64
  %db = bitcast double %d to i64
  %re = and i64 %rb, 9218868437227405312
  %de = and i64 %db, 9218868437227405312
  %up = sub i64 %re, %de
  %tb = add i64 %db, %up
  %t = bitcast i64 %tb to double
  %over = fcmp ogt double %t, %r
  %half = fmul double %t, 5.0e-01
  %take = select i1 %over, double %half, double %t
  %left = fsub double %r, %take
  br label %test
done:
  %whole = fptrunc double %r to float
  %signed = call float @llvm.copysign.f32(float %whole, float %x)
  ret float %signed
}
"""


class _Arithmetic(Protocol):
    fn: Function
    lanes: Lanes

    def apply(self, name: str, args: list[Vec]) -> Vec: ...
    def select(self, mask: str, a: Vec, b: Vec) -> Vec: ...


def float_divmod(arith: _Arithmetic, name: str, a: Vec, b: Vec) -> Vec:
    """`floordiv` or `mod` of f32 vectors."""
    if a.dtype != f32:
        raise unsupported(f"{name} of {a.dtype}", "f32, f16 or bf16", "use a - floor(a / b) * b where that is enough")
    zero = constant(f32, 0.0, a.lanes)
    rest = _remainder(arith, a, b)
    exact = arith.apply("eq", [rest, zero])
    differ = arith.apply("xor", [arith.apply("lt", [b, zero]), arith.apply("lt", [rest, zero])])
    # A NaN remainder is not exact, and adding to it changes nothing.
    fix = arith.apply("and", [differ, arith.apply("xor", [exact, constant(bool_, True, a.lanes)])]).text
    by_zero = arith.apply("eq", [b, zero]).text
    if name == "mod":
        moved = arith.select(fix, arith.apply("add", [rest, b]), rest)
        return arith.select(by_zero, rest, arith.select(exact.text, _signed(arith, zero, b), moved))
    quotient = arith.apply("div", [arith.apply("sub", [a, rest]), b])
    quotient = arith.select(fix, arith.apply("sub", [quotient, constant(f32, 1.0, a.lanes)]), quotient)
    floor = arith.apply("floor", [quotient])
    above = arith.apply("gt", [arith.apply("sub", [quotient, floor]), constant(f32, 0.5, a.lanes)]).text
    floor = arith.select(above, arith.apply("add", [floor, constant(f32, 1.0, a.lanes)]), floor)
    plain = arith.apply("div", [a, b])
    floor = arith.select(arith.apply("eq", [quotient, zero]).text, _signed(arith, zero, plain), floor)
    return arith.select(by_zero, plain, floor)


def _signed(arith: _Arithmetic, size: Vec, sign: Vec) -> Vec:
    kind = "f32" if size.lanes is None else f"v{size.lanes}f32"
    return replace(size, text=arith.fn.call(size.type, f"llvm.copysign.{kind}", [size.typed, sign.typed]))


def _remainder(arith: _Arithmetic, a: Vec, b: Vec) -> Vec:
    module = arith.fn.module
    module.declare("llvm.fabs.f32", "float", ["float"])
    module.declare("llvm.copysign.f32", "float", ["float", "float"])
    module.support("fmod_f32", _FMOD)
    parts: list[tuple[Vec, int]] = []
    for i in range(a.lanes or 1):
        x, y = arith.lanes.element(a, i), arith.lanes.element(b, i)
        parts.append((Vec(arith.fn.value(f"call float @fmod_f32(float {x.text}, float {y.text})"), f32), 0))
    return parts[0][0] if a.lanes is None else arith.lanes.assemble(parts)
