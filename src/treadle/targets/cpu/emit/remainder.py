"""Floor division and modulus of floats, as NumPy defines them: from the exact remainder of truncated division.

The exact remainder is a loop, so it is a support function called lane by lane. For f32 it works in f64, where every
step is exact: subtract the largest divisor * 2^k that is not above what is left. For f64 it works on the significands
as integers, a bit of the quotient each step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from treadle.dtype.formats import bool_, f64
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

# A copy in every lane made compilers slow (13.7 s for a kernel of several) and no call quicker: the loop is long.
_FMOD_F64 = """define internal double @fmod_f64(double %x, double %y) nounwind noinline {
start:
  %ax = call double @llvm.fabs.f64(double %x)
  %ay = call double @llvm.fabs.f64(double %y)
  %wild = fcmp uge double %ax, 0x7FF0000000000000
  %void = fcmp ueq double %ay, 0.0
  %bad = or i1 %wild, %void
  br i1 %bad, label %none, label %compare
none:
  ret double 0x7FF8000000000000
compare:
  %below = fcmp olt double %ax, %ay
  br i1 %below, label %itself, label %divide
itself:
  ret double %x
divide:
  %xb = bitcast double %ax to i64
  %yb = bitcast double %ay to i64
  %xs = call i64 @significand_f64(i64 %xb)
  %ys = call i64 @significand_f64(i64 %yb)
  %xe = call i64 @exponent_f64(i64 %xb)
  %ye = call i64 @exponent_f64(i64 %yb)
  br label %step
step:
  %s = phi i64 [ %xs, %divide ], [ %twice, %next ]
  %e = phi i64 [ %xe, %divide ], [ %lower, %next ]
  %take = icmp uge i64 %s, %ys
  %less = sub i64 %s, %ys
  %left = select i1 %take, i64 %less, i64 %s
  %more = icmp sgt i64 %e, %ye
  br i1 %more, label %next, label %done
next:
  %twice = shl i64 %left, 1
  %lower = sub i64 %e, 1
  br label %step
done:
  %zeros = call i64 @llvm.ctlz.i64(i64 %left, i1 false)
  %up = sub i64 %zeros, 11
  %moved = sub i64 %e, %up
  %normal = icmp sgt i64 %moved, 0
  %safe = select i1 %normal, i64 %up, i64 0
  %whole = shl i64 %left, %safe
  %field = sub i64 %moved, 1
  %high = shl i64 %field, 52
  %big = add i64 %whole, %high
  %rise = sub i64 %e, 1
  %fall = sub i64 1, %e
  %up_most = call i64 @llvm.smax.i64(i64 %rise, i64 0)
  %down_most = call i64 @llvm.smax.i64(i64 %fall, i64 0)
  %raised = shl i64 %left, %up_most
  %small = lshr i64 %raised, %down_most
  %bits = select i1 %normal, i64 %big, i64 %small
  %gone = icmp eq i64 %left, 0
  %size = select i1 %gone, i64 0, i64 %bits
  %value = bitcast i64 %size to double
  %signed = call double @llvm.copysign.f64(double %value, double %x)
  ret double %signed
}
"""
_SIGNIFICAND_F64 = """define internal i64 @significand_f64(i64 %bits) nounwind {
  %normal = icmp uge i64 %bits, 4503599627370496
  %mantissa = and i64 %bits, 4503599627370495
  %whole = or i64 %mantissa, 4503599627370496
  %zeros = call i64 @llvm.ctlz.i64(i64 %bits, i1 false)
  %up = sub i64 %zeros, 11
  %some = select i1 %normal, i64 0, i64 %up
  %moved = shl i64 %bits, %some
  %result = select i1 %normal, i64 %whole, i64 %moved
  ret i64 %result
}
"""
_EXPONENT_F64 = """define internal i64 @exponent_f64(i64 %bits) nounwind {
  %field = lshr i64 %bits, 52
  %zeros = call i64 @llvm.ctlz.i64(i64 %bits, i1 false)
  %low = sub i64 12, %zeros
  %normal = icmp ne i64 %field, 0
  %result = select i1 %normal, i64 %field, i64 %low
  ret i64 %result
}
"""


class _Arithmetic(Protocol):
    fn: Function
    lanes: Lanes

    def apply(self, name: str, args: list[Vec]) -> Vec: ...
    def select(self, mask: str, a: Vec, b: Vec) -> Vec: ...


def float_divmod(arith: _Arithmetic, name: str, a: Vec, b: Vec) -> Vec:
    """`floordiv` or `mod` of f32 or f64 vectors."""
    zero, one = constant(a.dtype, 0.0, a.lanes), constant(a.dtype, 1.0, a.lanes)
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
    quotient = arith.select(fix, arith.apply("sub", [quotient, one]), quotient)
    floor = arith.apply("floor", [quotient])
    above = arith.apply("gt", [arith.apply("sub", [quotient, floor]), constant(a.dtype, 0.5, a.lanes)]).text
    floor = arith.select(above, arith.apply("add", [floor, one]), floor)
    plain = arith.apply("div", [a, b])
    floor = arith.select(arith.apply("eq", [quotient, zero]).text, _signed(arith, zero, plain), floor)
    return arith.select(by_zero, plain, floor)


def _signed(arith: _Arithmetic, size: Vec, sign: Vec) -> Vec:
    kind = size.dtype.name if size.lanes is None else f"v{size.lanes}{size.dtype.name}"
    return replace(size, text=arith.fn.call(size.type, f"llvm.copysign.{kind}", [size.typed, sign.typed]))


def _remainder(arith: _Arithmetic, a: Vec, b: Vec) -> Vec:
    module, name, kind = arith.fn.module, a.dtype.name, replace(a, lanes=None).type
    module.declare(f"llvm.fabs.{name}", kind, [kind])
    module.declare(f"llvm.copysign.{name}", kind, [kind, kind])
    if a.dtype == f64:
        module.declare("llvm.ctlz.i64", "i64", ["i64", "i1"])
        module.declare("llvm.smax.i64", "i64", ["i64", "i64"])
        module.support("significand_f64", _SIGNIFICAND_F64)
        module.support("exponent_f64", _EXPONENT_F64)
    module.support(f"fmod_{name}", _FMOD_F64 if a.dtype == f64 else _FMOD)
    parts: list[tuple[Vec, int]] = []
    for i in range(a.lanes or 1):
        x, y = arith.lanes.element(a, i), arith.lanes.element(b, i)
        called = f"call {kind} @fmod_{name}({kind} {x.text}, {kind} {y.text})"
        parts.append((Vec(arith.fn.value(called), a.dtype), 0))
    return parts[0][0] if a.lanes is None else arith.lanes.assemble(parts)
