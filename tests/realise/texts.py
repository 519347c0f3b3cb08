"""Programs as text, one a form that lowering must know; several rooms' tests use them."""

from __future__ import annotations

from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.verifier import verify

SOFTMAX = """
program softmax
  dim M
  dim N
  tensor X: f32[M, N]
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M)
      %x: f32[m, N] = load X[m, N]
      %top: f32[m] = reduce max %x over N
      %d: f32[m, N] = sub %x, %top
      %e: f32[m, N] = exp %d
      %s: f32[m] = reduce add %e over N
      %y: f32[m, N] = div %e, %s
      store Y[m, N] = %y
"""

SOFTMAX_BF16 = """
program softmax_bf16
  dim M
  dim N
  tensor X: bf16[M, N]
  tensor Y: bf16[M, N] out
  body
    region R0 parallel (m in M)
      %x0: bf16[m, N] = load X[m, N]
      %x: f32[m, N] = cast %x0
      %top: f32[m] = reduce max %x over N
      %d: f32[m, N] = sub %x, %top
      %e: f32[m, N] = exp %d
      %s: f32[m] = reduce add %e over N
      %y: f32[m, N] = div %e, %s
      %y0: bf16[m, N] = cast %y
      store Y[m, N] = %y0
"""

LAYERNORM = """
program layernorm
  dim M
  dim N
  tensor X: f32[M, N]
  tensor G: f32[N]
  tensor B: f32[N]
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M)
      %x: f32[m, N] = load X[m, N]
      %s: f32[m] = reduce add %x over N
      %ni: i64[] = index N
      %n: f32[] = cast %ni
      %mean: f32[m] = div %s, %n
      %d: f32[m, N] = sub %x, %mean
      %dd: f32[m, N] = mul %d, %d
      %v: f32[m] = reduce add %dd over N
      %var: f32[m] = div %v, %n
      %eps: f32[] = full 0.00001
      %ve: f32[m] = add %var, %eps
      %r: f32[m] = rsqrt %ve
      %g: f32[N] = load G[N]
      %b: f32[N] = load B[N]
      %t: f32[m, N] = mul %d, %r
      %u: f32[m, N] = mul %t, %g
      %y: f32[m, N] = add %u, %b
      store Y[m, N] = %y
"""


def linear(dtype: str = "f32", *, gelu: bool = True, transposed: bool = False) -> str:
    """The linear layer with bias and activation; `transposed`: W is stored [N, K]."""
    w = "W[n, k]" if transposed else "W[k, n]"
    plain = """
      store Y[m, n] = %z
"""
    epilogue = """
      %half: f32[] = full 0.5
      %one: f32[] = full 1.0
      %c: f32[] = full 0.7071067811865476
      %h: f32[m, n] = mul %z, %half
      %zc: f32[m, n] = mul %z, %c
      %er: f32[m, n] = erf %zc
      %er1: f32[m, n] = add %er, %one
      %y: f32[m, n] = mul %h, %er1
      store Y[m, n] = %y
"""
    return f"""
program linear
  dim M
  dim N
  dim K
  tensor X: {dtype}[M, K]
  tensor W: {dtype}[{"N, K" if transposed else "K, N"}]
  tensor bias: f32[N]
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M, n in N)
      %zero: f32[m, n] = full 0.0
      region R1 reduce (k in K) carry (%acc: f32[m, n] = %zero) -> (%total)
        %a: {dtype}[m, k] = load X[m, k]
        %b: {dtype}[{"n, k" if transposed else "k, n"}] = load {w}
        %new: f32[m, n] = mma %a, %b, %acc
        yield %new
      %bi: f32[n] = load bias[n]
      %z: f32[m, n] = add %total, %bi{epilogue if gelu else plain}
"""


