"""What the worker pool asks of an operating system, as LLVM IR text: one `System` for each system and processor.

*Linux*: `pthread_create`, `pthread_join`; signals stay with the caller's threads (`pthread_sigmask`). Sleeping:
futex(2), private to the process. Placement: `sched_getcpu`, sched_setaffinity(2). Both calls go through `syscall`. The
child of a fork forgets the threads and starts its own.

*macOS*: the same threads and signals. Sleeping: a mutex and a condition variable of POSIX for each slot (calls like a
futex are documented from macOS 14.4 on only), made anew after a fork. No placement: no call forbids a CPU.

*Windows*: `CreateThread`, `ResumeThread`, `WaitForSingleObject`, `CloseHandle`. Sleeping: `WaitOnAddress`,
`WakeByAddressAll`. Placement: `GetCurrentProcessorNumber`, `SetThreadAffinityMask`, not with more than one group of 64
CPUs. There is no fork.

A system defines the functions below; all but `@pause` may be called from any thread.

    void @pause()                          a few nanoseconds of a spinning loop
    void @sleep_on(ptr word, i32 value)    returns when woken, at once if `word` is not `value`, or for no reason
    void @wake(ptr word)                   wakes who sleeps on `word`, which has changed before
    i32  @here()                           the CPU that runs this
    void @arrive(i64 worker)               called by a thread, once, before its work
    void @move(i64 worker, ptr mask)       lets a thread run on the CPUs of `mask` only; nothing, if it has not arrived
    i32  @begin(i64 worker)                starts the thread that calls `@serve(worker)`; not 0 if it did not
    void @finish(i64 worker)               returns when that thread is gone
    void @quiet(ptr old), @loud(ptr old)   signals are not for threads started in between; `old` has 128 bytes
    void @renew()                          what sleeping needs, made or made anew; nobody sleeps

*Source*: Linux man-pages futex(2), sched_setaffinity(2), syscall(2), sched_getcpu(3); POSIX.1-2017 pthread_cond_wait;
Microsoft, Win32 API: WaitOnAddress, WakeByAddressAll, CreateThread, SetThreadAffinityMask, GetCurrentProcessorNumber.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_WORKERS = 256
"""Slots, so most workers that can ever be."""

MASK_BYTES = 128
"""Size of an affinity mask: 1024 CPUs."""

SLOT_BYTES = 128
"""Neighbouring slots share no pair of cache lines."""


@dataclass(frozen=True)
class System:
    """A platform of the pool.

    `triple` is LLVM's name for it; `text` defines the functions above; `symbols` are all that an object of the pool
    takes from the process, under the names of C; `places`: whether threads can be kept off a CPU.
    """

    triple: str
    text: str
    symbols: frozenset[str]
    places: bool


_PAUSE_X86 = """
declare void @llvm.x86.sse2.pause()
define internal void @pause() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}
"""

# A barrier takes some ten nanoseconds, as the pause of x86 does; `yield` takes none on most processors.
_PAUSE_ARM = """
declare void @llvm.aarch64.isb(i32)
define internal void @pause() alwaysinline {
  call void @llvm.aarch64.isb(i32 15)
  ret void
}
"""


def _posix(set_mask: int) -> str:
    """Threads and signals; `set_mask` is SIG_SETMASK, SIG_BLOCK comes two before it."""
    return f"""
@threads = internal global [{MAX_WORKERS} x i64] zeroinitializer, align 128
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)

define internal ptr @thread(ptr %number) {{
  %worker = ptrtoint ptr %number to i64
  call void @serve(i64 %worker)
  ret ptr null
}}

define internal i32 @begin(i64 %worker) {{
  %number = inttoptr i64 %worker to ptr
  %handle = getelementptr [{MAX_WORKERS} x i64], ptr @threads, i64 0, i64 %worker
  %status = call i32 @pthread_create(ptr %handle, ptr null, ptr @thread, ptr %number)
  ret i32 %status
}}

define internal void @finish(i64 %worker) {{
  %handle = getelementptr [{MAX_WORKERS} x i64], ptr @threads, i64 0, i64 %worker
  %id = load i64, ptr %handle
  %r = call i32 @pthread_join(i64 %id, ptr null)
  ret void
}}

define internal void @quiet(ptr %old) {{
  %all = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %r = call i32 @pthread_sigmask(i32 {set_mask - 2}, ptr %all, ptr %old)
  ret void
}}

define internal void @loud(ptr %old) {{
  %r = call i32 @pthread_sigmask(i32 {set_mask}, ptr %old, ptr null)
  ret void
}}
"""


def _linux(futex: int, set_affinity: int, get_id: int) -> str:
    """Linux, by the numbers of its calls on a processor. 128 and 129: FUTEX_WAIT and FUTEX_WAKE, private."""
    return (
        _posix(set_mask=2)
        + f"""
