"""Reading programs from the text that `printer.py` writes; the grammar is shown there by example."""

from __future__ import annotations

from typing import cast

from treadle.algebra.dims import Dim
from treadle.algebra.expr import const, sym
from treadle.algebra.expr_text import SIGILS, read_constraint, read_expr
from treadle.base.text import Line, Lines, Tokens
from treadle.ir.core import (
    Block,
    If,
    Merge,
    Op,
    Order,
    Program,
    Region,
    RegionArg,
    RegionKind,
    ScalarParam,
    Tensor,
    TileType,
    Value,
)
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import ELEMENTWISE, Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import ArgReduce, Fold, Mma, Reduce, Scan, Sort
from treadle.ir.ops.intrinsic import Intrinsic, Meaning
from treadle.ir.references import References

ORDERS = ("unordered", "ordered", "fold_left", "fold_right")
KINDS = ("parallel", "serial", "pipeline", "reduce")


def parse_program(text: str, file: str = "<program>") -> Program:
    """The program that `text` says.

    *Ensures*: it prints as the text of the program it was printed from.

    *Errors*: `text/syntax`.
    """
    lines = Lines(text, file, sigils=SIGILS, doing="reading a program")
    program = read_program(lines)
    rest = lines.peek()
    if rest is not None:
        raise lines.error(rest, "the end of the program")
    return program


def read_program(lines: Lines) -> Program:
    """A program from the next lines: a `program` line and what is indented below it."""
    return _Reader(lines).program()


