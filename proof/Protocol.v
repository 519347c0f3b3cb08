(** The protocol of a ring at the level of its barriers: arrivals, announced bytes, parities, given-back slots. The texts
    of this fragment are finite programs of acts; [verdict] judges one by looking at every interleaving, and its answers
    are proved ([Explore.judge_sound]). The project's checker is compared with it, text by text. *)

From Coq Require Import List PArith ZArith Arith Bool Lia.
From Treadle Require Import Explore.
Import ListNotations.

(** One act of an agent in its step of version [v]; slots are [v mod V], turns [v / V]. *)
Inductive act :=
| WaitFull (ahead : nat)     (* until the parity of turn v / V + ahead has completed on the slot's [full] *)
| WaitEmpty (ahead : nat)    (* the same on [empty] *)
| Tell (bytes : nat)         (* announce bytes on [full] and arrive there *)
| Fill (boxes : nat)         (* issue that many copies of one byte each; they land later, in any order *)
| Read                       (* reads the slot: begins, and ends later *)
| Give (behind : nat).       (* arrive on [empty] of version v - behind; nothing when there is no such version *)

Record text := {
  slots : nat;
  trips : nat;
  full_count : nat;                              (* arrivals that complete a turn of [full] *)
  empty_count : nat;
  whole : nat;                                   (* boxes that make a whole version *)
  producer : list act;
  consumers : list (list act * list act)         (* a step, and what follows the last step *)
}.

(** A barrier: parity of the completed turns, arrivals still missing, bytes still owed. *)
Record barrier := { odd_turns : bool; missing : nat; owed : Z }.

Record agent := { version : nat; position : nat; inside : bool }.

Record state := {
  agents : list agent;                           (* the producer first *)
  fulls : list barrier;
  empties : list barrier;
  ring : list (nat * nat);                       (* of a slot: the version being or having been filled, boxes landed *)
  flight : list nat;                             (* versions of the copies on the way *)
  fault : bool
}.

Definition state_eq_dec (a b : state) : {a = b} + {a <> b}.
Proof. repeat decide equality. Defined.

Section Text.
  Variable t : text.

  Fixpoint update {A} (l : list A) (n : nat) (a : A) : list A :=
    match l, n with [], _ => [] | _ :: l, 0 => a :: l | x :: l, S n => x :: update l n a end.

  Definition settle (count : nat) (b : barrier) : barrier :=
    if (missing b =? 0) && (owed b =? 0)%Z
    then {| odd_turns := negb (odd_turns b); missing := count; owed := 0 |} else b.

  Definition slot (v : nat) : nat := v mod slots t.
  Definition nobar := {| odd_turns := false; missing := 0; owed := 0 |}.

  Definition with_agents (s : state) a :=
    {| agents := a; fulls := fulls s; empties := empties s; ring := ring s; flight := flight s; fault := fault s |}.
  Definition with_full (s : state) k b :=
    {| agents := agents s; fulls := update (fulls s) k (settle (full_count t) b); empties := empties s; ring := ring s;
       flight := flight s; fault := fault s |}.
  Definition with_empty (s : state) k b :=
    {| agents := agents s; fulls := fulls s; empties := update (empties s) k (settle (empty_count t) b); ring := ring s;
       flight := flight s; fault := fault s |}.
  Definition faulty (s : state) :=
    {| agents := agents s; fulls := fulls s; empties := empties s; ring := ring s; flight := flight s; fault := true |}.

  Definition body (j : nat) : list act := match j with 0 => producer t | S i => fst (nth i (consumers t) ([], [])) end.
  Definition after (j : nat) : list act := match j with 0 => [] | S i => snd (nth i (consumers t) ([], [])) end.

  Definition current (j : nat) (a : agent) : option act :=
    nth_error (if version a <? trips t then body j else after j) (position a).

  (** The next position; the end of a step is the start of the next one. *)
  Definition moved (j : nat) (a : agent) : agent :=
    if (version a <? trips t) && (S (position a) =? length (body j))
    then {| version := S (version a); position := 0; inside := false |}
    else {| version := version a; position := S (position a); inside := false |}.

  Definition passes (b : barrier) (turn : nat) : bool := negb (Bool.eqb (odd_turns b) (Nat.odd turn)).

  Definition arrive (b : barrier) (bytes : nat) : option barrier :=
    match missing b with
    | 0 => None
    | S m => Some {| odd_turns := odd_turns b; missing := m; owed := (owed b + Z.of_nat bytes)%Z |}
    end.

  Definition act_of (s : state) (j : nat) (a : agent) : list state :=
    let v := version a in
    let on := with_agents s (update (agents s) j (moved j a)) in
    match current j a with
    | None => []
    | Some (WaitFull x) => if passes (nth (slot v) (fulls s) nobar) (v / slots t + x) then [on] else []
    | Some (WaitEmpty x) => if passes (nth (slot v) (empties s) nobar) (v / slots t + x) then [on] else []
    | Some (Tell bytes) =>
        match arrive (nth (slot v) (fulls s) nobar) bytes with
        | Some b => [with_full on (slot v) b] | None => [faulty s] end
    | Some (Fill boxes) =>
        [{| agents := agents on; fulls := fulls s; empties := empties s; ring := update (ring s) (slot v) (v, 0);
            flight := repeat v boxes ++ flight s; fault := fault s |}]
    | Some Read =>
        if inside a then [on]
        else [with_agents s (update (agents s) j {| version := v; position := position a; inside := true |})]
    | Some (Give d) =>
        if v <? d then [on]
        else match arrive (nth (slot (v - d)) (empties s) nobar) 0 with
             | Some b => [with_empty on (slot (v - d)) b] | None => [faulty s] end
    end.

  Fixpoint remove_one (n : nat) (l : list nat) : list nat :=
    match l with [] => [] | m :: l => if m =? n then l else m :: remove_one n l end.

  (** A copy lands: its byte is counted, and is in the slot unless the slot has gone to another version. *)
  Definition land (s : state) (n : nat) : state :=
    let b := nth (slot n) (fulls s) nobar in
    let s := with_full s (slot n) {| odd_turns := odd_turns b; missing := missing b; owed := (owed b - 1)%Z |} in
    let s := {| agents := agents s; fulls := fulls s; empties := empties s; ring := ring s;
                flight := remove_one n (flight s); fault := fault s |} in
    match nth_error (ring s) (slot n) with
    | Some (m, c) =>
        if m =? n
        then {| agents := agents s; fulls := fulls s; empties := empties s; ring := update (ring s) (slot n) (n, S c);
                flight := flight s; fault := fault s |}
        else faulty s
    | None => faulty s
    end.

  Fixpoint each (j : nat) (s : state) (l : list agent) : list state :=
    match l with [] => [] | a :: l => act_of s j a ++ each (S j) s l end.

  Definition successors (s : state) : list state :=
    if fault s then [] else each 0 s (agents s) ++ map (land s) (nodup Nat.eq_dec (flight s)).

  Definition torn (s : state) (a : agent) : bool :=
    inside a && match nth_error (ring s) (slot (version a)) with
                | Some (m, c) => negb ((m =? version a) && (c =? whole t)) | None => true end.

  Definition good (s : state) : bool := negb (fault s) && forallb (fun a => negb (torn s a)) (agents s).

  Fixpoint ended (j : nat) (l : list agent) : bool :=
    match l with
    | [] => true
    | a :: l => (version a =? trips t) && (position a =? length (after j)) && ended (S j) l
    end.

  Definition final (s : state) : bool := ended 0 (agents s) && match flight s with [] => true | _ => false end.

  Definition fresh (count : nat) := {| odd_turns := false; missing := count; owed := 0%Z |}.
  Definition start : state :=
    {| agents := repeat {| version := 0; position := 0; inside := false |} (S (length (consumers t)));
       fulls := repeat (fresh (full_count t)) (slots t);
       empties := repeat (fresh (empty_count t)) (slots t);
       ring := repeat (trips t, 0) (slots t);
       flight := [];
       fault := false |}.

  (** A number for the table of known states: four bits a part, written straight into it. *)
  Definition digit (acc : positive) (n : nat) : positive :=
    (match n with
     | 0%nat => acc~0~0~0~0 | 1%nat => acc~0~0~0~1 | 2%nat => acc~0~0~1~0 | 3%nat => acc~0~0~1~1
     | 4%nat => acc~0~1~0~0 | 5%nat => acc~0~1~0~1 | 6%nat => acc~0~1~1~0 | 7%nat => acc~0~1~1~1
     | 8%nat => acc~1~0~0~0 | 9%nat => acc~1~0~0~1 | 10%nat => acc~1~0~1~0 | 11%nat => acc~1~0~1~1
     | 12%nat => acc~1~1~0~0 | 13%nat => acc~1~1~0~1 | 14%nat => acc~1~1~1~0 | _ => acc~1~1~1~1
     end)%positive.
  Definition bit (b : bool) : nat := if b then 1 else 0.
  Definition code (s : state) : positive :=
    let acc := fold_left (fun acc a => digit (digit acc (version a)) (2 * position a + bit (inside a))) (agents s) 1%positive in
    let bars := fun acc b => digit (digit acc (2 * missing b + bit (odd_turns b))) (Z.to_nat (owed b + 7)) in
    let acc := fold_left bars (fulls s) acc in
    let acc := fold_left bars (empties s) acc in
    let acc := fold_left (fun acc r => digit (digit acc (fst r)) (snd r)) (ring s) acc in
    fold_left digit (flight s) acc.

  Definition verdict (fuel : nat) : option bool := judge state state_eq_dec code successors good final start fuel.

  (** What a verdict says of every interleaving. *)
  Theorem verdict_sound fuel :
    (verdict fuel = Some true -> forall s, reachable state successors start s -> right state successors good final s) /\
    (verdict fuel = Some false ->
       exists s, reachable state successors start s /\ ~ right state successors good final s).
  Proof. apply judge_sound. Qed.
End Text.

(** The protocol as the project writes it. *)
Definition ring_text (v n boxes : nat) (consumers : nat) : text :=
  {| slots := v; trips := n; full_count := 1; empty_count := consumers; whole := boxes;
     producer := [WaitEmpty 1; Tell boxes; Fill boxes];
     consumers := repeat ([WaitFull 0; Read; Give 0], []) consumers |}.

(** One slot behind: a step gives the slot of the step before, the last slot is given after the loop. *)
Definition behind_text (v n boxes : nat) (consumers : nat) : text :=
  {| slots := v; trips := n; full_count := 1; empty_count := consumers; whole := boxes;
     producer := [WaitEmpty 1; Tell boxes; Fill boxes];
     consumers := repeat ([WaitFull 0; Read; Give 1], [Give 1]) consumers |}.

Definition enough : nat := 400 * 400.

Example rings_are_right :
  map (fun v => verdict (ring_text v (v + 2) 2 2) enough) [1; 2; 3] = [Some true; Some true; Some true].
Proof. vm_compute. reflexivity. Qed.

Example behind_needs_two_slots :
  map (fun v => verdict (behind_text v (v + 2) 1 2) enough) [1; 2; 3] = [Some false; Some true; Some true].
Proof. vm_compute. reflexivity. Qed.

(** No trips, no deadlock. *)
Example empty_ring : verdict (ring_text 2 0 1 2) enough = Some true.
Proof. vm_compute. reflexivity. Qed.
