"""AMX by hand: LLVM IR of a packed bf16 GEMM (f32 out) and its object. amx_device.py runs it.

`python amx.py` writes build/amx.ll, build/amx.s and build/amx.o, on any x86-64 machine with llvmlite.
One line of IR text here is one line of amx_gemm.machine.txt; loops are the text's loops.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import time
from collections.abc import Iterator

import llvmlite.binding as llvm

HERE = pathlib.Path(__file__).parent
BUILD = HERE / "build"
TRIPLE = "x86_64-unknown-linux-gnu"
FEATURES = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+amx-tile,+amx-bf16"
TILE = 1024  # bytes of one 16 x 64-byte tile
BLOCK_M, BLOCK_N, BLOCK_K = 16, 32, 8  # tiles of C rows, C columns, depth: 256 x 512 x 256 elements


class Text:
    """IR text with the one kind of loop that is needed: count up, test at the head."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self.counter = 0

    def __call__(self, line: str) -> None:
        self.lines.append("  " + line)

    def name(self) -> str:
        self.counter += 1
        return f"%t{self.counter}"

    def value(self, op: str) -> str:
        name = self.name()
        self(f"{name} = {op}")
        return name

    def label(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    @contextlib.contextmanager
    def loop(self, var: str, lo: str, hi: str, step: int = 1) -> Iterator[str]:
        self.counter += 1
        tag = f"{var}.{self.counter}"
        self(f"br label %{tag}.head")
        before = self.block
        self.label(f"{tag}.head")
        self(f"%{tag} = phi i64 [ {lo}, %{before} ], [ %{tag}.next, %{tag}.latch ]")
        self(f"%{tag}.more = icmp slt i64 %{tag}, {hi}")
        self(f"br i1 %{tag}.more, label %{tag}.body, label %{tag}.exit")
        self.label(f"{tag}.body")
        yield f"%{tag}"
        self(f"br label %{tag}.latch")
        self.label(f"{tag}.latch")
        self(f"%{tag}.next = add i64 %{tag}, {step}")
        self(f"br label %{tag}.head")
        self.label(f"{tag}.exit")

    def least(self, a: str, b: str) -> str:
        return self.value(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def at(self, base: str, *terms: tuple[str, str | int]) -> str:
        """base + sum of index * bytes."""
        total = "0"
        for index, size in terms:
            total = self.value(f"add i64 {total}, {self.value(f'mul i64 {index}, {size}')}")
        return self.value(f"getelementptr i8, ptr {base}, i64 {total}")

    def mask(self, lanes: int, left: str) -> str:
        """Lane l is on where l < left."""
        short = self.value(
            f"trunc i64 {self.least(self.value(f'call i64 @llvm.smax.i64(i64 {left}, i64 0)'), '64')} to i32"
        )
        one = self.value(f"insertelement <{lanes} x i32> poison, i32 {short}, i64 0")
        splat = self.value(
            f"shufflevector <{lanes} x i32> {one}, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer"
        )
        iota = ", ".join(f"i32 {i}" for i in range(lanes))
        return self.value(f"icmp slt <{lanes} x i32> <{iota}>, {splat}")


def left_if(t: Text, inside: str, count: str) -> str:
    return t.value(f"select i1 {inside}, i64 {count}, i64 0")


def tile_number(t: Text, layout: str, panel: str, kt: str, panels: str) -> str:
    """Where tile (panel, kt) lies: flat is [panel, kt]; blocked [kt div 8, panel, kt mod 8]: dense depth blocks."""
    if layout == "flat":
        return t.value(f"add i64 {t.value(f'mul i64 {panel}, %kt')}, {kt}")
    k0 = t.value(f"mul i64 {t.value(f'udiv i64 {kt}, {BLOCK_K}')}, {BLOCK_K}")
    width = t.least(t.value(f"sub i64 %kt, {k0}"), str(BLOCK_K))
    inner = t.value(f"add i64 {t.value(f'mul i64 {panel}, {width}')}, {t.value(f'sub i64 {kt}, {k0}')}")
    return t.value(f"add i64 {t.value(f'mul i64 {k0}, {panels}')}, {inner}")


def pack_a(layout: str) -> str:
    """pa[mi, kt, r, 0..32) = A[16 mi + r, 32 kt + .], zero outside."""
    t = Text()
    with t.loop("mi", "0", "%mt") as mi, t.loop("kt", "0", "%kt") as kt, t.loop("r", "0", "16") as r:
        row = t.value(f"add i64 {t.value(f'mul i64 {mi}, 16')}, {r}")
        k0 = t.value(f"mul i64 {kt}, 32")
        left = left_if(t, t.value(f"icmp slt i64 {row}, %m"), t.value(f"sub i64 %k, {k0}"))
        source = t.at("%a", (row, "%lda"), (k0, 2))
        v = t.value(
            f"call <32 x i16> @llvm.masked.load.v32i16.p0(ptr {source}, i32 2, <32 x i1> {t.mask(32, left)}, "
            "<32 x i16> zeroinitializer)"
        )
        tile = tile_number(t, layout, mi, kt, "%mt")
        t(f"store <32 x i16> {v}, ptr {t.at('%pa', (tile, TILE), (r, 64))}, align 64")
    return function(f"pack_a_{layout}", "ptr %a, i64 %lda, ptr %pa, i64 %m, i64 %k, i64 %mt, i64 %kt", t)


def pack_b(layout: str) -> str:
    """pb[nj, kt, p, 2 j + h] = B[32 kt + 2 p + h, 16 nj + j], zero outside: the pairs that the tile product reads."""
    t = Text()
    pairs = ", ".join(f"i32 {i // 2 + 16 * (i % 2)}" for i in range(32))
    with t.loop("nj", "0", "%nt") as nj, t.loop("kt", "0", "%kt") as kt, t.loop("p", "0", "16") as p:
        n0 = t.value(f"mul i64 {nj}, 16")
        rows = []
        for h in (0, 1):
            even = t.value(f"add i64 {t.value(f'mul i64 {kt}, 32')}, {t.value(f'mul i64 {p}, 2')}")
            k = t.value(f"add i64 {even}, {h}")
            left = left_if(t, t.value(f"icmp slt i64 {k}, %k"), t.value(f"sub i64 %n, {n0}"))
            source = t.at("%b", (k, "%ldb"), (n0, 2))
            rows.append(
                t.value(
                    f"call <16 x i16> @llvm.masked.load.v16i16.p0(ptr {source}, i32 2, <16 x i1> {t.mask(16, left)}, "
                    "<16 x i16> zeroinitializer)"
                )
            )
        v = t.value(f"shufflevector <16 x i16> {rows[0]}, <16 x i16> {rows[1]}, <32 x i32> <{pairs}>")
        tile = tile_number(t, layout, nj, kt, "%nt")
        t(f"store <32 x i16> {v}, ptr {t.at('%pb', (tile, TILE), (p, 64))}, align 64")
    return function(f"pack_b_{layout}", "ptr %b, i64 %ldb, ptr %pb, i64 %n, i64 %k, i64 %nt, i64 %kt", t)


def tile_load(t: Text, tile: int, address: str) -> None:
    t(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {address}, i64 64)")


def multiply(layout: str, prefetch: bool) -> str:
    """C from pa and pb; tiles 0-3 accumulate, 4-5 hold A, 6-7 hold B. The configuration is loaded once and released."""
    t = Text()
    t("call void @llvm.x86.ldtilecfg(ptr @config)")
    with t.loop("m0", "0", "%mt", BLOCK_M) as m0, t.loop("n0", "0", "%nt", BLOCK_N) as n0:
        m_end = t.least(t.value(f"add i64 {m0}, {BLOCK_M}"), "%mt")
        n_end = t.least(t.value(f"add i64 {n0}, {BLOCK_N}"), "%nt")
        with t.loop("k0", "0", "%kt", BLOCK_K) as k0:
            k_end = t.least(t.value(f"add i64 {k0}, {BLOCK_K}"), "%kt")
            first = t.value(f"icmp eq i64 {k0}, 0")
            with t.loop("nj", n0, n_end, 2) as nj, t.loop("mi", m0, m_end, 2) as mi:
                c = [
                    t.at(
                        "%scratch",
                        (t.value(f"sub i64 {mi}, {m0}"), BLOCK_N * TILE),
                        (t.value(f"sub i64 {nj}, {n0}"), TILE),
                        ("1", i * BLOCK_N * TILE + j * TILE),
                    )
                    for i in (0, 1)
                    for j in (0, 1)
                ]
                tag = f"start{t.counter}"
                t(f"br i1 {first}, label %{tag}.zero, label %{tag}.load")
                t.label(f"{tag}.zero")
                for i in range(4):
                    t(f"call void @llvm.x86.tilezero(i8 {i})")
                t(f"br label %{tag}.go")
                t.label(f"{tag}.load")
                for i in range(4):
                    tile_load(t, i, c[i])
                t(f"br label %{tag}.go")
                t.label(f"{tag}.go")
                width = t.value(f"sub i64 {k_end}, {k0}")
                if layout == "flat":
                    depth = t.value(f"mul i64 %kt, {TILE}")
                    a0, b0 = t.at("%pa", (mi, depth), (k0, TILE)), t.at("%pb", (nj, depth), (k0, TILE))
                else:
                    depth = t.value(f"mul i64 {width}, {TILE}")
                    a0 = t.at("%pa", (t.value(f"mul i64 {k0}, %mt"), TILE), (mi, depth))
                    b0 = t.at("%pb", (t.value(f"mul i64 {k0}, %nt"), TILE), (nj, depth))
                if prefetch:  # this m pair brings its share of the next pair of B panels
                    share = t.value(f"mul i64 {t.value(f'sub i64 {mi}, {m0}')}, {width}")
                    ahead = t.at(b0, ("2", depth), (share, 128))
                with t.loop("kt", "0", width) as kt:
                    at = t.value(f"mul i64 {kt}, {TILE}")
                    far = t.value(f"add i64 {at}, {depth}")
                    if prefetch:
                        near = t.at(ahead, (kt, 256))
                        for line in range(4):
                            place = t.value(f"getelementptr i8, ptr {near}, i64 {64 * line}")
                            t(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")
                    tile_load(t, 6, t.value(f"getelementptr i8, ptr {b0}, i64 {at}"))
                    tile_load(t, 4, t.value(f"getelementptr i8, ptr {a0}, i64 {at}"))
                    t("call void @llvm.x86.tdpbf16ps(i8 0, i8 4, i8 6)")
                    tile_load(t, 5, t.value(f"getelementptr i8, ptr {a0}, i64 {far}"))
                    t("call void @llvm.x86.tdpbf16ps(i8 2, i8 5, i8 6)")
                    tile_load(t, 7, t.value(f"getelementptr i8, ptr {b0}, i64 {far}"))
                    t("call void @llvm.x86.tdpbf16ps(i8 1, i8 4, i8 7)")
                    t("call void @llvm.x86.tdpbf16ps(i8 3, i8 5, i8 7)")
                for i in range(4):
                    t(f"call void @llvm.x86.tilestored64(i8 {i}, ptr {c[i]}, i64 64)")
        with t.loop("mi", m0, m_end) as mi, t.loop("r", "0", "16") as r:
            row = t.value(f"add i64 {t.value(f'mul i64 {mi}, 16')}, {r}")
            inside = t.value(f"icmp slt i64 {row}, %m")
            with t.loop("nj", n0, n_end) as nj:
                column = t.value(f"mul i64 {nj}, 16")
                left = left_if(t, inside, t.value(f"sub i64 %n, {column}"))
                source = t.at(
                    "%scratch",
                    (t.value(f"sub i64 {mi}, {m0}"), BLOCK_N * TILE),
                    (t.value(f"sub i64 {nj}, {n0}"), TILE),
                    (r, 64),
                )
                v = t.value(f"load <16 x float>, ptr {source}, align 64")
                target = t.at("%c", (row, "%ldc"), (column, 4))
                on = t.mask(16, left)
                t(f"call void @llvm.masked.store.v16f32.p0(<16 x float> {v}, ptr {target}, i32 4, <16 x i1> {on})")
    t("call void @llvm.x86.tilerelease()")
    return function(
        f"multiply_{layout}{'_prefetch' * prefetch}",
        "ptr %pa, ptr %pb, ptr %scratch, ptr %c, i64 %ldc, i64 %m, i64 %n, i64 %mt, i64 %nt, i64 %kt",
        t,
    )


def peak() -> str:
    """Four independent tile products a step, registers only."""
    t = Text()
    t("call void @llvm.x86.ldtilecfg(ptr @config)")
    for i in range(8):
        t(f"call void @llvm.x86.tilezero(i8 {i})")
    with t.loop("i", "0", "%steps"):
        for i in range(4):
            t(f"call void @llvm.x86.tdpbf16ps(i8 {i}, i8 {4 + i // 2}, i8 {6 + i % 2})")
    t("call void @llvm.x86.tilerelease()")
    return function("peak", "i64 %steps", t)


def function(name: str, parameters: str, t: Text) -> str:
    noalias = re.sub(r"ptr (%\w+)", r"ptr noalias \1", parameters)
    return f"define void @{name}({noalias}) nounwind {{\nentry:\n" + "\n".join(t.lines) + "\n  ret void\n}\n"


def config() -> str:
    """The 64 bytes: palette 1, eight tiles of 16 rows of 64 bytes."""
    data = bytearray(64)
    data[0] = 1
    for tile in range(8):
        data[16 + 2 * tile] = 64
        data[48 + tile] = 16
    return "@config = private constant [64 x i8] [" + ", ".join(f"i8 {b}" for b in data) + "], align 64\n"


DECLARATIONS = """declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)
declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare <32 x i16> @llvm.masked.load.v32i16.p0(ptr, i32 immarg, <32 x i1>, <32 x i16>)
declare <16 x i16> @llvm.masked.load.v16i16.p0(ptr, i32 immarg, <16 x i1>, <16 x i16>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32 immarg, <16 x i1>)
"""


def emit() -> str:
    return (
        f'target triple = "{TRIPLE}"\n'
        + DECLARATIONS
        + config()
        + "".join(pack_a(layout) + pack_b(layout) + multiply(layout, False) for layout in ("flat", "blocked"))
        + multiply("blocked", True)
        + peak()
    )


def build() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    BUILD.mkdir(exist_ok=True)
    text = emit()
    (BUILD / "amx.ll").write_text(text)
    started = time.perf_counter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu="x86-64", features=FEATURES, opt=3, reloc="pic", codemodel="default"
    )
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    data = machine.emit_object(module)
    seconds = time.perf_counter() - started
    (BUILD / "amx.o").write_bytes(data)
    assembly = machine.emit_assembly(module)
    (BUILD / "amx.s").write_text(assembly)
    part = assembly.split("multiply_blocked_prefetch:")[1].split(".Lfunc_end")[0]
    counts = {
        op: len(re.findall(rf"\b{op}\b", part))
        for op in "ldtilecfg tilerelease prefetcht0 tilezero tileloadd tilestored tdpbf16ps vzeroupper".split()
    }
    counts["stack_bytes"] = sum(int(n) for n in re.findall(r"subq\s+\$(\d+), %rsp", part))
    print(f"{len(text.splitlines())} lines of IR, {len(data)} bytes of object, {seconds:.3f} s, multiply: {counts}")


if __name__ == "__main__":
    build()
