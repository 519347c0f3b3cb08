"""Reading what a line of a program mentions: names of values, tensors and dimensions, types, parts, subscripts."""

from __future__ import annotations

import re

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr_text import read_expr
from treadle.base.text import Tokens
from treadle.dtype import formats
from treadle.ir.core import AxisSub, RegionArg, Sub, Tensor, TileType, Value


class References:
    """Tables that resolve the names that lines mention, and what reads such mentions."""

    def __init__(self) -> None:
        self.dims: dict[str, Dim] = {}
        self.tensors: dict[str, Tensor] = {}
        self.values: dict[str, Value] = {}
        self.blocks: dict[str, RegionArg] = {}

    # ---- names

    def word(self, tokens: Tokens, allowed: tuple[str, ...]) -> str:
        for option in allowed:
            if tokens.accept(option):
                return option
        raise tokens.error(f"one of {', '.join(allowed)}")

    def fresh(self, tokens: Tokens, name: str, type: TileType) -> Value:
        if name in self.values:
            raise tokens.error("a name that no value has", found=repr(name))
        stem = re.sub(r"\.\d+$", "", name[1:])
        made = Value(name, type, None if stem.isdigit() else stem)
        self.values[name] = made
        return made

    def define(self, tokens: Tokens, type: TileType) -> Value:
        return self.fresh(tokens, tokens.name("a value"), type)

    def value(self, tokens: Tokens) -> Value:
        found = self.values.get(tokens.peek().text)
        if found is None:
            raise tokens.error("a value defined above")
        tokens.next()
        return found

    def value_list(self, tokens: Tokens) -> list[Value]:
        found = [self.value(tokens)]
        while tokens.accept(","):
            found.append(self.value(tokens))
        return found

    def tail(self, tokens: Tokens, word: str) -> Value | None:
        return self.value(tokens) if tokens.accept(word) else None

    def known_tensor(self, tokens: Tokens) -> Tensor:
        found = self.tensors.get(tokens.peek().text)
        if found is None:
            raise tokens.error("a tensor parameter")
        tokens.next()
        return found

    # ---- types, parts, subscripts

    def type(self, tokens: Tokens) -> TileType:
        dtype = self.dtype(tokens)
        axes: list[Part] = []
        tokens.expect("[")
        while not tokens.accept("]"):
            axes.append(self.part(tokens))
            if not tokens.at("]"):
                tokens.expect(",")
        return TileType(dtype, tuple(axes))

    def part(self, tokens: Tokens) -> Part:
        name = tokens.peek().text
        if name in self.blocks and tokens.peek().kind == "name":
            tokens.next()
            return self.blocks[name].part
        dim = self.known_dim(tokens)
        if not tokens.accept("["):
            return dim.whole()
        lo = read_expr(tokens)
        tokens.expect(":")
        hi = read_expr(tokens)
        tokens.expect("]")
        return Part(dim, lo, hi)

    def subs(self, tokens: Tokens) -> tuple[AxisSub, ...]:
        found: list[AxisSub] = []
        tokens.expect("[")
        while not tokens.accept("]"):
            if tokens.accept("{"):
                group: list[Sub] = []
                while not tokens.accept("}"):
                    group.append(self.sub(tokens))
                    if not tokens.at("}"):
                        tokens.expect(",")
                found.append(tuple(group))
            else:
                found.append(self.sub(tokens))
            if not tokens.at("]"):
                tokens.expect(",")
        return tuple(found)

    def sub(self, tokens: Tokens) -> Sub:
        if tokens.accept("in_range", "("):
            inner = self.sub(tokens)
            tokens.expect(")")
            return Sub(inner.part, inner.index, inner.tile, True)
        token, after = tokens.peek(), tokens.peek(1).text
        if token.text.startswith("%") and after != "(":
            return Sub(tile=self.value(tokens))
        named = token.text in self.blocks or token.text in self.dims
        if token.kind == "name" and named and after in ("[", ",", "]", "}", ")"):
            return Sub(part=self.part(tokens))
        return Sub(index=read_expr(tokens))

    def known_dim(self, tokens: Tokens) -> Dim:
        token = tokens.peek()
        name = tokens.name("a dimension")
        if name not in self.dims:
            raise tokens.error("a dimension declared above", found=f"{token.text!r}")
        return self.dims[name]

    def dtype(self, tokens: Tokens) -> formats.DType:
        name = tokens.name("a dtype")
        if name not in formats.BY_NAME:
            raise tokens.error("a dtype", found=repr(name))
        return formats.BY_NAME[name]
