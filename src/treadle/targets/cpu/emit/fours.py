"""Fours of signed bytes on x86, whose instruction takes an unsigned factor and a signed one.

128 is added to the bytes of one factor, and what that adds to a sum is taken off again: `a b = (a + 128) b - 128 b`,
all of it modulo 2^32. Buffers whose bytes are nothing but such factors hold them with 128 added (`shifted`): they are
moved where they are packed. What is to be taken off is kept out of inner loops by `owed.py`.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.dtype.formats import i8
from treadle.machine.form import Frag, FragRef, Load, MachineProgram, MemRef, Mma, Role, Stmt, Store, walk
from treadle.targets.cpu.emit.errors import unsupported
from treadle.targets.cpu.emit.index import coordinate
from treadle.targets.cpu.emit.lanes import Vec
from treadle.targets.cpu.emit.layouts import memory_operands, reads, written
from treadle.targets.cpu.emit.registers import Registers

FOURS = "dpbssd"
GROUP = 4

FLIP = -0x7F7F7F80
"""128 in each byte of 32 bits: added to a signed byte it gives an unsigned one, and the other way round."""

SUFFIX = {16: "512", 8: "256", 4: "128"}
"""The end of an instruction's name, by lanes of 32 bits."""

Operand = FragRef | MemRef


def factors(stmt: Mma, rank: int) -> tuple[Operand, Operand]:
    """The factor that is made unsigned, then the other: the one that is the same for all lanes, if only one is."""
    lane = coordinate(rank - 1)
    first, second = (
        isinstance(r, FragRef) and any(lane in e.symbols for e in r.coords or ()) for r in (stmt.a, stmt.b)
    )
    return (stmt.b, stmt.a) if first and not second else (stmt.a, stmt.b)


# ---- buffers of bytes with 128 added


def shifted(program: MachineProgram) -> frozenset[str]:
    """Buffers that hold their bytes with 128 added: all that is read of them are unsigned factors.

    *Ensures*: they are stored to plainly, and every fragment that is loaded from one of them is loaded from no other
    memory, without a fill, and used as an unsigned factor alone (`unsigned`).
    """
    buffers = {b.name for b in program.host.workspace if b.dtype == i8}
    buffers |= {b.name for k in program.kernels for b in k.buffers if b.dtype == i8}
    for stmt in program.statements():
        if isinstance(stmt, Load) or (isinstance(stmt, Store) and stmt.effect == "set" and stmt.old is None):
            continue
        buffers -= {ref.name for ref in memory_operands(stmt)}
    while True:
        refused: set[str] = set()
        for kernel in program.kernels:
            frags = {f.name: f for f in kernel.frags}
            for role in kernel.roles:
                alone = unsigned(role, frags, frozenset(buffers))
                refused |= {
                    s.src.name
                    for s in walk(role.body)
                    if isinstance(s, Load) and s.src.name in buffers and s.dst not in alone
                }
        if not refused:
            return frozenset(buffers)
        buffers -= refused


def unsigned(role: Role, frags: dict[str, Frag], buffers: frozenset[str]) -> frozenset[str]:
    """Fragments that are loaded from these buffers alone, and are unsigned factors alone."""
    found: set[str] = set()
    others: set[str] = set()
    for stmt in walk(role.body):
        names = {name for name, _, _ in reads(stmt, frags)}
        if isinstance(stmt, Mma) and stmt.atom == FOURS:
            one, other = factors(stmt, len(frags[stmt.dst].shape))
            others |= {r.name for r in (other, stmt.acc) if isinstance(r, FragRef)}
            names -= {r.name for r in (one, other) if isinstance(r, FragRef)}
        others |= names
        if isinstance(stmt, Load):
            plain = stmt.src.name in buffers and (not stmt.where or stmt.fill == "undef")
            (found if plain else others).add(stmt.dst)
        elif isinstance(stmt, Stmt):
            others |= written([stmt])
    return frozenset(found - others)


def moved(registers: Registers, value: Vec) -> Vec:
    """Groups or bytes with 128 added to each, or taken off."""
    bits = str(FLIP) if value.dtype.bits == 32 else "-128"
    kind = f"i{value.dtype.bits}"
    if value.lanes is not None:
        bits = f"splat ({kind} {bits})"
    return replace(value, text=registers.fn.value(f"xor {value.type} {value.text}, {bits}"))


# ---- the instruction


def excess(registers: Registers, onto: str, signed: Vec) -> str:
    """`onto + 128 (b0 + b1 + b2 + b3)`."""
    kind, flip = f"<{signed.lanes} x i32>", f"splat (i32 {FLIP})"
    return registers.fn.call(kind, instruction(signed.lanes), [(kind, onto), (kind, flip), (kind, signed.text)])


def products(registers: Registers, total: Vec, left: Vec, right: Vec) -> Vec:
    """The sum of an unsigned factor's products with a signed one's, onto the total."""
    kind = total.type
    args = [(kind, total.text), (kind, left.text), (kind, right.text)]
    return replace(total, text=registers.fn.call(kind, instruction(total.lanes), args))


def instruction(lanes: int | None) -> str:
    """Its name for so many sums."""
    if lanes not in SUFFIX:
        raise unsupported(f"{FOURS} on {lanes} columns", "a multiple of 16 columns")
    return f"llvm.x86.avx512.vpdpbusd.{SUFFIX[lanes]}"
