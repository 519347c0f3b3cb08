"""Device functions that are operations of the language bit for bit, and updates of memory that others update too."""

from __future__ import annotations

from treadle.targets.cuda.emit.parts import Parts

PARTS = Parts()
_part = PARTS.add

# ---- operations

_part(
    "max_f32",
    """
DEVICE float max_f32(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}""",
)
_part(
    "min_f32",
    """
DEVICE float min_f32(float a, float b) {
  float d;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}""",
)
_part(
    "quotient",
    """
// a / b with r = 1 / b rounded: the product is off by less than 1.5 ulp, the remainder's share of it then rounds right
// (Markstein; its signs are such that zeros keep theirs). Wants 2^-20 <= b <= 2^20 and |a| zero or in [2^-100, 2^102].
DEVICE float quotient(float a, float b, float r) {
  const float first = a * r;
  return fmaf(fmaf(b, first, -a), -r, first);
}
DEVICE bool ordinary_divisor(float b) { return (b >= 0x1p-20f) & (b <= 0x1p+20f); }
// Over dividends: their sum is below 2^101, and `least` tells of one below 2^-100 that is not zero.
DEVICE void not_small(float a, u32& least) { least = __viaddmin_u32(__float_as_uint(a), 0xffffffffu, least); }
DEVICE void not_small_below(float a, u32& least) { least = __viaddmin_u32(__float_as_uint(a), 0x7fffffffu, least); }
DEVICE bool ordinary_dividends(float sum, u32 least) { return (sum < 0x1p+101f) & (least >= 0x0d7fffffu); }""",
)
_part("max_f64", "DEVICE double max_f64(double a, double b) { return b > a || b != b ? b : a; }")
_part("min_f64", "DEVICE double min_f64(double a, double b) { return b < a || b != b ? b : a; }")
_part(
    "int_floordiv",
    """
template <class T> DEVICE T int_floordiv(T a, T b) {
  if (b == 0) return 0;
  if ((T)-1 < (T)0 && b == (T)-1) return (T)(0 - (u64)a);
  const T q = a / b, r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
template <class T> DEVICE T int_mod(T a, T b) {
  if (b == 0 || ((T)-1 < (T)0 && b == (T)-1)) return 0;
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}""",
)
_part(
    "shifts",
    """
template <class T, class U> DEVICE T shift_left(T a, T count) {
  return (U)count < 8 * sizeof(T) ? (T)((u64)(U)a << (u32)count) : (T)0;
}
template <class T, class U> DEVICE T shift_right(T a, T count) {
  const bool inside = (U)count < 8 * sizeof(T);
  if ((T)-1 < (T)0) return (T)(a >> (inside ? (u32)count : (u32)(8 * sizeof(T) - 1)));
  return inside ? (T)(a >> (u32)count) : (T)0;
}""",
)
_part(
    "float_mod",
    """
// The exact remainder of truncated division, then NumPy's floor division and modulus.
DEVICE float truncated(float x, float y) { return fmodf(x, y); }
DEVICE double truncated(double x, double y) { return fmod(x, y); }
template <class T> DEVICE T sized(T size, T sign) { return copysign(size, sign); }
template <class T> DEVICE T float_mod(T a, T b) {
  const T r = truncated(a, b);
  if (b == 0) return r;
  if (r == 0) return sized((T)0, b);
  return (b < 0) != (r < 0) ? r + b : r;
}
template <class T> DEVICE T float_floordiv(T a, T b) {
  if (b == 0) return a / b;
  const T r = truncated(a, b);
  T q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= (T)1;
  if (q == 0) return sized((T)0, a / b);
  T whole = floor(q);
  if (q - whole > (T)0.5) whole += (T)1;
  return whole;
}""",
)
for _name, _instruction in (
    ("exp2_approx", "ex2.approx.ftz.f32"),
    ("log2_approx", "lg2.approx.ftz.f32"),
    ("rsqrt_approx", "rsqrt.approx.ftz.f32"),
    ("reciprocal_approx", "rcp.approx.ftz.f32"),
    ("tanh_approx", "tanh.approx.f32"),
    ("sin_approx", "sin.approx.ftz.f32"),
    ("cos_approx", "cos.approx.ftz.f32"),
):
    _part(
        _name,
        f"""
DEVICE float {_name}(float x) {{
  float d;
  asm("{_instruction} %0, %1;" : "=f"(d) : "f"(x));
  return d;
}}""",
    )
for _name in ("max", "min"):
    _part(
        f"{_name}_pairs",
        f"""
DEVICE u32 {_name}_pairs(u32 a, u32 b) {{
  u32 d;
  asm("{_name}.NaN.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}}""",
    )
_part(
    "fma_unit",
    """
// a * b + c, clamped to [0, 1]; of NaN 0.
DEVICE float fma_unit(float a, float b, float c) {
  float d;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}""",
)
_part(
    "exp_approx",
    """
DEVICE float exp_approx(float x) { return exp2_approx(x * 0x1.715476p+0f); }""",
    "exp2_approx",
)

# ---- updates of memory that others update too

_part(
    "update",
    """
template <class F> DEVICE void update_u32(u32* at, F next) {
  u32 old = *(volatile u32*)at, seen;
  do {
    seen = old;
    old = atomicCAS(at, seen, next(seen));
  } while (old != seen);
}
template <class F> DEVICE void update_u64(u64* at, F next) {
  u64 old = *(volatile u64*)at, seen;
  do {
    seen = old;
    old = atomicCAS(at, seen, next(seen));
  } while (old != seen);
}
// Elements of one and two bytes: inside the word that holds them.
template <class F> DEVICE void update_part(void* at, u32 bits, F next) {
  const u64 address = (u64)at;
  const u32 shift = (u32)(address & 3) * 8, mask = ((1u << bits) - 1u) << shift;
  update_u32((u32*)(address & ~(u64)3), [&](u32 word) {
    return (word & ~mask) | (((u32)next((word & mask) >> shift) << shift) & mask);
  });
}""",
)

_part(
    "store_half",
    """
// Four bits of a byte, whatever is stored to the others meanwhile: cleared, then set, in the word around it.
DEVICE void store_half(u8* at, u32 low, u32 code) {
  const u64 address = (u64)at;
  const u32 shift = (u32)(address & 3) * 8 + low;
  u32* const word = (u32*)(address & ~(u64)3);
  atomicAnd(word, ~(15u << shift));
  atomicOr(word, (code & 15u) << shift);
}""",
)
