"""Device functions of contractions: by warpgroups and by warps, and the loads for them."""

from __future__ import annotations

from treadle.targets.cuda.emit.parts import Parts

PARTS = Parts()
_part = PARTS.add

# ---- warpgroup mma

_part(
    "operand_desc",
    """
// Shared operand descriptor: address, leading and stride byte offsets, kind of swizzle.
DEVICE u64 operand_desc(u32 address, u32 leading, u32 stride, u32 kind) {
  return (u64)((address & 0x3FFFF) >> 4) | ((u64)(leading >> 4) << 16) | ((u64)(stride >> 4) << 32) | ((u64)kind << 62);
}""",
)
_part("mma_fence", 'DEVICE void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }')
_part("mma_commit", 'DEVICE void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }')
_part(
    "mma_wait",
    """
template <int P> DEVICE void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(P) : "memory"); }""",
)
_part(
    "landed",
    """
// No instruction: every register is redefined here, so arithmetic on it cannot be moved above the wait before it.
template <int R> DEVICE void landed(float (&f)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+f"(f[i])::"memory");
}
template <int R> DEVICE void landed(u32 (&f)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+r"(f[i])::"memory");
}
template <int R> DEVICE void landed(int (&f)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+r"(f[i])::"memory");
}""",
)
_part(
    "registers",
    """
template <int R> DEVICE void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> DEVICE void registers_fewer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }""",
)
_part(
    "store_matrix_4",
    """
DEVICE void store_matrix_4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d) : "memory");
}""",
)
for _kind in ("bf16", "f16"):
    _part(
        f"mma_m16n8k16_{_kind}",
        f"""
DEVICE void mma_m16n8k16_{_kind}(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                               u32 b1) {{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.{_kind}.{_kind}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, "
      "{{%0, %1, %2, %3}};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}}""",
    )
for _turned in ("", "_turned"):
    _part(
        f"load_matrix_4{_turned}",
        f"""
DEVICE void load_matrix_4{_turned}(u32 address, u32& a, u32& b, u32& c, u32& d) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{".trans" if _turned else ""}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}}""",
    )
_part(
    "mma_m16n8k8_tf32",
    """
DEVICE void mma_m16n8k8_tf32(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                             u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}""",
)
_part(
    "mma_m16n8k8_f64",
    """
DEVICE void mma_m8n8k4_f64(double& d0, double& d1, double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d0), "+d"(d1) : "d"(a), "d"(b));
}
// Both halves of the rows, both halves of the depth.
DEVICE void mma_m16n8k8_f64(double& d0, double& d1, double& d2, double& d3, double a0, double a1, double a2, double a3,
                            double b0, double b1) {
  mma_m8n8k4_f64(d0, d1, a0, b0);
  mma_m8n8k4_f64(d2, d3, a1, b0);
  mma_m8n8k4_f64(d0, d1, a2, b1);
  mma_m8n8k4_f64(d2, d3, a3, b1);
}""",
)
