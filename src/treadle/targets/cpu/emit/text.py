"""Writing LLVM IR text: a module of functions, each a list of blocks of lines, with names and 64-bit arithmetic.

Integers of index arithmetic are `Int`: a Python `int` where the value is known now, else the name of an i64. Every
operation folds what is known, so constant subscripts cost no text. Nothing here knows of machine programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from treadle.ir.ops.intrinsic import Meaning

Int = int | str
"""A 64-bit integer: known now, or the name of an SSA value."""

Typed = tuple[str, str]
"""`(type, operand)`."""


class Module:
    """Functions, declarations of the intrinsics they use, and metadata."""

    def __init__(self, width: int = 8, arm: bool = False) -> None:
        self.width = width
        """f32 lanes of the widest register that the text may use."""
        self.arm = arm
        """Whether the text is for aarch64: instructions that have names are its, not those of x86."""
        self._declared: dict[str, str] = {}
        self._functions: list[Function] = []
        self._raw: list[str] = []
        self._metadata: list[str] = []
        self._nodes: dict[str, str] = {}
        self.intrinsics: dict[str, Meaning] = {}
        """The user's own operations that have a text for the target, by name."""

    def function(self, name: str, result: str, params: Sequence[Typed], attributes: str) -> Function:
        """A new function, printed in the order of creation."""
        made = Function(self, name, result, params, attributes)
        self._functions.append(made)
        return made

    def declare(self, name: str, result: str, params: Iterable[str]) -> None:
        """Makes the external function or intrinsic known, once."""
        kinds = ", ".join(p.split(" align ")[0] for p in params)
        self._declared[name] = f"declare {result} @{name}({kinds})"

    def support(self, name: str, text: str) -> None:
        """Adds a whole support function, once."""
        if name not in self._declared:
            self._declared[name] = text

    def own(self, name: str, text: str) -> None:
        """Adds a function of the user's own; what it declares is declared once."""
        declared = re.findall(r"^\s*(declare [^\n]*@([\w.]+)\([^\n]*)$", text, flags=re.M)
        for line, called in declared:
            self.support(called, line)
            text = text.replace(line, "")
        self.support(name, text.strip())

    def metadata(self, node: str) -> str:
        """A metadata node of that text; equal texts share one."""
        if node not in self._nodes:
            self._nodes[node] = f"!{len(self._metadata)}"
            self._metadata.append(f"{self._nodes[node]} = {node}")
        return self._nodes[node]

    def loop_node(self, *properties: str) -> str:
        """A distinct loop node with these property nodes."""
        name = f"!{len(self._metadata)}"
        self._metadata.append(f"{name} = distinct !{{{', '.join([name, *properties])}}}")
        return name

    def __str__(self) -> str:
        parts = [str(f) for f in self._functions]
        parts += ["\n".join(self._declared[name] for name in sorted(self._declared)) + "\n"]
        if self._metadata:
            parts.append("\n".join(self._metadata) + "\n")
        return "\n".join(parts)


