"""The worker pool itself, as LLVM IR text. `pool.py` loads it and says what it is for.

**Words.** A *job* is a task function, its argument, a number of tasks and a number of workers. Worker 0 is the thread
that calls `run`; workers 1.. are threads of the pool, each with a slot: a cache line pair of its own.

**A slot's state** is the only thing on which a thread and its caller agree:

    0 idle -> 1 posted (by the caller) -> 2 taken (by the thread) -> 0 (by the thread, done)
              1 posted -> 0 (by the caller: revoked, the thread was too slow to wake)      3 leave

Both steps out of `posted` are compare-and-exchange, so exactly one happens. Therefore a caller never waits for a
thread that sleeps: when its own tasks are done it revokes what nobody took. With dynamic hand-out the tasks are then
all gone already; with static hand-out the caller runs the revoked worker's tasks, under that worker's number.

**Sleeping.** A thread spins on its state, then says `asleep`, reads the state again and sleeps on it. The
caller posts, then reads `asleep`, and wakes. Each side writes its own word before it reads the other's, both
sequentially consistent, so a post cannot be missed. The joining caller does the same with `joining`.

**Placement.** When the caller has moved to another CPU since the last job, the threads are forbidden that CPU (the
kernel otherwise keeps a woken thread on the waker's CPU for milliseconds). Switched off with one CPU.

**Systems.** How threads start, sleep, wake and are placed is the system's: `pool_systems.py`.

**One job at a time.** A second caller, or a task that calls `run`, finds the lock taken and runs its tasks itself.
"""

from __future__ import annotations

from treadle.runtime.pool_systems import MASK_BYTES, MAX_WORKERS, SLOT_BYTES, System

SYMBOLS = (
    "treadle_pool_run",
    "treadle_pool_run_static",
    "treadle_pool_configure",
    "treadle_pool_forget",
    "treadle_pool_stop",
    "treadle_pool_threads",
)


def pool_ir(system: System) -> str:
    """The whole text of the pool for a system."""
    return system.text + _POOL


