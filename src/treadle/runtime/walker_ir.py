"""Reading NumPy arguments in machine code, as LLVM IR text. `launch.py` uses it and checks it first.

For each parameter a record of ten words says what is needed:

    0 kind: 0 skip (a scalar), 1 an array       4 log2 of the element size
    1 address of the type `numpy.ndarray`       5 flags that must be set
    2 address of the NumPy dtype                6 where its words go, counted in words
    3 number of axes                            7 1 for an output: axes must nest, so no two positions coincide
    8, 9 written by the walk: the addresses [low, high) between which all elements lie; 0, 0 for an empty array

An argument is taken only when its type and dtype are these very objects and everything fits; the first that does not
is reported by its number, and read in Python instead. Records are shared by all calls: the GIL is held.

The fields of an array object are part of NumPy's binary interface, those of a tuple of CPython's; the offsets hold for
builds with a GIL on 64-bit machines.

`treadle_take` and `treadle_place` are called as builtins of CPython (METH_O), as `taking.py` makes them: their first
argument is a bytes object that holds addresses. They return objects whose counts of references they raise, but for
immortal ones, whose counts are negative in 32 bits.
"""

from __future__ import annotations

RECORD_WORDS = 10
APART, MAY_MEET = -1, -2
SYMBOL, TAKE, PLACE = "treadle_walk", "treadle_take", "treadle_place"

ALIGNED_FLAG = 0x0100
WRITEABLE_FLAG = 0x0400

