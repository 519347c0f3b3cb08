"""fp8 and f4e2m1 to and from f32, bit for bit as `treadle.dtype.convert`, for every architecture alike.

In registers an element is its code in a u8, a 4-bit one in the low bits and zero above. A code without its sign, moved
to where f32 has its exponent and mantissa, is the number times a power of two, subnormals included: decoding is a shift
and an exact product. Encoding rounds the bits of f32 to the format's mantissa; below its normal numbers, adding a
number whose last place is the format's smallest step does it. f8e8m0 is only an exponent, and encoded from f64, where
every f32 is normal.
"""

from __future__ import annotations

from treadle.dtype.formats import DType, f8e8m0
from treadle.targets.cuda.emit.prelude import Prelude

_INF, _NAN = 0x7F800000, 0x7FC00000


def is_small(dtype: DType) -> bool:
    """Whether it is a float of at most 8 bits, held as its code."""
    return dtype.is_float and dtype.bits <= 8


def decoded(text: str, dtype: DType, prelude: Prelude) -> str:
    """The number of a code as f32, exactly."""
    return f"{prelude.define(f'from_{dtype.name}', _decoder(dtype))}({text})"


def encoded(text: str, dtype: DType, prelude: Prelude) -> str:
    """The code of an f32 (of f8e8m0 a double) rounded to the format. Requires: what is to saturate has been bounded."""
    return f"{prelude.define(f'to_{dtype.name}', _encoder(dtype))}({text})"


def _decoder(d: DType) -> str:
    if d == f8e8m0:
        return f"""DEVICE float from_{d.name}(u8 x) {{
  return __uint_as_float(x == 255 ? 0x{_NAN:08x}u : x == 0 ? 1u << 22 : (u32)x << 23);
}}
"""
    lines = [f"DEVICE float from_{d.name}(u8 x) {{", f"  const u32 size = x & {(1 << (d.bits - 1)) - 1}u;"]
    scale = f"0x1p+{127 - d.bias}f"
    lines.append(f"  u32 bits = __float_as_uint(__uint_as_float(size << {23 - d.mantissa}) * {scale});")
    if d.has_inf:
        lines.append(f"  bits = size > {top_code(d)}u ? 0x{_INF:08x}u : bits;")
    if d.has_nan:
        lines.append(f"  bits = size > {_overflow_code(d) if d.has_inf else top_code(d)}u ? 0x{_NAN:08x}u : bits;")
    lines += [f"  return __uint_as_float(bits | (u32)(x & {1 << (d.bits - 1)}u) << {32 - d.bits});", "}", ""]
    return "\n".join(lines)


def _encoder(d: DType) -> str:
    if d == f8e8m0:
        return f"""// The nearest power of two, up from the middle; NaN for what is not positive.
DEVICE u8 to_{d.name}(double x) {{
  const i64 bits = __double_as_longlong(x);
  i64 code = (i64)(((u64)bits + (1ull << 51)) >> 52) - {1023 - 127};
  code = code < 0 ? 0 : code > 254 ? 255 : code;
  return (u8)(bits <= 0 ? 255 : code);
}}
"""
    cut, least = 23 - d.mantissa, 127 + d.min_exponent
    magic = float(d.smallest * 2.0**23).hex()
    return f"""DEVICE u8 to_{d.name}(float x) {{
  const u32 bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  u32 code = ((size + (size >> {cut} & 1u) + {(1 << (cut - 1)) - 1}u) >> {cut}) - {(127 - d.bias) << d.mantissa}u;
  const u32 low = __float_as_uint(__uint_as_float(size) + {magic}f) - {(least - d.mantissa + 23) << 23}u;
  code = size < {least << 23}u ? low : code;
  code = code > {top_code(d)}u ? {_overflow_code(d)}u : code;
  return (u8)(size > 0x{_INF:08x}u ? {_nan_code(d)}u : code | (bits & 0x80000000u) >> {32 - d.bits});
}}
"""


def top_code(d: DType) -> int:
    """The code of the largest finite number."""
    return (1 << (d.bits - 1)) - 1 - d.top_reserved


def _overflow_code(d: DType) -> int:
    return top_code(d) + 1 if d.has_inf or d.has_nan else top_code(d)


def _nan_code(d: DType) -> int:
    if not d.has_nan:
        return top_code(d)
    return top_code(d) + 1 + (1 << (d.mantissa - 1)) if d.has_inf else top_code(d) + 1