@ids = internal global [{MAX_WORKERS} x i32] zeroinitializer, align 128
declare i32 @sched_getcpu()
declare i64 @syscall(i64, ...)

define internal void @sleep_on(ptr %word, i32 %value) noinline {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i64 128, i32 %value, ptr null, ptr null, i64 0)
  ret void
}}

define internal void @wake(ptr %word) noinline {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i64 129, i32 1, ptr null, ptr null, i64 0)
  ret void
}}

define internal i32 @here() {{
  %cpu = call i32 @sched_getcpu()
  ret i32 %cpu
}}

define internal void @arrive(i64 %worker) {{
  %id.64 = call i64 (i64, ...) @syscall(i64 {get_id})
  %id = trunc i64 %id.64 to i32
  %p = getelementptr [{MAX_WORKERS} x i32], ptr @ids, i64 0, i64 %worker
  store atomic i32 %id, ptr %p seq_cst, align 4
  ret void
}}

define internal void @move(i64 %worker, ptr %mask) noinline {{
  %p = getelementptr [{MAX_WORKERS} x i32], ptr @ids, i64 0, i64 %worker
  %id = load atomic i32, ptr %p seq_cst, align 4
  %known = icmp ne i32 %id, 0
  br i1 %known, label %set, label %done
set:
  %r = call i64 (i64, ...) @syscall(i64 {set_affinity}, i32 %id, i64 {MASK_BYTES}, ptr %mask)
  br label %done
done:
  ret void
}}

define internal void @renew() {{
  call void @llvm.memset.p0.i64(ptr @ids, i8 0, i64 {MAX_WORKERS * 4}, i1 false)
  ret void
}}
"""
    )


# A thread changes its word before it takes the lock and wakes; who sleeps looks at the word under the lock: no change
# is missed. POSIX objects of macOS: a mutex has 64 bytes, a condition 48. SIG_SETMASK is 3 there.
_MACOS = (
    _posix(set_mask=3)
    + f"""
%bed = type {{ [64 x i8], [48 x i8], [16 x i8] }}
@beds = internal global [{MAX_WORKERS} x %bed] zeroinitializer, align 128
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

; The bed of the slot in which the word lies.
define internal ptr @bed_of(ptr %word) {{
  %at = ptrtoint ptr %word to i64
  %first = ptrtoint ptr @slots to i64
  %offset = sub i64 %at, %first
  %slot = udiv i64 %offset, {SLOT_BYTES}
  %bed = getelementptr [{MAX_WORKERS} x %bed], ptr @beds, i64 0, i64 %slot
  ret ptr %bed
}}

define internal void @sleep_on(ptr %word, i32 %value) noinline {{
  %lock = call ptr @bed_of(ptr %word)
  %turn = getelementptr %bed, ptr %lock, i64 0, i32 1
  %a = call i32 @pthread_mutex_lock(ptr %lock)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %still = icmp eq i32 %now, %value
  br i1 %still, label %wait, label %leave
wait:
  %b = call i32 @pthread_cond_wait(ptr %turn, ptr %lock)
  br label %leave
leave:
  %c = call i32 @pthread_mutex_unlock(ptr %lock)
  ret void
}}

define internal void @wake(ptr %word) noinline {{
  %lock = call ptr @bed_of(ptr %word)
  %turn = getelementptr %bed, ptr %lock, i64 0, i32 1
  %a = call i32 @pthread_mutex_lock(ptr %lock)
  %b = call i32 @pthread_cond_broadcast(ptr %turn)
  %c = call i32 @pthread_mutex_unlock(ptr %lock)
  ret void
}}

define internal i32 @here() {{
  ret i32 0
}}

define internal void @arrive(i64 %worker) {{
  ret void
}}

define internal void @move(i64 %worker, ptr %mask) {{
  ret void
}}

define internal void @renew() {{
entry:
  call void @llvm.memset.p0.i64(ptr @beds, i8 0, i64 {MAX_WORKERS * 128}, i1 false)
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %each ]
  %lock = getelementptr [{MAX_WORKERS} x %bed], ptr @beds, i64 0, i64 %i
  %turn = getelementptr %bed, ptr %lock, i64 0, i32 1
  %a = call i32 @pthread_mutex_init(ptr %lock, ptr null)
  %b = call i32 @pthread_cond_init(ptr %turn, ptr null)
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, {MAX_WORKERS}
  br i1 %more, label %each, label %done
done:
  ret void
}}
"""
)

# A thread's mask has 64 bits, those of its group of CPUs: the first eight bytes of ours.
_WINDOWS = f"""
@threads = internal global [{MAX_WORKERS} x ptr] zeroinitializer, align 128
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @ResumeThread(ptr)
declare i32 @WaitForSingleObject(ptr, i32)
declare i32 @CloseHandle(ptr)
declare i32 @WaitOnAddress(ptr, ptr, i64, i32)
declare void @WakeByAddressAll(ptr)
declare i32 @GetCurrentProcessorNumber()
declare i64 @SetThreadAffinityMask(ptr, i64)