class _Reader(References):
    """Reads one program."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self.lines = lines
        self.meanings: dict[str, Meaning] = {}

    # ---- the head

    def program(self) -> Program:
        head = self.lines.next()
        tokens = self.lines.tokens(head)
        tokens.expect("program")
        program = Program(tokens.name("the program's name"), [], [], [], Block())
        tokens.end()
        for line in self.lines.block(head):
            tokens = self.lines.tokens(line)
            word = tokens.name("numerics, staged, dim, let, require, tensor, scalar or body")
            if word == "body":
                tokens.end()
                program.body = self.block(line)
                continue
            if word == "intrinsic":
                program.intrinsics.append(self.meaning(line, tokens))
                continue
            self.head_line(program, word, tokens)
            tokens.end()
        return program

    def head_line(self, program: Program, word: str, tokens: Tokens) -> None:
        match word:
            case "numerics":
                key = tokens.name()
                tokens.expect("=")
                program.numerics[key] = self.setting(tokens)
            case "staged":
                key = tokens.name()
                tokens.expect("=")
                program.staged[key] = tokens.string()
            case "dim":
                program.dims.append(self.dim(tokens))
            case "let":
                key = tokens.name()
                tokens.expect("=")
                program.lets[key] = read_expr(tokens)
            case "require":
                program.requires.append(read_constraint(tokens))
            case "tensor":
                program.tensors.append(self.tensor(tokens))
            case "scalar":
                name = tokens.name()
                tokens.expect(":")
                dtype = self.dtype(tokens)
                tokens.expect("=")
                value = self.define(tokens, TileType(dtype))
                program.scalars.append(ScalarParam(name, value))
            case _:
                raise tokens.error("numerics, staged, dim, let, require, tensor, scalar or body", found=repr(word))

    def meaning(self, line: Line, tokens: Tokens) -> Meaning:
        """An operation of the user's own; the values of its meaning are seen by nothing else."""
        outer, self.values = self.values, {}
        name, symbol = tokens.name("the name of an intrinsic"), tokens.string()
        tokens.expect("(")
        params = self.typed_list(tokens)
        tokens.expect(")")
        tokens.expect("numerics")
        made = Meaning(name, symbol, params, Block(), tokens.string())
        while tokens.accept("emit"):
            target = tokens.string()
            made.emit[target] = tokens.string()
        tokens.end()
        made.body = self.block(line)
        self.values = outer
        self.meanings[name] = made
        return made

    def setting(self, tokens: Tokens) -> str | bool | None:
        if tokens.peek().kind == "string":
            return tokens.string()
        word = tokens.name("a string, true, false or none")
        if word not in ("true", "false", "none"):
            raise tokens.error("a string, true, false or none", found=repr(word))
        return None if word == "none" else word == "true"

    def dim(self, tokens: Tokens) -> Dim:
        name = tokens.name("a dimension's name")
        if name in self.dims:
            raise tokens.error("a name that no dimension has", found=repr(name))
        root, factors, extent = None, (), sym(name)
        if tokens.accept("alias"):
            root = self.known_dim(tokens)
            extent = root.extent
        elif tokens.accept("product"):
            found = [self.known_dim(tokens)]
            while tokens.accept(","):
                found.append(self.known_dim(tokens))
            factors = tuple(found)
            extent = const(1)
            for factor in factors:
                extent = extent * factor.extent
        if tokens.accept("="):
            extent = read_expr(tokens)
        made = Dim(name, extent, root, factors, tokens.accept("static"))
        self.dims[name] = made
        return made

    def tensor(self, tokens: Tokens) -> Tensor:
        name = tokens.name("a tensor's name")
        tokens.expect(":")
        dtype = self.dtype(tokens)
        dims: list[Dim] = []
        tokens.expect("[")
        while not tokens.accept("]"):
            dims.append(self.known_dim(tokens))
            if not tokens.at("]"):
                tokens.expect(",")
        out, optional = tokens.accept("out"), tokens.accept("optional")
        made = Tensor(name, tuple(dims), dtype, out, optional, tokens.accept("hidden"))
        made.devices = tokens.accept("devices")
        if tokens.accept("part"):
            made.part = tokens.name("the name of a tensor of several devices"), tokens.integer()
        self.tensors[name] = made
        return made

    # ---- blocks

    def block(self, head: Line, region: Region | None = None) -> Block:
        block = Block()
        if (first := self.lines.peek()) is None or first.indent <= head.indent:
            return block
        for line in self.lines.block(head):
            tokens = self.lines.tokens(line)
            if tokens.at("stage") and region is not None:
                tokens.next()
                region.stages.append((tokens.string(), len(block.ops)))
                tokens.end()
            elif region is not None and tokens.accept("merge"):
                region.merges.append(self.merge(line, tokens))
            elif tokens.accept("yield"):
                block.yields = self.value_list(tokens)
                tokens.end()
            elif tokens.accept("else"):
                last = block.ops[-1] if block.ops else None
                if not isinstance(last, If):
                    raise self.lines.error(line, "an if before else")
                tokens.end()
                last.orelse = self.block(line)
            else:
                self.statement(block, line, tokens)
        return block

    def statement(self, block: Block, line: Line, tokens: Tokens) -> None:
        if tokens.accept("region"):
            self.region(block, line, tokens)
        elif tokens.accept("if"):
            self.conditional(block, line, tokens)
        else:
            results: list[Value] = []
            if tokens.peek().text.startswith("%"):
                results = self.typed_list(tokens)
                tokens.expect("=")
            op = self.simple(line, tokens, results[0].type if results else None)
            op.results = results
            op.span = line.span
            block.ops.append(op)
            tokens.end()

    def typed_list(self, tokens: Tokens) -> list[Value]:
        """New values with their types, separated by commas."""
        found: list[Value] = []
        while not found or tokens.accept(","):
            name = tokens.name("a value")
            tokens.expect(":")
            found.append(self.fresh(tokens, name, self.type(tokens)))
        return found

    def region(self, block: Block, line: Line, tokens: Tokens) -> None:
        name = tokens.name("the region's name")
        kind = self.word(tokens, KINDS)
        op = Region(kind=cast(RegionKind, kind), args=[], name=name, span=line.span)
        tokens.expect("(")
        while not tokens.accept(")"):
            op.args.append(self.arg(tokens))
            if not tokens.at(")"):
                tokens.expect(",")
        if tokens.accept("order"):
            op.order = cast(Order, self.word(tokens, ORDERS))
        if tokens.accept("scope"):
            op.scope = tokens.string()
        if tokens.accept("versions"):
            op.versions = tokens.integer()
        outer = dict(self.blocks)
        results: list[str] = []
        if tokens.accept("carry"):
            self.carry(op, tokens)
            tokens.expect("->")
            tokens.expect("(")
            while not tokens.accept(")"):
                results.append(tokens.name("a result"))
                if not tokens.at(")"):
                    tokens.expect(",")
            if len(results) != len(op.inits):
                raise tokens.error(f"{len(op.inits)} results", found=f"{len(results)}")
        tokens.end()
        self.blocks.update({a.name: a for a in op.args if a.kind == "block"})
        op.body = self.block(line, op)
        self.blocks = outer
        op.results = [self.fresh(tokens, n, v.type) for n, v in zip(results, op.inits)]
        block.ops.append(op)

    def arg(self, tokens: Tokens) -> RegionArg:
        name = tokens.name("a region argument")
        tokens.expect("in")
        made = RegionArg(name, self.part(tokens), "block")
        if tokens.accept("each"):
            made.kind = "each"
        if tokens.accept("by"):
            made.size = read_expr(tokens)
        made.reversed = tokens.accept("reversed")
        return made

    def carry(self, op: Region, tokens: Tokens) -> None:
        tokens.expect("(")
        while not tokens.accept(")"):
            name = tokens.name("a carried value")
            tokens.expect(":")
            type = self.type(tokens)
            tokens.expect("=")
            op.inits.append(self.value(tokens))
            op.carried.append(self.fresh(tokens, name, type))
            if not tokens.at(")"):
                tokens.expect(",")

    def conditional(self, block: Block, line: Line, tokens: Tokens) -> None:
        op = If(cond=self.value(tokens), span=line.span)
        pending: list[tuple[str, TileType]] = []
        if tokens.accept("->"):
            tokens.expect("(")
            while not tokens.accept(")"):
                name = tokens.name("a result")
                tokens.expect(":")
                pending.append((name, self.type(tokens)))
                if not tokens.at(")"):
                    tokens.expect(",")
        tokens.end()
        op.then = self.block(line)
        block.ops.append(op)
        op.results = [self.fresh(tokens, n, t) for n, t in pending]

    # ---- simple operations

    def simple(self, line: Line, tokens: Tokens, type: TileType | None) -> Op:
        word = tokens.name("an operation")
        if word in self.meanings:
            return Intrinsic(fn=word, args=tuple(self.value_list(tokens)), meaning=self.meanings[word])
        if word in ELEMENTWISE:
            return Elementwise(fn=word, args=tuple(self.value_list(tokens)))
        match word:
            case "full":
                number = self.constant(tokens)
                place = tokens.string() if tokens.accept("place") else None
                return Full(number=number, place=place, layout=tokens.string() if tokens.accept("layout") else None)
            case "coords":
                return Coords(part=self.part(tokens))
            case "index":
                return Index(expr=read_expr(tokens))
            case "cast" | "bitcast":
                return self.conversion(word, tokens, type)
            case "load":
                return Load(tensor=self.known_tensor(tokens), subs=self.subs(tokens), fill=self.tail(tokens, "fill"))
            case "extract":
                return Extract(source=self.value(tokens), subs=self.subs(tokens), fill=self.tail(tokens, "fill"))
            case "insert":
                source, subs = self.value(tokens), self.subs(tokens)
                tokens.expect("=")
                return Insert(source=source, subs=subs, value=self.value(tokens))
            case "store":
                return self.store(tokens)
            case "reduce" | "argreduce":
                return self.fold(word, tokens)
            case "fold" | "scan":
                return self.user_fold(word, line, tokens)
            case "sort":
                return self.sort(tokens)
            case "mma":
                args = self.value_list(tokens)
                if len(args) != 3:
                    raise tokens.error("three operands of mma", found=str(len(args)))
                return Mma(a=args[0], b=args[1], acc=args[2])
            case "print":
                return Print(label=tokens.string(), value=self.value(tokens), where=self.tail(tokens, "where"))
            case "check":
                return Check(cond=self.value(tokens), message=tokens.string())
            case _:
                raise tokens.error("an operation of TileIR", found=repr(word))

    def conversion(self, word: str, tokens: Tokens, type: TileType | None) -> Op:
        if type is None:
            raise tokens.error(f"a result of {word}")
        source = self.value(tokens)
        if word == "bitcast":
            return Bitcast(source=source, dtype=type.dtype)
        return Cast(source=source, dtype=type.dtype, saturate=tokens.accept("saturate"))

    def store(self, tokens: Tokens) -> Store:
        tensor, subs = self.known_tensor(tokens), self.subs(tokens)
        effect = "set" if tokens.accept("=") else self.word(tokens, ("add", "max", "min"))
        value, where = self.value(tokens), self.tail(tokens, "where")
        order = self.word(tokens, ORDERS) if tokens.accept("order") else "unordered"
        return Store(tensor=tensor, subs=subs, value=value, where=where, effect=effect, order=order)

    def fold(self, word: str, tokens: Tokens) -> Op:
        monoid, source = tokens.name("a monoid"), self.value(tokens)
        tokens.expect("over")
        dims = [self.known_dim(tokens)]
        while tokens.accept(","):
            dims.append(self.known_dim(tokens))
        order = self.word(tokens, ORDERS) if tokens.accept("order") else "unordered"
        nan = tokens.name() if tokens.accept("nan") else "propagate"
        if word == "argreduce":
            return ArgReduce(source=source, dims=tuple(dims), monoid=monoid, nan=nan)
        return Reduce(source=source, dims=tuple(dims), monoid=monoid, order=cast(Order, order), nan=nan)

    def user_fold(self, word: str, line: Line, tokens: Tokens) -> Op:
        sources = tuple(self.value_list(tokens))
        tokens.expect("over")
        dims = [self.known_dim(tokens)]
        while tokens.accept(","):
            dims.append(self.known_dim(tokens))
        if word == "scan" and not tokens.at("merge"):
            merge: Merge | str = tokens.name("a monoid")
        else:
            tokens.expect("merge")
            merge = self.merge_head(tokens)
        exclusive, backward, whole = (tokens.accept(w) for w in ("exclusive", "reverse", "whole"))
        order = self.word(tokens, ORDERS) if tokens.accept("order") else ("ordered" if word == "scan" else "unordered")
        if isinstance(merge, Merge):
            tokens.end()
            self.merge_blocks(line, merge)
        if word == "fold":
            assert isinstance(merge, Merge)
            return Fold(sources=sources, dims=tuple(dims), merge=merge, order=cast(Order, order))
        return Scan(
            sources=sources,
            dim=dims[0],
            merge=merge,
            exclusive=exclusive,
            reverse=backward,
            order=cast(Order, order),
            whole=whole,
        )

    def merge(self, line: Line, tokens: Tokens) -> Merge:
        """A `merge` line of a region and the blocks below it."""
        merge = self.merge_head(tokens)
        tokens.expect("states")
        states = [tokens.integer()]
        while tokens.accept(","):
            states.append(tokens.integer())
        merge.states = tuple(states)
        tokens.end()
        self.merge_blocks(line, merge)
        return merge

    def merge_head(self, tokens: Tokens) -> Merge:
        merge = Merge(tokens.name("the monoid's name"), [], [], Block(), Block())
        merge.commutative = tokens.accept("commutative")
        if tokens.accept("laws"):
            merge.laws = tokens.string()
        return merge

    def merge_blocks(self, head: Line, merge: Merge) -> None:
        for line in self.lines.block(head):
            tokens = self.lines.tokens(line)
            if tokens.accept("identity"):
                tokens.end()
                merge.identity = self.block(line)
                continue
            tokens.expect("with")
            for side in (merge.left, merge.right):
                tokens.expect("(")
                side += self.typed_list(tokens)
                tokens.expect(")")
            tokens.end()
            merge.body = self.block(line)
            return

    def sort(self, tokens: Tokens) -> Sort:
        source = self.value(tokens)
        tokens.expect("over")
        dim = self.known_dim(tokens)
        to = self.part(tokens) if tokens.accept("to") else None
        return Sort(source=source, dim=dim, to=to, descending=tokens.accept("descending"))

    def constant(self, tokens: Tokens) -> float | int | bool | None:
        if tokens.accept("uninitialised"):
            return None
        if tokens.at("true") or tokens.at("false"):
            return tokens.next().text == "true"
        return tokens.number()