def attention(dtype: str = "bf16", *, causal: bool = False) -> str:
    """Attention forward with a running maximum; keys in a pipeline."""
    keys = "S[0 : min(S, q.stop)]" if causal else "S"
    states = "%m: f32[q] = %m0, %l: f32[q] = %l0, %o: f32[q, D] = %o0"
    mask = """
        %qi: i64[q] = coords Q[q.start : q.stop]
        %ki: i64[k] = coords S[k.start : k.stop]
        %live: bool[q, k] = ge %qi, %ki
        %ninf: f32[] = full -inf
        %st: f32[q, k] = where %live, %ss, %ninf
"""
    return f"""
program attention
  dim B
  dim H
  dim Q
  dim S
  dim D = 64
  tensor QT: {dtype}[B, H, Q, D]
  tensor KT: {dtype}[B, H, S, D]
  tensor VT: {dtype}[B, H, S, D]
  tensor O: {dtype}[B, H, Q, D] out
  body
    region R0 parallel (b in B each, h in H each, q in Q)
      %qv: {dtype}[q, D] = load QT[b, h, q, D]
      %m0: f32[q] = full -inf
      %l0: f32[q] = full 0.0
      %o0: f32[q, D] = full 0.0
      region R1 pipeline (k in {keys}) carry ({states}) -> (%mf, %lf, %of)
        %kv: {dtype}[k, D] = load KT[b, h, k, D]
        %vv: {dtype}[k, D] = load VT[b, h, k, D]
        %s0: f32[q, k] = full 0.0
        %s: f32[q, k] = mma %qv, %kv, %s0
        %scale: f32[] = full 0.125
        %ss: f32[q, k] = mul %s, %scale{mask if causal else ""}
        %rm: f32[q] = reduce max {"%st" if causal else "%ss"} over S
        %mn: f32[q] = maximum %m, %rm
        %sd: f32[q, k] = sub {"%st" if causal else "%ss"}, %mn
        %p: f32[q, k] = exp %sd
        %md: f32[q] = sub %m, %mn
        %al: f32[q] = exp %md
        %ps: f32[q] = reduce add %p over S
        %la: f32[q] = mul %l, %al
        %ln: f32[q] = add %la, %ps
        %oa: f32[q, D] = mul %o, %al
        %pb: {dtype}[q, k] = cast %p
        %on: f32[q, D] = mma %pb, %vv, %oa
        yield %mn, %ln, %on
      %on2: f32[q, D] = div %of, %lf
      %ob: {dtype}[q, D] = cast %on2
      store O[b, h, q, D] = %ob
"""


SWIGLU = """
program swiglu
  dim M
  dim N
  dim K
  tensor X: f32[M, K]
  tensor G: f32[K, N]
  tensor U: f32[K, N]
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M, n in N)
      %zero: f32[m, n] = full 0.0
      region R1 reduce (k in K) carry (%g: f32[m, n] = %zero, %u: f32[m, n] = %zero) -> (%gf, %uf)
        %a: f32[m, k] = load X[m, k]
        %b: f32[k, n] = load G[k, n]
        %c: f32[k, n] = load U[k, n]
        %gn: f32[m, n] = mma %a, %b, %g
        %un: f32[m, n] = mma %a, %c, %u
        yield %gn, %un
      %neg: f32[m, n] = neg %gf
      %ex: f32[m, n] = exp %neg
      %one: f32[] = full 1.0
      %de: f32[m, n] = add %ex, %one
      %si: f32[m, n] = div %gf, %de
      %y: f32[m, n] = mul %si, %uf
      store Y[m, n] = %y
"""

EMBED = """
program embed
  dim T
  dim V
  dim D
  tensor ids: i32[T]
  tensor E: f32[V, D]
  tensor P: f32[T, D]
  tensor Y: f32[T, D] out
  body
    region R0 parallel (t in T)
      %i: i32[t] = load ids[t]
      %e: f32[t, D] = load E[in_range(%i), D]
      %p: f32[t, D] = load P[t, D]
      %y: f32[t, D] = add %e, %p
      store Y[t, D] = %y
"""