class Function:
    """One function under construction: instructions go to the end of the current block."""

    def __init__(self, module: Module, name: str, result: str, params: Sequence[Typed], attributes: str) -> None:
        self.module = module
        self.name = name
        header = ", ".join(f"{t} {n}" for t, n in params)
        linkage = "" if name.startswith("treadle_") else "internal "
        self._head = f"define {linkage}{result} @{name}({header}) {attributes} {{"
        self._allocas: list[str] = []
        self._lines: list[str] = ["start:"]
        self._count = 0
        self.block = "start"

    # ---- lines

    def value(self, text: str) -> str:
        """A new SSA value defined by the instruction."""
        name = f"%v{self._count}"
        self._count += 1
        self._lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}")

    def hold(self) -> int:
        """A place whose instruction is the next one written, to be changed by `patch`."""
        return len(self._lines)

    def patch(self, place: int, text: str) -> None:
        """Replaces the instruction at a held place."""
        self._lines[place] = f"  {text}"

    def note(self, text: str) -> None:
        """A comment line."""
        self._lines.append(f"  ; {text}")

    def alloca(self, kind: str, align: int) -> str:
        """Memory of the function's frame."""
        name = f"%a{self._count}"
        self._count += 1
        self._allocas.append(f"  {name} = alloca {kind}, align {align}")
        return name

    def label(self, hint: str) -> str:
        """A fresh label."""
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, label: str) -> None:
        """Begins the block of that label."""
        self._lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """Ends the block."""
        self.do(f"br label %{label}")

    def guarded(self, active: str | None, emit: Callable[[], None]) -> None:
        """What `emit` emits, executed where the i1 `active` is set; always, where there is none."""
        if active is None:
            emit()
            return
        yes, done = self.label("active"), self.label("after")
        self.branch(active, yes, done)
        self.start(yes)
        emit()
        self.jump(done)
        self.start(done)

    def branch(self, condition: str, then: str, orelse: str, extra: str = "") -> None:
        """Ends the block with a choice."""
        self.do(f"br i1 {condition}, label %{then}, label %{orelse}{extra}")

    def call(self, result: str, name: str, args: Sequence[Typed], extra: str = "") -> str:
        """A call of an intrinsic or external function; the result's name, "" for void."""
        self.module.declare(name, result, [t for t, _ in args])
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)}){extra}"
        if result == "void":
            self.do(text)
            return ""
        return self.value(text)

    def fence_streams(self) -> None:
        """Orders non-temporal stores before what follows. Those of aarch64 are ordered as other stores are."""
        if not self.module.arm:
            self.call("void", "llvm.x86.sse.sfence", [])

    # ---- 64-bit arithmetic

    def add(self, a: Int, b: Int) -> Int:
        """a + b."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0:
            return b
        return a if b == 0 else self.value(f"add i64 {a}, {b}")

    def add_held(self, a: Int, b: Int) -> Int:
        """a + b, or the nearest number that 64 bits hold."""
        if (isinstance(a, int) and isinstance(b, int)) or a == 0 or b == 0:
            return self.add(a, b)
        return self.call("i64", "llvm.sadd.sat.i64", [("i64", str(a)), ("i64", str(b))])

    def sub_held(self, a: Int, b: Int) -> Int:
        """a - b, or the nearest number that 64 bits hold."""
        if (isinstance(a, int) and isinstance(b, int)) or b == 0:
            return self.sub(a, b)
        return self.call("i64", "llvm.ssub.sat.i64", [("i64", str(a)), ("i64", str(b))])

    def sub(self, a: Int, b: Int) -> Int:
        """a - b."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.value(f"sub i64 {a}, {b}")

    def mul(self, a: Int, b: Int) -> Int:
        """a * b."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1:
            return b
        return a if b == 1 else self.value(f"mul i64 {a}, {b}")

    def smin(self, a: Int, b: Int) -> Int:
        """The smaller."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.call("i64", "llvm.smin.i64", [("i64", str(a)), ("i64", str(b))])

    def smax(self, a: Int, b: Int) -> Int:
        """The larger."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.call("i64", "llvm.smax.i64", [("i64", str(a)), ("i64", str(b))])

    def floordiv(self, a: Int, b: Int) -> Int:
        """floor(a / b) for b > 0, exact for negative a. A divisor below 1 counts as 1: an extent of 0 must not trap."""
        if isinstance(a, int) and isinstance(b, int):
            return a // max(b, 1)
        if isinstance(b, int) and b & (b - 1) == 0:
            return a if b == 1 else self.value(f"ashr i64 {a}, {b.bit_length() - 1}")
        b = self.smax(b, 1)
        quotient = self.value(f"sdiv i64 {a}, {b}")
        rest = self.value(f"sub i64 {a}, {self.value(f'mul i64 {quotient}, {b}')}")
        below = self.value(f"ashr i64 {rest}, 63")  # -1 where the remainder is negative
        return self.value(f"add i64 {quotient}, {below}")

    def compare(self, how: str, a: Int, b: Int) -> str:
        """An i1: `how` is eq, ne, slt, sle, sgt, sge."""
        return self.value(f"icmp {how} i64 {a}, {b}")

    def select(self, condition: str, a: Int, b: Int) -> Int:
        """a where the condition holds, else b."""
        return a if a == b else self.value(f"select i1 {condition}, i64 {a}, i64 {b}")

    def both(self, a: str | None, b: str) -> str:
        """a and b; None stands for true."""
        return b if a is None else self.value(f"and i1 {a}, {b}")

    def __str__(self) -> str:
        first, *rest = self._lines
        return "\n".join([self._head, first, *self._allocas, *rest, "}"]) + "\n"