WALKER_IR = """
declare i64 @llvm.abs.i64(i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; Returns the number of the first argument that was not read into `%out`. When all were: -1 if no output's addresses
; meet another argument's, else -2.
define i64 @treadle_walk(ptr %tuple, i64 %count, ptr %records, ptr %out) {
entry:
  %size.p = getelementptr i8, ptr %tuple, i64 16
  %size = load i64, ptr %size.p
  %right = icmp eq i64 %size, %count
  br i1 %right, label %next, label %wrong
wrong:
  ret i64 %count
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %done ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %all
all:
  br label %pair.outer
pair.outer:
  %o = phi i64 [ 0, %all ], [ %o.next, %pair.outer.end ]
  %o.more = icmp slt i64 %o, %count
  br i1 %o.more, label %pair.o, label %apart
apart:
  ret i64 -1
pair.o:
  %o.rec.i = mul i64 %o, 10
  %o.rec = getelementptr i64, ptr %records, i64 %o.rec.i
  %o.out.p = getelementptr i64, ptr %o.rec, i64 7
  %o.out = load i64, ptr %o.out.p
  %o.is = icmp ne i64 %o.out, 0
  %o.low.p = getelementptr i64, ptr %o.rec, i64 8
  %o.high.p = getelementptr i64, ptr %o.rec, i64 9
  br i1 %o.is, label %pair.spans, label %pair.outer.end
pair.spans:
  %o.low = load i64, ptr %o.low.p
  %o.high = load i64, ptr %o.high.p
  br label %pair.inner
pair.inner:
  %q = phi i64 [ 0, %pair.spans ], [ %q.next, %pair.inner.end ]
  %q.more = icmp slt i64 %q, %count
  br i1 %q.more, label %pair.q, label %pair.outer.end
pair.q:
  %q.rec.i = mul i64 %q, 10
  %q.rec = getelementptr i64, ptr %records, i64 %q.rec.i
  %q.kind = load i64, ptr %q.rec
  %q.array = icmp ne i64 %q.kind, 0
  %q.other = icmp ne i64 %q, %o
  %q.low.p = getelementptr i64, ptr %q.rec, i64 8
  %q.low = load i64, ptr %q.low.p
  %q.high.p = getelementptr i64, ptr %q.rec, i64 9
  %q.high = load i64, ptr %q.high.p
  %meet.a = icmp ult i64 %o.low, %q.high
  %meet.b = icmp ult i64 %q.low, %o.high
  %meet.c = and i1 %meet.a, %meet.b
  %meet.d = and i1 %q.array, %q.other
  %meet = and i1 %meet.c, %meet.d
  br i1 %meet, label %may, label %pair.inner.end
may:
  ret i64 -2
pair.inner.end:
  %q.next = add i64 %q, 1
  br label %pair.inner
pair.outer.end:
  %o.next = add i64 %o, 1
  br label %pair.outer
one:
  %rec.i = mul i64 %i, 10
  %rec = getelementptr i64, ptr %records, i64 %rec.i
  %kind = load i64, ptr %rec
  %is.array = icmp ne i64 %kind, 0
  br i1 %is.array, label %array, label %done
array:
  %item.i = add i64 %i, 3
  %item.p = getelementptr ptr, ptr %tuple, i64 %item.i
  %item = load ptr, ptr %item.p
  %type.p = getelementptr i8, ptr %item, i64 8
  %type = load i64, ptr %type.p
  %want.type.p = getelementptr i64, ptr %rec, i64 1
  %want.type = load i64, ptr %want.type.p
  %type.ok = icmp eq i64 %type, %want.type
  br i1 %type.ok, label %typed, label %bad
typed:
  %descr.p = getelementptr i8, ptr %item, i64 56
  %descr = load i64, ptr %descr.p
  %want.descr.p = getelementptr i64, ptr %rec, i64 2
  %want.descr = load i64, ptr %want.descr.p
  %descr.ok = icmp eq i64 %descr, %want.descr
  %nd.p = getelementptr i8, ptr %item, i64 24
  %nd.32 = load i32, ptr %nd.p
  %nd = sext i32 %nd.32 to i64
  %want.nd.p = getelementptr i64, ptr %rec, i64 3
  %want.nd = load i64, ptr %want.nd.p
  %nd.ok = icmp eq i64 %nd, %want.nd
  %flags.p = getelementptr i8, ptr %item, i64 64
  %flags.32 = load i32, ptr %flags.p
  %flags = zext i32 %flags.32 to i64
  %want.flags.p = getelementptr i64, ptr %rec, i64 5
  %want.flags = load i64, ptr %want.flags.p
  %flags.set = and i64 %flags, %want.flags
  %flags.ok = icmp eq i64 %flags.set, %want.flags
  %ok.a = and i1 %descr.ok, %nd.ok
  %ok = and i1 %ok.a, %flags.ok
  br i1 %ok, label %read, label %bad
read:
  %data.p = getelementptr i8, ptr %item, i64 16
  %data = load i64, ptr %data.p
  %dims.p = getelementptr i8, ptr %item, i64 32
  %dims = load ptr, ptr %dims.p
  %strides.p = getelementptr i8, ptr %item, i64 40
  %strides = load ptr, ptr %strides.p
  %shift.p = getelementptr i64, ptr %rec, i64 4
  %shift = load i64, ptr %shift.p
  %low.1 = shl i64 1, %shift
  %low = sub i64 %low.1, 1
  %at.p = getelementptr i64, ptr %rec, i64 6
  %at = load i64, ptr %at.p
  %words = getelementptr i64, ptr %out, i64 %at
  store i64 %data, ptr %words
  %data.rest = and i64 %data, %low
  %data.ok = icmp eq i64 %data.rest, 0
  %output.p = getelementptr i64, ptr %rec, i64 7
  %output = load i64, ptr %output.p
  %is.output = icmp ne i64 %output, 0
  br i1 %data.ok, label %axis, label %bad
; From the last axis to the first: an output's axes must each step over all that the later ones reach.
axis:
  %left = phi i64 [ %nd, %read ], [ %a, %axis.end ]
  %reach = phi i64 [ 0, %read ], [ %reach.next, %axis.end ]
  %low.at = phi i64 [ %data, %read ], [ %low.next, %axis.end ]
  %high.at = phi i64 [ %data, %read ], [ %high.next, %axis.end ]
  %empty = phi i1 [ false, %read ], [ %empty.next, %axis.end ]
  %axes.more = icmp sgt i64 %left, 0
  br i1 %axes.more, label %axis.one, label %spanned
spanned:
  %high.end = add i64 %high.at, %low.1
  %low.kept = select i1 %empty, i64 0, i64 %low.at
  %high.kept = select i1 %empty, i64 0, i64 %high.end
  %low.p = getelementptr i64, ptr %rec, i64 8
  store i64 %low.kept, ptr %low.p
  %high.p = getelementptr i64, ptr %rec, i64 9
  store i64 %high.kept, ptr %high.p
  br label %done
axis.one:
  %a = sub i64 %left, 1
  %extent.p = getelementptr i64, ptr %dims, i64 %a
  %extent = load i64, ptr %extent.p
  %bytes.p = getelementptr i64, ptr %strides, i64 %a
  %bytes = load i64, ptr %bytes.p
  %rest = and i64 %bytes, %low
  %step = ashr i64 %bytes, %shift
  %extent.at = add i64 %a, 1
  %extent.to = getelementptr i64, ptr %words, i64 %extent.at
  store i64 %extent, ptr %extent.to
  %step.at = add i64 %extent.at, %nd
  %step.to = getelementptr i64, ptr %words, i64 %step.at
  store i64 %step, ptr %step.to
  %whole = icmp eq i64 %rest, 0
  br i1 %whole, label %axis.step, label %bad
axis.step:
  %far = call i64 @llvm.abs.i64(i64 %step, i1 false)
  %span.n = sub i64 %extent, 1
  %span = mul i64 %far, %span.n
  %run = mul i64 %bytes, %span.n
  %back = call i64 @llvm.smin.i64(i64 %run, i64 0)
  %ahead = call i64 @llvm.smax.i64(i64 %run, i64 0)
  %low.next = add i64 %low.at, %back
  %high.next = add i64 %high.at, %ahead
  %none = icmp eq i64 %extent, 0
  %empty.next = or i1 %empty, %none
  %several = icmp sgt i64 %extent, 1
  %nests = icmp sgt i64 %far, %reach
  %crowded = xor i1 %nests, true
  %matters = and i1 %several, %crowded
  %refuse = and i1 %matters, %is.output
  %reach.more = add i64 %reach, %span
  %reach.next = select i1 %several, i64 %reach.more, i64 %reach
  br i1 %refuse, label %bad, label %axis.end
axis.end:
  br label %axis
done:
  %i.next = add i64 %i, 1
  br label %next
bad:
  ret i64 %i
}

; The arguments' words go into a block, which is compared with layouts that are known, word for word under a mask. The
; object of the one that is equal is returned, and words without a mask are filled in from it; else the object `miss`.
; Bytes of self: the addresses of the block and of eight words: number of arguments, records, words of a block, masks,
; number of layouts, layouts one behind the other, their objects, `miss`.
define ptr @treadle_take(ptr %self, ptr %tuple) {
entry:
  %block.p = getelementptr i8, ptr %self, i64 32
  %block = load ptr, ptr %block.p
  %known.p = getelementptr i8, ptr %self, i64 40
  %known = load ptr, ptr %known.p
  %count = load i64, ptr %known
  %records.p = getelementptr i64, ptr %known, i64 1
  %records = load ptr, ptr %records.p
  %width.p = getelementptr i64, ptr %known, i64 2
  %width = load i64, ptr %width.p
  %masks.p = getelementptr i64, ptr %known, i64 3
  %masks = load ptr, ptr %masks.p
  %layouts.p = getelementptr i64, ptr %known, i64 4
  %layouts = load i64, ptr %layouts.p
  %rows.p = getelementptr i64, ptr %known, i64 5
  %rows = load ptr, ptr %rows.p
  %objects.p = getelementptr i64, ptr %known, i64 6
  %objects = load ptr, ptr %objects.p
  %miss.p = getelementptr i64, ptr %known, i64 7
  %said = call i64 @treadle_walk(ptr %tuple, i64 %count, ptr %records, ptr %block)
  %apart = icmp eq i64 %said, -1
  br i1 %apart, label %layout, label %return
layout:
  %l = phi i64 [ 0, %entry ], [ %l.next, %differs ]
  %l.more = icmp slt i64 %l, %layouts
  br i1 %l.more, label %compare, label %return
compare:
  %row.at = mul i64 %l, %width
  %row = getelementptr i64, ptr %rows, i64 %row.at
  br label %word
word:
  %w = phi i64 [ 0, %compare ], [ %w.next, %same ]
  %w.more = icmp slt i64 %w, %width
  br i1 %w.more, label %look, label %found
look:
  %have.p = getelementptr i64, ptr %block, i64 %w
  %have = load i64, ptr %have.p
  %mask.p = getelementptr i64, ptr %masks, i64 %w
  %mask = load i64, ptr %mask.p
  %want.p = getelementptr i64, ptr %row, i64 %w
  %want = load i64, ptr %want.p
  %other = xor i64 %have, %want
  %counts = and i64 %other, %mask
  %equal = icmp eq i64 %counts, 0
  br i1 %equal, label %same, label %differs
same:
  %w.next = add i64 %w, 1
  br label %word
differs:
  %l.next = add i64 %l, 1
  br label %layout
found:
  %object.p = getelementptr ptr, ptr %objects, i64 %l
  br label %fill
fill:
  %f = phi i64 [ 0, %found ], [ %f.next, %fill.end ]
  %f.more = icmp slt i64 %f, %width
  br i1 %f.more, label %fill.one, label %return
fill.one:
  %f.mask.p = getelementptr i64, ptr %masks, i64 %f
  %f.mask = load i64, ptr %f.mask.p
  %f.free = icmp eq i64 %f.mask, 0
  br i1 %f.free, label %fill.store, label %fill.end
fill.store:
  %f.from = getelementptr i64, ptr %row, i64 %f
  %f.word = load i64, ptr %f.from
  %f.to = getelementptr i64, ptr %block, i64 %f
  store i64 %f.word, ptr %f.to
  br label %fill.end
fill.end:
  %f.next = add i64 %f, 1
  br label %fill
return:
  %which = phi ptr [ %miss.p, %entry ], [ %miss.p, %layout ], [ %object.p, %fill ]
  %result = load ptr, ptr %which
  call void @referred(ptr %result)
  ret ptr %result
}

; The first aligned address in the memory of an array of bytes goes to where self says. Returns how many bytes it lies
; behind the first one, as the object of that number. Bytes of self: the addresses of the word and of 64 such objects.
define ptr @treadle_place(ptr %self, ptr %array) {
entry:
  %word.p = getelementptr i8, ptr %self, i64 32
  %word = load ptr, ptr %word.p
  %numbers.p = getelementptr i8, ptr %self, i64 40
  %numbers = load ptr, ptr %numbers.p
  %data.p = getelementptr i8, ptr %array, i64 16
  %data = load i64, ptr %data.p
  %up = sub i64 0, %data
  %skip = and i64 %up, 63
  %aligned = add i64 %data, %skip
  store i64 %aligned, ptr %word
  %number.p = getelementptr ptr, ptr %numbers, i64 %skip
  %number = load ptr, ptr %number.p
  call void @referred(ptr %number)
  ret ptr %number
}

define internal void @referred(ptr %object) {
entry:
  %low = load i32, ptr %object
  %immortal = icmp slt i32 %low, 0
  br i1 %immortal, label %done, label %count
count:
  %many = load i64, ptr %object
  %more = add i64 %many, 1
  store i64 %more, ptr %object
  br label %done
done:
  ret void
}
"""