_RANGE = "T[min(max(0, %lo()), T) : max(min(max(0, %lo()), T), min(T, %hi()))]"
RAGGED = f"""
program ragged
  dim B
  dim T
  dim D
  tensor starts: i32[B]
  tensor stops: i32[B]
  tensor X: f32[T, D]
  tensor Y: f32[B, D] out
  body
    region R0 parallel (b in B each)
      %lo: i32[] = load starts[b]
      %hi: i32[] = load stops[b]
      %zero: f32[D] = full 0.0
      region R1 reduce (t in {_RANGE}) carry (%s: f32[D] = %zero) -> (%sum)
        %x: f32[t, D] = load X[t, D]
        %c: f32[D] = reduce add %x over T
        %n: f32[D] = add %s, %c
        yield %n
      store Y[b, D] = %sum
"""

TWO_PHASES = """
program two_phases
  dim M
  dim N
  tensor X: f32[M, N]
  tensor Y: f32[N, M] out
  body
    %t0: f32[M, N] = full uninitialised
    region R0 parallel (m in M) carry (%t: f32[M, N] = %t0) -> (%t1)
      %x: f32[m, N] = load X[m, N]
      %s: f32[m] = reduce add %x over N
      %v: f32[m, N] = sub %x, %s
      %ti: f32[M, N] = insert %t[m, N] = %v
      yield %ti
    region R1 parallel (n in N)
      %c: f32[M, n] = extract %t1[M, n]
      %q: f32[n] = reduce max %c over M
      %w: f32[M, n] = add %c, %q
      store Y[n, M] = %w
"""

RECURRENCE = """
program recurrence
  dim T
  dim D
  tensor X: f32[T, D]
  tensor A: f32[D]
  tensor Y: f32[T, D] out
  body
    region R0 parallel (d in D)
      %a: f32[d] = load A[d]
      %h0: f32[d] = full 0.0
      region R1 serial (t in T each) carry (%h: f32[d] = %h0) -> (%hf)
        %x: f32[d] = load X[t, d]
        %ha: f32[d] = mul %h, %a
        %hn: f32[d] = add %ha, %x
        store Y[t, d] = %hn
        yield %hn
"""

SWAP = """
program swap
  dim T
  tensor X: f32[T]
  tensor Y: f32[T] out
  body
    %a0: f32[] = full 0.0
    %b0: f32[] = full 1.0
    region R0 serial (t in T each) carry (%a: f32[] = %a0, %b: f32[] = %b0) -> (%af, %bf)
      %x: f32[] = load X[t]
      %n: f32[] = add %b, %x
      store Y[t] = %a
      yield %b, %n
"""

BRANCH = """
program branch
  dim M
  dim N
  tensor X: f32[M, N]
  tensor F: i32[M]
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M each)
      %f: i32[] = load F[m]
      %z: i32[] = full 0
      %c: bool[] = gt %f, %z
      %x: f32[N] = load X[m, N]
      if %c -> (%r: f32[N])
        %s: f32[] = reduce add %x over N
        %v: f32[N] = add %x, %s
        yield %v
      else
        %w: f32[N] = neg %x
        yield %w
      store Y[m, N] = %r
"""

STENCIL = """
program stencil
  dim H
  dim W
  tensor X: f32[H, W]
  tensor Y: f32[H, W] out
  body
    region R0 parallel (y in H, x in W)
      %xi: i64[x] = coords W[x.start : x.stop]
      %yi: i64[y] = coords H[y.start : y.stop]
      %one: i64[] = full 1
      %l: i64[x] = sub %xi, %one
      %u: i64[y] = sub %yi, %one
      %zero: f32[] = full 0.0
      %a: f32[y, x] = load X[y, %l] fill %zero
      %b: f32[y, x] = load X[%u, x] fill %zero
      %c: f32[y, x] = load X[y, x]
      %s: f32[y, x] = add %a, %b
      %r: f32[y, x] = add %s, %c
      store Y[y, x] = %r
"""

