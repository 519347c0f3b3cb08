"""What emission of a role's body knows and writes: symbols, fragments, storages, lines.

`Kernel-wide` things are shared by all scopes; a `Scope` adds the unit that executes (a thread, a warp, a whole agent)
and the symbols that are bound where it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from treadle.algebra.expr import ZERO, Constraint, Expr, Fn, lt, sym
from treadle.dtype.formats import DType
from treadle.machine.form import Counter as MachineCounter
from treadle.machine.form import Frag, Stmt
from treadle.targets.cuda.emit.arith import Arith
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.exponent import Scaled
from treadle.targets.cuda.emit.fragments import Layout, lane_bit, layout, part_text, spare_text, warp_bit
from treadle.targets.cuda.emit.index import FAR, INT_MAX, Known, Symbols, symbol
from treadle.targets.cuda.emit.prelude import Prelude
from treadle.targets.cuda.emit.storage import SharedPlan, Storage
from treadle.targets.cuda.emit.values import HALVES, Val, ctype, packed


@dataclass
class KernelSetting:
    """What is the same everywhere in a kernel."""

    name: str
    arch: str
    prelude: Prelude
    arith: Arith
    frags: dict[str, Frag]
    storages: dict[str, Storage]
    shared: SharedPlan
    maps: dict[str, tuple[str, tuple[int, ...]]]
    """Map name -> text of its parameter, and the tensor's axes from the innermost dimension of the map outward."""
    scalars: dict[str, Val]
    threads: int
    counts: Counter[str] = field(default_factory=Counter[str])
    limits: list[tuple[Expr, int]] = field(default_factory=list[tuple[Expr, int]])
    """Expressions that a launch must hold against a largest value."""
    wide_fence: bool = False
    landing: dict[int, tuple[str, ...]] = field(default_factory=dict[int, "tuple[str, ...]"])
    ready: dict[int, tuple[str, ...]] = field(default_factory=dict[int, "tuple[str, ...]"])
    """`id` of a wait for a turn -> fragments that its contractions read, computed before it."""
    scaled: dict[int, Scaled] = field(default_factory=dict[int, Scaled])
    """`id` of an exponential -> the multiply-add that makes its argument."""
    once: frozenset[str] = frozenset()
    """Fragments of the role that one statement assigns."""
    narrow: dict[str, str] = field(default_factory=dict[str, str])
    """Fragments of f32 that are held as pairs of bf16 -> the registers of the pairs."""
    later: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    """`id` of a barrier -> fragments that are read behind it."""
    absorbed: frozenset[int] = frozenset()
    """`id`s of those multiply-adds."""
    unrolled: frozenset[str] = frozenset()
    unsigned: frozenset[str] = frozenset()
    """Fragments without numbers below zero."""
    unwritten: frozenset[str] = frozenset()
    """Tensors that no kernel of the program writes, nor anything that overlaps them."""
    cluster: int = 1
    """Workgroups of a cluster."""
    counters: dict[str, MachineCounter] = field(default_factory=dict[str, MachineCounter])
    """Counters in global memory, whose address is a variable of the kernel."""
    apart: bool = False
    """Whether several roles run the tasks that a workgroup draws."""
    meetings: dict[int, int] = field(default_factory=dict[int, int])
    counted: bool = False  # workgroups meet in loops: each thread counts how often
    """`id` of a meeting of all workgroups -> its number in the launch, from 1."""

    @property
    def hopper(self) -> bool:
        """Whether the architecture has barriers with phases, the copy engine and warpgroup mma."""
        return self.arch.startswith("sm_90")

    def need_hopper(self, what: str) -> None:
        """Errors: emit/cuda-unsupported on older architectures."""
        if not self.hopper:
            raise unsupported(f"{what} for {self.arch}", "sm_90a")


@dataclass
class Head:
    """Declarations at the head of a role: thread parts and register arrays."""

    lines: list[str] = field(default_factory=list[str])
    parts: dict[Expr, str] = field(default_factory=dict[Expr, str])
    bits: dict[str, Expr] = field(default_factory=dict[str, Expr])
    registers: dict[str, int] = field(default_factory=dict[str, int])
    temporaries: int = 0

    def fresh(self, hint: str) -> str:
        """A name that nothing else in the role has."""
        self.temporaries += 1
        return f"{hint}{self.temporaries}"