define internal i32 @thread(ptr %number) {{
  %worker = ptrtoint ptr %number to i64
  call void @serve(i64 %worker)
  ret i32 0
}}

; Suspended (4) until its handle is written, which it needs to place itself.
define internal i32 @begin(i64 %worker) {{
  %number = inttoptr i64 %worker to ptr
  %made = call ptr @CreateThread(ptr null, i64 0, ptr @thread, ptr %number, i32 4, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %none, label %go
none:
  ret i32 1
go:
  %handle = getelementptr [{MAX_WORKERS} x ptr], ptr @threads, i64 0, i64 %worker
  store atomic ptr %made, ptr %handle seq_cst, align 8
  %r = call i32 @ResumeThread(ptr %made)
  ret i32 0
}}

define internal void @finish(i64 %worker) {{
  %handle = getelementptr [{MAX_WORKERS} x ptr], ptr @threads, i64 0, i64 %worker
  %id = load ptr, ptr %handle
  %a = call i32 @WaitForSingleObject(ptr %id, i32 -1)
  %b = call i32 @CloseHandle(ptr %id)
  store atomic ptr null, ptr %handle seq_cst, align 8
  ret void
}}

define internal void @quiet(ptr %old) {{
  ret void
}}

define internal void @loud(ptr %old) {{
  ret void
}}

define internal void @sleep_on(ptr %word, i32 %value) noinline {{
  %unwanted = alloca i32, align 4
  store i32 %value, ptr %unwanted
  %r = call i32 @WaitOnAddress(ptr %word, ptr %unwanted, i64 4, i32 -1)
  ret void
}}

define internal void @wake(ptr %word) noinline {{
  call void @WakeByAddressAll(ptr %word)
  ret void
}}

define internal i32 @here() {{
  %cpu = call i32 @GetCurrentProcessorNumber()
  ret i32 %cpu
}}

define internal void @arrive(i64 %worker) {{
  ret void
}}

define internal void @move(i64 %worker, ptr %mask) {{
  %handle = getelementptr [{MAX_WORKERS} x ptr], ptr @threads, i64 0, i64 %worker
  %id = load atomic ptr, ptr %handle seq_cst, align 8
  %bits = load i64, ptr %mask
  %r = call i64 @SetThreadAffinityMask(ptr %id, i64 %bits)
  ret void
}}

define internal void @renew() {{
  ret void
}}
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_THREADS = _names("pthread_create pthread_join pthread_sigmask")
_LINUX_SYMBOLS = _THREADS | _names("syscall sched_getcpu memset")
_MACOS_SYMBOLS = _THREADS | _names(
    "pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock pthread_cond_init pthread_cond_wait "
    "pthread_cond_broadcast"
)
_WINDOWS_SYMBOLS = _names(
    "CreateThread ResumeThread WaitForSingleObject CloseHandle WaitOnAddress WakeByAddressAll "
    "GetCurrentProcessorNumber SetThreadAffinityMask memset memcpy"
)

# LLVM copies masks and clears slots by functions of the C library, of other names on macOS.
SYSTEMS: dict[tuple[str, str], System] = {
    ("Linux", "x86_64"): System(
        "x86_64-unknown-linux-gnu", _PAUSE_X86 + _linux(202, 203, 186), _LINUX_SYMBOLS | {"memcpy"}, True
    ),
    ("Linux", "aarch64"): System("aarch64-unknown-linux-gnu", _PAUSE_ARM + _linux(98, 122, 178), _LINUX_SYMBOLS, True),
    ("Darwin", "x86_64"): System(
        "x86_64-apple-macosx11.0", _PAUSE_X86 + _MACOS, _MACOS_SYMBOLS | {"__bzero", "memcpy"}, False
    ),
    ("Darwin", "arm64"): System("arm64-apple-macosx11.0", _PAUSE_ARM + _MACOS, _MACOS_SYMBOLS | {"bzero"}, False),
    ("Windows", "AMD64"): System("x86_64-pc-windows-msvc", _PAUSE_X86 + _WINDOWS, _WINDOWS_SYMBOLS, True),
}
"""What Python's `platform` calls a system and a processor -> the platform of the pool."""