BATCHED = """
program batched
  dim B
  dim M
  dim N
  dim K
  tensor X: f32[B, M, K]
  tensor W: f32[B, K, N]
  tensor Y: f32[B, M, N] out
  body
    region R0 parallel (b in B each, m in M, n in N)
      %zero: f32[m, n] = full 0.0
      %a: f32[m, K] = load X[b, m, K]
      %w: f32[K, n] = load W[b, K, n]
      %y: f32[m, n] = mma %a, %w, %zero
      store Y[b, m, n] = %y
"""

POOL = """
program pool
  dim M
  dim A
  dim C
  tensor X: f32[M, A, C]
  tensor Y: f32[M] out
  body
    region R0 parallel (m in M)
      %x: f32[m, A, C] = load X[m, A, C]
      %s: f32[m] = reduce add %x over A, C
      store Y[m] = %s
"""

COLUMNS = """
program columns
  dim M
  dim N
  tensor X: f32[M, N]
  tensor Y: f32[N] out
  body
    region R0 parallel (n in N)
      %x: f32[M, n] = load X[M, n]
      %s: f32[n] = reduce add %x over M
      store Y[n] = %s
"""

MLP = """
program mlp
  dim M
  dim N
  dim K
  dim F
  tensor X: f32[M, K]
  tensor U: f32[K, F]
  tensor W: f32[F, N]
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M)
      %h0: f32[m, F] = full 0.0
      region R1 reduce (k in K) carry (%h: f32[m, F] = %h0) -> (%hf)
        %a: f32[m, k] = load X[m, k]
        %b: f32[k, F] = load U[k, F]
        %hn: f32[m, F] = mma %a, %b, %h
        yield %hn
      %zero: f32[] = full 0.0
      %r: f32[m, F] = maximum %hf, %zero
      %y0: f32[m, N] = full 0.0
      %w: f32[F, N] = load W[F, N]
      %y: f32[m, N] = mma %r, %w, %y0
      store Y[m, N] = %y
"""

CONV = """
program conv
  dim B
  dim H
  dim W
  dim C
  dim O
  dim R = 3
  dim S = 3
  tensor X: f32[B, H, W, C]
  tensor G: f32[R, S, C, O]
  tensor Y: f32[B, H, W, O] out
  body
    region R0 parallel (b in B each, y in H each, x in W, o in O)
      %acc0: f32[x, o] = full 0.0
      region R1 reduce (r in R each, s in S each, c in C) carry (%acc: f32[x, o] = %acc0) -> (%total)
        %xi: i64[x] = coords W[x.start : x.stop]
        %off: i64[] = index s - 1
        %col: i64[x] = add %xi, %off
        %zero: f32[] = full 0.0
        %a: f32[x, c] = load X[b, y + r - 1, %col, c] fill %zero
        %g: f32[c, o] = load G[r, s, c, o]
        %n: f32[x, o] = mma %a, %g, %acc
        yield %n
      store Y[b, y, x, o] = %total
"""

NORM_LINEAR = """
program norm_linear
  dim M
  dim N
  dim K
  tensor X: f32[M, K]
  tensor W: f32[K, N]
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M)
      %x: f32[m, K] = load X[m, K]
      %q: f32[m, K] = mul %x, %x
      %s: f32[m] = reduce add %q over K
      %one: f32[] = full 1.0
      %e: f32[m] = add %s, %one
      %i: f32[m] = rsqrt %e
      region R1 parallel (n in N)
        %y0: f32[m, n] = full 0.0
        %z: f32[m, K] = mul %x, %i
        %w: f32[K, n] = load W[K, n]
        %y: f32[m, n] = mma %z, %w, %y0
        store Y[m, n] = %y
"""

HISTOGRAM = """
program histogram
  dim T
  dim V
  tensor ids: i32[T]
  tensor X: f32[T]
  tensor Y: f32[V] out
  body
    region R0 parallel (v in V)
      %z: f32[v] = full 0.0
      store Y[v] = %z
    region R1 parallel (t in T)
      %i: i32[t] = load ids[t]
      %x: f32[t] = load X[t]
      %old: f32[t] = store Y[in_range(%i)] add %x
"""

