"""What machine texts begin with: sources and lines of guards that many have, all that stands in front of kernels."""

from __future__ import annotations

ROWS = """  program rows
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        %y: f32[m, N] = abs %x
        store Y[m, N] = %y
"""
ROWS_ADDED = """  program rows
    dim M
    dim N
    tensor X: f32[M, N]
    tensor W: f32[M, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        %w: f32[m, N] = load W[m, N]
        %y: f32[m, N] = add %x, %w
        store Y[m, N] = %y
"""
SUMS = """  program sums
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        %s: f32[m] = reduce add %x over N
        store Y[m] = %s
"""
DISJOINT = "  disjoint(X, Y)\n  injective(Y)\n"


def boxes(*tensors: str) -> str:
    """What guards say of tensors of f32 that boxes, or copies of 16 bytes, have to do with."""
    return "".join(f"  unit({name}, 1)\n  pitch({name}, 0) % 4 == 0\n  align({name}) >= 16\n" for name in tensors)


def opening(target: str, source: str, guard: str, host: str, ledger: str = "") -> str:
    """A text up to its kernels; each part is of whole lines."""
    return f"tdm 1\ntarget {target}\n{ledger}program {{\n{source}}}\nguard {{\n{guard}}}\nhost {{\n{host}}}\n"
