"""Assignments of captured code: to names, to parts of tiles, tensors and memory, to attributes and entries."""

from __future__ import annotations

import ast
from typing import Any

from treadle.lang import merging, subscript
from treadle.lang.dims import PartRef
from treadle.lang.errors import BadAssignment, ParallelAssign
from treadle.lang.expressions import Expressions
from treadle.lang.frames import Frame
from treadle.lang.python_operators import BINARY, INPLACE
from treadle.lang.storage import Memory
from treadle.lang.subscript import TensorRef
from treadle.lang.tile import Tile


class Assignments(Expressions):
    """Executes assignments in a frame."""

    def exec_Assign(self, frame: Frame, node: ast.Assign) -> None:
        value = self.eval(frame, node.value)
        for target in node.targets:
            self.at(frame, node)
            self.assign(frame, target, value)

    def exec_AnnAssign(self, frame: Frame, node: ast.AnnAssign) -> None:
        if node.value is not None:
            value = self.eval(frame, node.value)
            self.at(frame, node)
            self.assign(frame, node.target, value)

    def exec_AugAssign(self, frame: Frame, node: ast.AugAssign) -> None:
        target = node.target
        read: ast.expr
        if isinstance(target, ast.Name):
            read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        elif isinstance(target, ast.Attribute):
            read = ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
        else:
            read = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
        old = self.eval(frame, read)
        value = self.eval(frame, node.value)
        self.at(frame, node)
        self.operands("an update", old, value)
        table = BINARY if isinstance(old, (Tile, PartRef)) else INPLACE
        result = table[type(node.op)](old, value)
        self.assign(frame, target, result)

    def assign(self, frame: Frame, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.assign_name(frame, name, value)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                self.unpack(frame, elts, value)
            case ast.Subscript():
                self.assign_subscript(frame, target, value)
            case ast.Attribute():
                self.assign_attribute(frame, target, value)
            case _:
                raise self.unsupported(frame, target)

    def assign_name(self, frame: Frame, name: str, value: Any, *, part: bool = False) -> None:
        """Gives a name a value; `part` says that only a part of the tile it holds was replaced."""
        if not part:
            self.not_in_parallel(frame, name)
        named = value.tile if isinstance(value, Memory) else value
        if isinstance(named, Tile):
            made = named.known_value
            if made is not None and made.hint is None:
                made.hint = name
        frame.locals[name] = value
        frame.written[name] = self.ctx.span

    def not_in_parallel(self, frame: Frame, name: str) -> None:
        """*Errors*: `region/parallel-assign` for a name that exists outside an enclosing `parallel`."""
        if not any(n.kind == "parallel" and name in n.existing for n in frame.nest):
            return
        raise ParallelAssign(
            doing=f"assigning {name} in td.parallel",
            found=f"{name}, a name that exists before the region",
            expected=f"new names, or a part of an outer tile: {name}[m] = value",
            hint="instances of td.parallel have no order; use another name inside, or td.serial or td.reduce",
            span=self.ctx.span,
        )

    def unpack(self, frame: Frame, elts: list[ast.expr], value: Any) -> None:
        values = list(self.iterate(frame, elts[0], value))
        starred = next((i for i, e in enumerate(elts) if isinstance(e, ast.Starred)), None)
        wrong = len(values) != len(elts) if starred is None else len(values) < len(elts) - 1
        if wrong:
            raise ValueError(f"{len(elts)} names for {len(values)} values")
        if starred is not None:
            tail = len(elts) - starred - 1
            middle = values[starred : len(values) - tail]
            values = [*values[:starred], middle, *values[len(values) - tail :]]
        for element, item in zip(elts, values):
            inner = element.value if isinstance(element, ast.Starred) else element
            self.assign(frame, inner, item)

    def assign_subscript(self, frame: Frame, target: ast.Subscript, value: Any) -> None:
        holder = self.eval(frame, target.value)
        key = self.eval(frame, target.slice)
        self.at(frame, target)
        if isinstance(holder, TensorRef):
            holder[key] = value
        elif isinstance(holder, Tile):
            if isinstance(target.value, ast.Name) and isinstance(value, Tile):
                frame.inserted.setdefault(target.value.id, value.dtype)
            self.assign_part(frame, target.value, subscript.insert(self.ctx, holder, key, value))
        elif isinstance(holder, Memory):
            holder.tile = subscript.insert(self.ctx, holder.tile, key, value)
            self.note_part(frame, target.value)
        elif isinstance(holder, PartRef):
            raise BadAssignment(
                doing=f"assigning in {frame.name}",
                found=f"an assignment to {holder}[...], a part of a dimension",
                expected="a tensor, a tile or a Python container",
                hint="make a tile first: T = td.empty(...)",
                span=self.ctx.span,
            )
        else:
            self.container_in_parallel(frame, holder)
            holder[key] = value

    def assign_part(self, frame: Frame, place: ast.expr, tile: Tile) -> None:
        """Gives the name, attribute or entry that held a tile the tile with a part replaced."""
        match place:
            case ast.Name(id=name):
                if name not in frame.locals:
                    raise BadAssignment(
                        doing=f"assigning a part of {name} in {frame.name}",
                        found=f"{name}, a name of an outer function",
                        expected="a tile that a name of this function holds",
                        hint="pass the tile as an argument and return the new one",
                        span=self.ctx.span,
                    )
                self.assign_name(frame, name, tile, part=True)
            case ast.Attribute(value=owner, attr=attr):
                holder = self.eval(frame, owner)
                self.note_part(frame, owner)
                object.__setattr__(holder, attr, tile)
            case ast.Subscript(value=owner, slice=key_node):
                holder = self.eval(frame, owner)
                self.note_part(frame, owner)
                holder[self.eval(frame, key_node)] = tile
            case _:
                raise BadAssignment(
                    doing=f"assigning a part of a tile in {frame.name}",
                    found="a tile that no name holds",
                    expected="a name, attribute or entry",
                    hint="give the tile a name first",
                    span=self.ctx.span,
                )

    def note_part(self, frame: Frame, owner: ast.expr) -> None:
        root = owner
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name):
            frame.written[root.id] = self.ctx.span

    def assign_attribute(self, frame: Frame, target: ast.Attribute, value: Any) -> None:
        holder = self.eval(frame, target.value)
        self.at(frame, target)
        if isinstance(holder, (Tile, PartRef, TensorRef)):
            raise BadAssignment(
                doing=f"assigning in {frame.name}",
                found=f"an assignment to an attribute of {merging.describe(holder)}",
                expected="a name, a part of a tile or tensor, or an attribute of an object of yours",
                hint="assign to a name",
                span=self.ctx.span,
            )
        self.container_in_parallel(frame, holder)
        self.note_part(frame, target.value)
        setattr(holder, target.attr, value)

    def container_in_parallel(self, frame: Frame, holder: Any) -> None:
        """*Errors*: `region/parallel-assign` for an object that exists outside an enclosing `parallel`."""
        if any(n.kind == "parallel" and id(holder) in n.containers for n in frame.nest):
            raise ParallelAssign(
                doing=f"assigning into an object in td.parallel in {frame.name}",
                found=f"a {type(holder).__name__} that exists before the region",
                expected="new objects, or a part of an outer tile",
                hint="instances of td.parallel have no order; make the object inside the region",
                span=self.ctx.span,
            )