IN_PLACE = """
program in_place
  dim M
  dim N
  tensor X: f32[M, N] out
  body
    region R0 parallel (m in M)
      %x: f32[m, N] = load X[m, N]
      %s: f32[m] = reduce add %x over N
      %y: f32[m, N] = sub %x, %s
      store X[m, N] = %y
"""

TEXTS: dict[str, str] = {
    "mlp": MLP,
    "conv": CONV,
    "norm_linear": NORM_LINEAR,
    "histogram": HISTOGRAM,
    "in_place": IN_PLACE,
    "softmax": SOFTMAX,
    "softmax_bf16": SOFTMAX_BF16,
    "layernorm": LAYERNORM,
    "linear": linear(),
    "linear_bf16": linear("bf16"),
    "linear_t": linear(transposed=True, gelu=False),
    "attention": attention(),
    "attention_f32_causal": attention("f32", causal=True),
    "swiglu": SWIGLU,
    "embed": EMBED,
    "ragged": RAGGED,
    "two_phases": TWO_PHASES,
    "recurrence": RECURRENCE,
    "swap": SWAP,
    "branch": BRANCH,
    "stencil": STENCIL,
    "batched": BATCHED,
    "pool": POOL,
    "columns": COLUMNS,
}


def program(name: str) -> Program:
    """A verified program of this file."""
    made = parse_program(TEXTS[name].strip("\n"))
    verify(made)
    return made


def windows(channels: int = 64, columns: int = 64, *, pad: int = 1, fill: bool = True) -> str:
    """Products over taps and channels of shifted windows, channels last, one row of outputs an instance."""
    gone = 2 * pad + 1
    return f"""
program windows
  dim B
  dim H
  dim V
  dim P = {channels} static
  dim KH
  dim KV
  dim Q = {columns} static
  dim Ho
  dim Vo
  let Ho = H - KH + {gone}
  let Vo = -KV + V + {gone}
  require -H + Ho + KH - {gone} == 0
  require KV - V + Vo - {gone} == 0
  tensor X: bf16[B, H, V, P]
  tensor W: bf16[KH, KV, P, Q]
  tensor Y: bf16[B, Ho, Vo, Q] out
  body
    region R0 parallel (b in B each, y in Ho each, x in Vo)
      %acc: f32[x, Q] = full 0.0
      region R1 reduce (r in KH each, s in KV each) carry (%acc.1: f32[x, Q] = %acc) -> (%acc.2)
        %0: i64[x] = coords x
        %1: i64[] = index s - {pad}
        %2: i64[x] = add %0, %1
        %3: bf16[] = full 0.0
        %window: bf16[x, P] = load X[b, r + y - {pad}, %2, P]{" fill %3" if fill else ""}
        %w: bf16[P, Q] = load W[r, s, P, Q]
        %acc.3: f32[x, Q] = mma %window, %w, %acc.1
        yield %acc.3
      %y: bf16[x, Q] = cast %acc.2
      store Y[b, y, x, Q] = %y
"""


def near(width: int, *, block: int = 64, stop: str = "q.stop") -> str:
    """Attention of each query to the `width` keys up to its own, from a multiple of `block` on."""
    first = f"max(0, {block}*((q.start - {width - 1}) // {block}))"
    text = attention("bf16", causal=True).replace("S[0 : min(S, q.stop)]", f"S[{first} : max({first}, min(S, {stop}))]")
    masks = """%after: bool[q, k] = ge %qi, %ki
        %gap: i64[q, k] = sub %qi, %ki
        %width: i64[] = full WIDTH
        %close: bool[q, k] = lt %gap, %width
        %live: bool[q, k] = and %after, %close"""
    text = text.replace("%live: bool[q, k] = ge %qi, %ki", masks.replace("WIDTH", str(width)))
    # A block may hide all of its keys from a query: the maximum begins at a number.
    return text.replace("%m0: f32[q] = full -inf", "%m0: f32[q] = full -1000.0")