@dataclass
class Scope:
    """A place in a role's body. `lanes`, `warps`: the threads that execute a statement together; `single`: the text
    of a condition that holds in one of them, `first_lane` in one of each warp."""

    setting: KernelSetting
    head: Head
    symbols: Symbols
    lanes: int
    warps: int
    single: str
    lines: list[str] = field(default_factory=list[str])
    depth: int = 1
    elected: bool = False
    turning: str = ""
    """The variable of the loop around, of which several iterations are scheduled together."""

    # ---- text

    def line(self, text: str) -> None:
        """A line of the body."""
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Generator[None]:
        """Lines inside braces."""
        self.line(opening)
        self.depth += 1
        yield
        self.depth -= 1
        self.line(closing)

    def child(self) -> Scope:
        """A scope inside, which writes to the same lines."""
        return replace(self, symbols=self.symbols.child())

    def use(self, name: str) -> str:
        """A part of the prelude."""
        return self.setting.prelude.use(name)

    # ---- fragments

    def layout(self, name: str) -> Layout:
        """A fragment's layout here; declares its registers."""
        frag = self.setting.frags.get(name)
        if frag is None:
            raise ill_formed(f"the fragment {name}", "a declared fragment")
        key = (name, self.lanes, self.warps)
        made = _LAYOUTS.get((frag, self.lanes, self.warps))
        if made is None:
            made = _LAYOUTS[(frag, self.lanes, self.warps)] = layout(frag, self.lanes, self.warps)
        known = self.head.registers.get(name)
        if known is None:
            self.head.registers[name] = made.registers
            self.head.lines.append(f"{made.element_type} {register(name)}[{made.registers}];")
        elif known != made.registers:
            raise ill_formed(f"{name} held by {key[1]} x {key[2]} threads and by others", "one kind of agent")
        return made

    def part(self, bits: Expr) -> Expr:
        """The symbol of a thread part; its variable stands at the head of the role."""
        if bits == ZERO:
            return ZERO
        name = self.head.parts.get(bits)
        if name is None:
            name = f"@t{len(self.head.parts)}"
            self.head.parts[bits] = name
            self.head.bits[name] = bits
            self.head.lines.append(f"const int t{name[2:]} = {part_text(bits)};")
        if name not in self.symbols.known:
            known = self.symbols.render(bits)
            self.symbols.known[name] = symbol(f"t{name[2:]}", known.lo, known.hi, known.by)
        return sym(name)

    def point(self, made: Layout, slot: int) -> dict[str, Expr]:
        """`$i` at a slot, as thread parts and numbers: for addresses and masks."""
        return {f"${i}": self.part(p) + c for i, (p, c) in enumerate(zip(made.parts, made.slots[slot]))}

    def place(self, made: Layout, slot: int) -> dict[str, Expr]:
        """`$i` at a slot, as thread bits and numbers: for other fragments."""
        return {f"${i}": c for i, c in enumerate(made.coords(slot))}

    def source(self, name: str, coords: Sequence[Expr], env: dict[str, Expr]) -> int:
        """The slot of fragment `name` at `coords` (in `$i`, which `env` gives as thread bits)."""
        made = self.layout(name)
        if not made.frag.shape:
            return 0
        resolved = [self.symbols.decided(self.symbols.replaced(c).substitute(env)) for c in coords]
        slot = made.find(resolved)
        if slot is None:
            text = ", ".join(map(str, coords))
            raise unsupported(
                f"the element {name}[{text}], which another thread or no constant register holds",
                "an element that the executing thread holds",
                "distribute both fragments alike, or go through shared memory",
            )
        return slot

    def read(self, name: str, slot: int) -> Val:
        """A slot of a fragment."""
        made = self.layout(name)
        pairs = self.setting.narrow.get(name)
        if pairs is not None:
            word = f"{pairs}[{slot // 2}]"
            return Val(f"__uint_as_float({f'{word} & 0xffff0000u' if slot % 2 else f'{word} << 16'})", made.frag.dtype)
        if not made.packed:
            return Val(f"{register(name)}[{slot}]", made.frag.dtype)
        word = f"{register(name)}[{slot // 2}]"
        return Val(f"(u16)({word} >> 16)" if slot % 2 else f"(u16){word}", made.frag.dtype)

    def assign(self, name: str, values: Sequence[Val]) -> None:
        """Every slot of a fragment."""
        made = self.layout(name)
        array = register(name)
        if made.packed:
            for i in range(made.registers):
                self.line(f"{array}[{i}] = {packed(values[2 * i], values[2 * i + 1], self.setting.prelude)};")
            return
        texts = [v.text if v.dtype not in HALVES else _bits(v, self.setting.prelude) for v in values]
        if len(texts) > 4 and len(set(texts)) == 1:
            self.line("#pragma unroll")
            self.line(f"for (int i = 0; i < {len(texts)}; i++) {array}[i] = {texts[0]};")
            return
        for i, text in enumerate(texts):
            self.line(f"{array}[{i}] = {text};")

    def owner(self, made: Layout) -> str | None:
        """A condition for one of several holders of the same slots."""
        return spare_text(made.spare)

    # ---- index expressions

    def element(self, fn: Fn) -> Known:
        """A fragment's element or a scalar argument inside an index expression."""
        scalar = self.setting.scalars.get(fn.name)
        if scalar is not None:
            return integer(scalar)
        if fn.name not in self.setting.frags:
            raise ill_formed(f"{fn} in an index expression", "an integer fragment or a scalar argument")
        coords = [a.substitute(self.head.bits) for a in fn.args]
        return integer(self.read(fn.name, self.source(fn.name, coords, {})))

    def text(self, expr: Expr) -> str:
        """An index expression as C++."""
        return self.symbols.text(expr).text

    def number(self, expr: Expr, what: str) -> int:
        """The value of an expression that must be a number here."""
        value = self.symbols.text(expr).number
        if value is None:
            raise unsupported(f"{what} {expr}, which is no number", "a number")
        return value

    def conditions(self, where: Sequence[Constraint], env: dict[str, Expr]) -> str | None:
        """A conjunction at one slot; None where it always holds."""
        parts: list[str] = []
        for fact in where:
            text = self.symbols.condition(fact.substitute(env))
            if text is not None and text not in parts:
                parts.append(text)
        return " && ".join(parts) or None

    def inside(self, made: Layout) -> tuple[Constraint, ...]:
        """Constraints on `$i` that keep slots inside the fragment's shape."""
        return tuple(lt(sym(f"${a}"), made.frag.shape[a]) for a in made.short)


