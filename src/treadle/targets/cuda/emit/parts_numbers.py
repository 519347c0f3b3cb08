"""Device functions on numbers: indices, conversions between formats."""

from __future__ import annotations

from treadle.targets.cuda.emit.parts import Parts

PARTS = Parts()
_part = PARTS.add

# ---- index arithmetic

_part("least", "template <class T> DEVICE T least(T a, T b) { return a < b ? a : b; }")
_part("most", "template <class T> DEVICE T most(T a, T b) { return a < b ? b : a; }")
_part(
    "floor_div",
    """
template <class T> DEVICE T floor_div(T a, T b) {
  const T q = a / b;
  return q - (T)(q * b > a);
}""",
)
_part(
    "floor_mod",
    """
template <class T> DEVICE T floor_mod(T a, T b) {
  const T r = a % b;
  return r < 0 ? r + b : r;
}""",
)

# Sums with numbers that a run tells: the nearest number that 64 bits hold.
_part(
    "held_add",
    """
DEVICE i64 held_add(i64 a, i64 b) {
  const i64 s = (i64)((u64)a + (u64)b);
  return ((a ^ s) & (b ^ s)) < 0 ? (a >> 63) ^ 0x7fffffffffffffffll : s;
}""",
)
_part(
    "held_sub",
    """
DEVICE i64 held_sub(i64 a, i64 b) {
  const i64 s = (i64)((u64)a - (u64)b);
  return ((a ^ b) & (a ^ s)) < 0 ? (a >> 63) ^ 0x7fffffffffffffffll : s;
}""",
)
_part(
    "held_times",
    """
DEVICE i64 held_times(i64 a, i64 b) {
  const i64 p = (i64)((u64)a * (u64)b);
  return __mul64hi(a, b) != (p >> 63) ? ((a ^ b) >> 63) ^ 0x7fffffffffffffffll : p;
}""",
)

# ---- values

_part(
    "pack_bf16",
    """
DEVICE u32 pack_bf16(float low, float high) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}""",
)
_part(
    "pack_f16",
    """
DEVICE u32 pack_f16(float low, float high) {
  u32 d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}""",
)
_part(
    "to_bf16",
    """
DEVICE u16 to_bf16(float x) {
  u16 d;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(d) : "f"(x));
  return d;
}""",
)
_part(
    "to_f16",
    """
DEVICE u16 to_f16(float x) {
  u16 d;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(d) : "f"(x));
  return d;
}""",
)
_part("from_bf16", "DEVICE float from_bf16(u16 x) { return __uint_as_float((u32)x << 16); }")
_part(
    "from_f16",
    """
DEVICE float from_f16(u16 x) {
  float d;
  asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(x));
  return d;
}""",
)
_part("pair", "DEVICE u32 pair(u16 low, u16 high) { return (u32)low | (u32)high << 16; }")
_part(
    "odd_float",
    """
// To f32 with the last bit set where something was cut off: a later rounding to fewer bits is then the only one.
DEVICE float odd_float(double x) {
  const float cut = __double2float_rz(x);
  return (double)cut == x || x != x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}""",
)
_part(
    "odd_signed",
    """
DEVICE float odd_signed(i64 x) {
  const float cut = __ll2float_rz(x);
  return (i64)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}""",
)
_part(
    "odd_unsigned",
    """
DEVICE float odd_unsigned(u64 x) {
  const float cut = __ull2float_rz(x);
  return (u64)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}""",
)
for _name, _kind, _wide, _instruction in (
    ("i32_of_f32", "float", "int", "cvt.rzi.s32.f32"),
    ("u32_of_f32", "float", "u32", "cvt.rzi.u32.f32"),
    ("i64_of_f32", "float", "i64", "cvt.rzi.s64.f32"),
    ("u64_of_f32", "float", "u64", "cvt.rzi.u64.f32"),
    ("i32_of_f64", "double", "int", "cvt.rzi.s32.f64"),
    ("u32_of_f64", "double", "u32", "cvt.rzi.u32.f64"),
    ("i64_of_f64", "double", "i64", "cvt.rzi.s64.f64"),
    ("u64_of_f64", "double", "u64", "cvt.rzi.u64.f64"),
):
    _out = "l" if _wide in ("i64", "u64") else "r"
    _in = "f" if _kind == "float" else "d"
    _part(
        _name,
        f"""
// Truncates and saturates; the conversion of NaN is 0.
DEVICE {_wide} {_name}({_kind} x) {{
  {_wide} d;
  asm("{_instruction} %0, %1;" : "={_out}"(d) : "{_in}"(x));
  return x != x ? 0 : d;
}}""",
    )
_part(
    "within", "template <class T> DEVICE T within(T x, T low, T high) { return x < low ? low : x > high ? high : x; }"
)
