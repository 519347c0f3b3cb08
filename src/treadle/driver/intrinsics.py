"""Operations of the user's own on a target: it needs a text of the author's for each, which its compiler accepts.

A compiler that refuses emitted code is a bug of ours, unless the author's texts alone are what it refuses: then the
message is the author's, with the compiler's words and the line of the kernel where the operation is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from treadle.base.errors import InternalError, TreadleError
from treadle.base.source import Span
from treadle.driver.errors import IntrinsicAbsent, IntrinsicRefused
from treadle.driver.targets import features_of
from treadle.ir.core import Program
from treadle.ir.ops.intrinsic import CUDA_TYPES, Intrinsic, Meaning
from treadle.toolchain.llvm import compile_ir
from treadle.toolchain.nvrtc import compile_cuda


def require_texts(program: Program, target: str) -> None:
    """*Errors*: `limit/intrinsic` where an operation of the user's own has no text for the target."""
    for meaning in program.intrinsics:
        if meaning.text(target) is None:
            raise IntrinsicAbsent(
                doing=f"planning {program.name} for {target}",
                found=f"td.intrinsic({meaning.symbol}) with texts for {', '.join(sorted(meaning.emit))}",
                expected=f"a text for {target}, or for {target.partition(':')[0]}",
                hint="give one in emit=, or leave emit= out: then every target computes the pattern",
                span=_called(program, meaning) or program.span,
            )


def refused_texts(program: Program, target: str, error: InternalError) -> TreadleError:
    """What to raise when compiling a program ended with `error`: the author's error where the texts alone end so."""
    texts = {m: text for m in program.intrinsics if (text := m.text(target)) is not None}
    for meaning, text in texts.items():
        if (words := _words(target, {meaning: text})) is not None:
            return _refused(program, target, meaning, words)
    if len(texts) > 1 and (words := _words(target, texts)) is not None:
        return _refused(program, target, next(iter(texts)), f"its text beside the others': {words}")
    return error


def unresolved_texts(program: Program, target: str, error: InternalError) -> TreadleError:
    """What to raise when code whose symbols this process lacks is loaded: texts that declare functions are to blame."""
    for meaning in program.intrinsics:
        text = re.sub(r";[^\n]*", "", meaning.text(target) or "")
        declared = re.findall(r'\bdeclare\b[^@\n]*@("[^"]*"|[\w.$-]+)', text)
        if declared:
            names = ", ".join(f"@{name}" for name in declared)
            return _refused(program, target, meaning, f"a function that neither LLVM nor this process has: {names}")
    return error


def _refused(program: Program, target: str, meaning: Meaning, words: str) -> IntrinsicRefused:
    return IntrinsicRefused(
        doing=f"compiling {program.name} for {target}",
        found=words,
        expected=f"a text of td.intrinsic({meaning.symbol}) that compiles by itself",
        hint=f"correct the text in emit=; lines count from its first one: {meaning.first_line(target)}",
        span=_called(program, meaning) or program.span,
    )


def _called(program: Program, meaning: Meaning) -> Span | None:
    """Where the kernel first calls the operation."""
    calls = (op for op in program.body.walk() if isinstance(op, Intrinsic) and op.meaning.name == meaning.name)
    return next((op.span for op in calls if op.span is not None), None)


def _words(target: str, texts: Mapping[Meaning, str]) -> str | None:
    """What the compiler says of texts alone; None where it takes them."""
    kind, _, level = target.partition(":")
    try:
        if kind == "cpu":
            compile_ir("\n".join(texts.values()), cpu_features=features_of(target), name="texts")
        else:
            compile_cuda("\n".join([*texts.values(), *_callers(texts)]), arch=level, name="texts")
    except InternalError as error:
        return error.found
    return None


def _callers(texts: Iterable[Meaning]) -> Iterable[str]:
    """Kernels that call the functions, without which ptxas would not see what is in them."""
    for meaning in texts:
        types = [CUDA_TYPES[p.type.dtype.name] for p in meaning.params]
        params = ", ".join(f"{kind} p{i}" for i, kind in enumerate(types))
        given = ", ".join(f"p{i}" for i in range(len(types)))
        result = CUDA_TYPES[meaning.result.name]
        yield (
            f'extern "C" __global__ void calls_{meaning.symbol}({params}, {result} *to) '
            f"{{ *to = {meaning.symbol}({given}); }}"
        )