_POOL = f"""
; state, asleep, joining
%slot = type {{ i32, i32, i32, [{SLOT_BYTES - 12} x i8] }}
%job = type {{ ptr, ptr, i64, i64, i64, [88 x i8] }}

@slots = internal global [{MAX_WORKERS} x %slot] zeroinitializer, align 128
@job = internal global %job zeroinitializer, align 128
@next = internal global [16 x i64] zeroinitializer, align 128
@lock = internal global [32 x i32] zeroinitializer, align 128
@started = internal global i32 0, align 4
@limit = internal global i32 0, align 4
@home = internal global i32 -1, align 4
@place = internal global i32 0, align 4
@spin_thread = internal global i32 0, align 4
@spin_join = internal global i32 0, align 4
@allowed = internal global [{MASK_BYTES} x i8] zeroinitializer, align 64

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)

; The tasks of one worker. Static: worker, worker + workers, ... Dynamic: whatever is next.
define internal void @portion(i64 %worker) {{
entry:
  %fn = load ptr, ptr @job
  %arg.p = getelementptr %job, ptr @job, i64 0, i32 1
  %arg = load ptr, ptr %arg.p
  %tasks.p = getelementptr %job, ptr @job, i64 0, i32 2
  %tasks = load i64, ptr %tasks.p
  %workers.p = getelementptr %job, ptr @job, i64 0, i32 3
  %workers = load i64, ptr %workers.p
  %static.p = getelementptr %job, ptr @job, i64 0, i32 4
  %static = load i64, ptr %static.p
  %is.static = icmp ne i64 %static, 0
  br i1 %is.static, label %fixed, label %take
fixed:
  %t = phi i64 [ %worker, %entry ], [ %t.next, %fixed.run ]
  %t.more = icmp slt i64 %t, %tasks
  br i1 %t.more, label %fixed.run, label %done
fixed.run:
  call void %fn(ptr %arg, i64 %t, i64 %worker)
  %t.next = add i64 %t, %workers
  br label %fixed
take:
  %u = atomicrmw add ptr @next, i64 1 monotonic
  %u.more = icmp slt i64 %u, %tasks
  br i1 %u.more, label %take.run, label %done
take.run:
  call void %fn(ptr %arg, i64 %u, i64 %worker)
  br label %take
done:
  ret void
}}

; The allowed CPUs without `cpu`.
define internal void @mask_without(ptr %mask, i32 %cpu) {{
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr @allowed, i64 {MASK_BYTES}, i1 false)
  %inside = icmp ult i32 %cpu, {MASK_BYTES * 8}
  br i1 %inside, label %clear, label %done
clear:
  %byte.i = lshr i32 %cpu, 3
  %byte.p = getelementptr i8, ptr %mask, i32 %byte.i
  %bit.i = and i32 %cpu, 7
  %bit.8 = trunc i32 %bit.i to i8
  %bit = shl i8 1, %bit.8
  %keep = xor i8 %bit, -1
  %old = load i8, ptr %byte.p
  %new = and i8 %old, %keep
  store i8 %new, ptr %byte.p
  br label %done
done:
  ret void
}}

; Where the caller runs now is no place for the threads.
define internal void @settle() {{
entry:
  %mask = alloca [{MASK_BYTES} x i8], align 64
  %on = load i32, ptr @place
  %off = icmp eq i32 %on, 0
  br i1 %off, label %done, label %look
look:
  %cpu = call i32 @here()
  %home = load atomic i32, ptr @home monotonic, align 4
  %same = icmp eq i32 %cpu, %home
  br i1 %same, label %done, label %move
move:
  store atomic i32 %cpu, ptr @home seq_cst, align 4
  call void @mask_without(ptr %mask, i32 %cpu)
  %n = load i32, ptr @started
  br label %each
each:
  %i = phi i32 [ 1, %move ], [ %i.next, %each.end ]
  %more = icmp sle i32 %i, %n
  br i1 %more, label %one, label %done
one:
  %i.64 = zext i32 %i to i64
  call void @move(i64 %i.64, ptr %mask)
  br label %each.end
each.end:
  %i.next = add i32 %i, 1
  br label %each
done:
  ret void
}}

; What a thread of the pool does, from its start to its end.
define internal void @serve(i64 %worker) {{
entry:
  %mask = alloca [{MASK_BYTES} x i8], align 64
  %state = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %worker, i32 0
  %asleep = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %worker, i32 1
  %joining = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %worker, i32 2
  call void @arrive(i64 %worker)
  %on = load i32, ptr @place
  %placed = icmp ne i32 %on, 0
  br i1 %placed, label %settle.self, label %begin
settle.self:
  %home = load atomic i32, ptr @home seq_cst, align 4
  call void @mask_without(ptr %mask, i32 %home)
  call void @move(i64 %worker, ptr %mask)
  br label %begin
begin:
  %most = load i32, ptr @spin_thread
  br label %spin
spin:
  %n = phi i32 [ 0, %begin ], [ %n.next, %spin.on ]
  %s = load atomic i32, ptr %state acquire, align 4
  switch i32 %s, label %idle [ i32 1, label %claim
                               i32 3, label %leave ]
idle:
  %n.next = add i32 %n, 1
  %tired = icmp sge i32 %n, %most
  br i1 %tired, label %sleep, label %spin.on
spin.on:
  call void @pause()
  br label %spin
sleep:
  store atomic i32 1, ptr %asleep seq_cst, align 4
  %again = load atomic i32, ptr %state seq_cst, align 4
  %still = icmp eq i32 %again, 0
  br i1 %still, label %wait, label %woken
wait:
  call void @sleep_on(ptr %state, i32 0)
  br label %woken
woken:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  br label %begin
claim:
  %swap = cmpxchg ptr %state, i32 1, i32 2 acq_rel acquire, align 4
  %mine = extractvalue {{ i32, i1 }} %swap, 1
  br i1 %mine, label %work, label %begin
work:
  call void @portion(i64 %worker)
  %was = atomicrmw xchg ptr %state, i32 0 seq_cst, align 4
  %waited = load atomic i32, ptr %joining seq_cst, align 4
  %wake = icmp ne i32 %waited, 0
  br i1 %wake, label %tell, label %begin
tell:
  call void @wake(ptr %state)
  br label %begin
leave:
  ret void
}}

; Have at least `%want` threads, if the system gives them. Signals stay with the caller's threads.
define internal void @grow(i32 %want) noinline {{
entry:
  %cpu = call i32 @here()
  store atomic i32 %cpu, ptr @home seq_cst, align 4
  %old = alloca [128 x i8], align 16
  call void @quiet(ptr %old)
  br label %check
check:
  %n = load i32, ptr @started
  %enough = icmp sge i32 %n, %want
  br i1 %enough, label %done, label %make
make:
  %number = add i32 %n, 1
  %number.64 = zext i32 %number to i64
  %status = call i32 @begin(i64 %number.64)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %done, label %made
made:
  store atomic i32 %number, ptr @started release, align 4
  br label %check
done:
  call void @loud(ptr %old)
  ret void
}}

define internal void @alone(ptr %fn, ptr %arg, i64 %tasks) {{
entry:
  br label %check
check:
  %t = phi i64 [ 0, %entry ], [ %t.next, %run ]
  %more = icmp slt i64 %t, %tasks
  br i1 %more, label %run, label %done
run:
  call void %fn(ptr %arg, i64 %t, i64 0)
  %t.next = add i64 %t, 1
  br label %check
done:
  ret void
}}

define internal void @fork_join(ptr %fn, ptr %arg, i64 %tasks, i64 %workers, i64 %static) {{
entry:
  %limit.32 = load atomic i32, ptr @limit monotonic, align 4
  %limit = sext i32 %limit.32 to i64
  %w.a = call i64 @llvm.smin.i64(i64 %workers, i64 %tasks)
  %w.b = call i64 @llvm.smin.i64(i64 %w.a, i64 %limit)
  %several = icmp sgt i64 %w.b, 1
  br i1 %several, label %enter, label %inline
inline:
  call void @alone(ptr %fn, ptr %arg, i64 %tasks)
  ret void
enter:
  %swap = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic, align 4
  %free = extractvalue {{ i32, i1 }} %swap, 1
  br i1 %free, label %locked, label %inline
locked:
  %want.64 = sub i64 %w.b, 1
  %want = trunc i64 %want.64 to i32
  %have.a = load i32, ptr @started
  %few = icmp slt i32 %have.a, %want
  br i1 %few, label %start, label %started.enough
start:
  call void @grow(i32 %want)
  br label %started.enough
started.enough:
  call void @settle()
  %have = load i32, ptr @started
  %have.64 = sext i32 %have to i64
  %most = add i64 %have.64, 1
  %w = call i64 @llvm.smin.i64(i64 %w.b, i64 %most)
  %w.last = sub i64 %w, 1
  store ptr %fn, ptr @job
  %arg.p = getelementptr %job, ptr @job, i64 0, i32 1
  store ptr %arg, ptr %arg.p
  %tasks.p = getelementptr %job, ptr @job, i64 0, i32 2
  store i64 %tasks, ptr %tasks.p
  %workers.p = getelementptr %job, ptr @job, i64 0, i32 3
  store i64 %w, ptr %workers.p
  %static.p = getelementptr %job, ptr @job, i64 0, i32 4
  store i64 %static, ptr %static.p
  store atomic i64 0, ptr @next release, align 8
  br label %post
post:
  %i = phi i64 [ 1, %started.enough ], [ %i.next, %post.one ]
  %i.more = icmp sle i64 %i, %w.last
  br i1 %i.more, label %post.one, label %wake
post.one:
  %p.state = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %i, i32 0
  store atomic i32 1, ptr %p.state seq_cst, align 4
  %i.next = add i64 %i, 1
  br label %post
wake:
  %j = phi i64 [ 1, %post ], [ %j.next, %wake.end ]
  %j.more = icmp sle i64 %j, %w.last
  br i1 %j.more, label %wake.one, label %own
wake.one:
  %w.state = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %j, i32 0
  %w.asleep = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %j, i32 1
  %sleeps = load atomic i32, ptr %w.asleep seq_cst, align 4
  %must = icmp ne i32 %sleeps, 0
  br i1 %must, label %wake.it, label %wake.end
wake.it:
  call void @wake(ptr %w.state)
  br label %wake.end
wake.end:
  %j.next = add i64 %j, 1
  br label %wake
own:
  call void @portion(i64 0)
  br label %join
join:
  %k = phi i64 [ 1, %own ], [ %k.next, %join.end ]
  %k.more = icmp sle i64 %k, %w.last
  br i1 %k.more, label %join.one, label %unlock
join.one:
  %k.state = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %k, i32 0
  %revoke = cmpxchg ptr %k.state, i32 1, i32 0 acq_rel acquire, align 4
  %revoked = extractvalue {{ i32, i1 }} %revoke, 1
  br i1 %revoked, label %join.revoked, label %join.wait
join.revoked:
  %is.static = icmp ne i64 %static, 0
  br i1 %is.static, label %join.stand.in, label %join.end
join.stand.in:
  call void @portion(i64 %k)
  br label %join.end
join.wait:
  call void @await(i64 %k)
  br label %join.end
join.end:
  %k.next = add i64 %k, 1
  br label %join
unlock:
  store atomic i32 0, ptr @lock release, align 4
  ret void
}}

; Until thread `%k` is idle.
define internal void @await(i64 %k) {{
entry:
  %state = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %k, i32 0
  %joining = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i64 %k, i32 2
  %most = load i32, ptr @spin_join
  br label %spin
spin:
  %n = phi i32 [ 0, %entry ], [ %n.next, %spin.on ]
  %s = load atomic i32, ptr %state acquire, align 4
  %idle = icmp eq i32 %s, 0
  br i1 %idle, label %done, label %busy
busy:
  %n.next = add i32 %n, 1
  %tired = icmp sge i32 %n, %most
  br i1 %tired, label %say, label %spin.on
spin.on:
  call void @pause()
  br label %spin
say:
  store atomic i32 1, ptr %joining seq_cst, align 4
  br label %look
look:
  %t = load atomic i32, ptr %state seq_cst, align 4
  %over = icmp eq i32 %t, 0
  br i1 %over, label %awake, label %wait
wait:
  call void @sleep_on(ptr %state, i32 %t)
  br label %look
awake:
  store atomic i32 0, ptr %joining seq_cst, align 4
  br label %done
done:
  ret void
}}

define void @treadle_pool_run(ptr %fn, ptr %arg, i64 %tasks, i64 %workers) {{
  call void @fork_join(ptr %fn, ptr %arg, i64 %tasks, i64 %workers, i64 0)
  ret void
}}

define void @treadle_pool_run_static(ptr %fn, ptr %arg, i64 %tasks, i64 %workers) {{
  call void @fork_join(ptr %fn, ptr %arg, i64 %tasks, i64 %workers, i64 1)
  ret void
}}

; Threads are started by the first job that needs them.
define void @treadle_pool_configure(i32 %limit, i32 %place, i32 %spin.thread, i32 %spin.join, ptr %allowed) {{
entry:
  call void @acquire()
  %n = load i32, ptr @started
  %fresh = icmp eq i32 %n, 0
  br i1 %fresh, label %make, label %keep
make:
  call void @renew()
  br label %keep
keep:
  %most = icmp sgt i32 %limit, {MAX_WORKERS}
  %kept = select i1 %most, i32 {MAX_WORKERS}, i32 %limit
  store atomic i32 %kept, ptr @limit seq_cst, align 4
  store i32 %place, ptr @place
  store i32 %spin.thread, ptr @spin_thread
  store i32 %spin.join, ptr @spin_join
  call void @llvm.memcpy.p0.p0.i64(ptr @allowed, ptr %allowed, i64 {MASK_BYTES}, i1 false)
  store atomic i32 -1, ptr @home seq_cst, align 4
  store atomic i32 0, ptr @lock release, align 4
  ret void
}}

define internal void @acquire() {{
entry:
  br label %try
try:
  %swap = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic, align 4
  %free = extractvalue {{ i32, i1 }} %swap, 1
  br i1 %free, label %done, label %again
again:
  call void @pause()
  br label %try
done:
  ret void
}}

; In the child of a fork: the threads are not there, and the lock may have been held by one that is not either.
define void @treadle_pool_forget() {{
  call void @llvm.memset.p0.i64(ptr @slots, i8 0, i64 {MAX_WORKERS * SLOT_BYTES}, i1 false)
  call void @renew()
  store atomic i32 0, ptr @started seq_cst, align 4
  store atomic i32 -1, ptr @home seq_cst, align 4
  store atomic i32 0, ptr @lock seq_cst, align 4
  ret void
}}

; Every thread leaves; returns when they are gone. The next job starts new ones.
define void @treadle_pool_stop() {{
entry:
  call void @acquire()
  %n = load i32, ptr @started
  br label %each
each:
  %i = phi i32 [ 1, %entry ], [ %i.next, %one ]
  %more = icmp sle i32 %i, %n
  br i1 %more, label %one, label %gone
one:
  %state = getelementptr [{MAX_WORKERS} x %slot], ptr @slots, i64 0, i32 %i, i32 0
  %old = atomicrmw xchg ptr %state, i32 3 seq_cst, align 4
  call void @wake(ptr %state)
  %i.64 = zext i32 %i to i64
  call void @finish(i64 %i.64)
  %i.next = add i32 %i, 1
  br label %each
gone:
  call void @treadle_pool_forget()
  ret void
}}

define i32 @treadle_pool_threads() {{
  %n = load atomic i32, ptr @started acquire, align 4
  ret i32 %n
}}
"""
