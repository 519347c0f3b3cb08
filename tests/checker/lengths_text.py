"""Machine text of two roles whose loops go on for as long as numbers say that each of them loads for itself."""

from __future__ import annotations

LENGTHS = """tdm 1
target cuda:sm_80
program {
  program rows
    dim M
    tensor L: i32[M]
    tensor Y: i32[M] out
    body
      region R0 parallel (m in M)
        %l: i32[m] = load L[m]
        %y: i32[m] = abs %l
        store Y[m] = %y
}
guard {
  M % 2 == 0
  disjoint(L, Y)
  injective(Y)
}
host {
  let MT = M // 2
  launch main grid max(1, min(MT, 2)) threads 96 shared 256
}
kernel main {
  buffer S i32[32] shared align 16 @ 0
  frag n i32[]
  frag k i32[]
  frag x i32[32] dist (lane 32 axis 0 stride 1)
  frag z i32[32] dist (lane 32 axis 0 stride 1)
  frag v i32[]
  frag y i32[]
  role one agents 1 threads 32 index w {
    tasks (t < MT) over persistent enters R0(m = 2 * t .. 2 * t + 2) {
      let q = ONE
      n = load L[q] ; %l[q]
      loop j = 0 .. n() step 1 {
        x = copy 0
        version S
        store S[$0] = x
        sync barrier.arrive (id = 1, threads = 96)
        sync barrier.sync (id = 2, threads = 96)
      }
    }
  }
  role two agents 2 threads 32 index w {
    tasks (u < MT) over persistent enters R0(m = 2 * u .. 2 * u + 2) {
      let q = TWO
      k = load L[q] ; %l[q]
      loop i = 0 .. k() step 1 {
        sync barrier.sync (id = 1, threads = 96)
        z = load S[$0]
        sync barrier.arrive (id = 2, threads = 96)
      }
      v = load L[2 * u + w] ; %l[2 * u + w]
      y = abs v ; %y[2 * u + w]
      store Y[2 * u + w] = y by elect ; store 0 [2 * u + w]
    }
  }
}
"""