_LAYOUTS: dict[tuple[Frag, int, int], Layout] = {}


def register(name: str) -> str:
    """The register array of a fragment."""
    return f"f_{name}"


def _bits(value: Val, prelude: Prelude) -> str:
    return value.text if value.wide is None else f"{prelude.use(f'to_{value.dtype.name}')}({value.wide})"


def integer(value: Val) -> Known:
    """An integer or bool value as part of an index expression."""
    return _integer(value.text, value.dtype)


def _integer(text: str, dtype: DType) -> Known:
    if dtype.is_float:
        raise ill_formed(f"a {dtype} in an index expression", "an integer")
    if dtype.is_bool:
        return Known(f"(int){text}", 0, 1)
    if dtype.bits == 64:
        return Known(f"(i64){text}" if dtype.kind == "uint" else text, -FAR, FAR, 1, True)
    if dtype.bits == 32:
        if dtype.kind == "uint":
            return Known(f"(i64){text}", 0, 2 * INT_MAX + 1, 1, True)
        return Known(text, -INT_MAX, INT_MAX)
    return Known(f"(int){text}", int(dtype.finite_min), int(dtype.finite_max))


def bit_symbols(lanes: int, warps: int) -> dict[str, Known]:
    """The thread bits that exist, for intervals only."""
    names = [lane_bit(i) for i in range((lanes - 1).bit_length())]
    names += [warp_bit(i) for i in range((warps - 1).bit_length())]
    return {n: symbol(n, 0, 1) for n in names}


def describe(stmt: Stmt) -> str:
    """What a message calls a statement."""
    return type(stmt).__name__.lower()


__all__ = ["Head", "KernelSetting", "Scope", "bit_symbols", "ctype", "describe", "integer", "register"]
