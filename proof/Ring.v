(** Rings: one producer fills versions 0 .. N-1 of a ring of V slots through an asynchronous engine, C consumers read
    them asynchronously. Publication before reading, and the join of ALL consumers' completions before reuse, make every
    execution safe; nobody waits for ever; and one parity bit names a turn. *)

From Coq Require Import List Arith Lia Bool.
Import ListNotations.

Section Ring.
  Variables V C N : nat.
  Hypothesis slots : 0 < V.
  (** Which consumers' completions the producer waits for before it reuses a slot. *)
  Variable joined : nat -> bool.

  Record state := {
    issued : nat;                 (* fills issued: versions below it *)
    landed : nat -> bool;         (* the bytes of a version have arrived *)
    begun : nat -> nat;           (* reads begun by a consumer: versions below it *)
    ended : nat -> nat;           (* reads completed by a consumer *)
    slot : nat -> option nat      (* the version a slot holds; None while its bytes are on the way *)
  }.

  Definition init := {| issued := 0; landed := fun _ => false; begun := fun _ => 0; ended := fun _ => 0; slot := fun _ => None |}.

  Definition set {A} (f : nat -> A) (k : nat) (v : A) : nat -> A := fun x => if x =? k then v else f x.

  Lemma set_eq {A} (f : nat -> A) k v : set f k v k = v.
  Proof. unfold set. rewrite Nat.eqb_refl. reflexivity. Qed.
  Lemma set_neq {A} (f : nat -> A) k v x : x <> k -> set f k v x = f x.
  Proof. intros H. unfold set. apply Nat.eqb_neq in H. rewrite H. reflexivity. Qed.

  (** From the issue of a copy on, the slot's contents are undefined; completions come in any order. *)
  Inductive step (s : state) : state -> Prop :=
  | Issue : issued s < N -> (forall i, i < C -> joined i = true -> issued s < ended s i + V) ->
      step s {| issued := S (issued s); landed := landed s; begun := begun s; ended := ended s;
                slot := set (slot s) (issued s mod V) None |}
  | Land n : n < issued s -> landed s n = false ->
      step s {| issued := issued s; landed := set (landed s) n true; begun := begun s; ended := ended s;
                slot := set (slot s) (n mod V) (Some n) |}
  | Begin i : i < C -> begun s i < N -> landed s (begun s i) = true ->
      step s {| issued := issued s; landed := landed s; begun := set (begun s) i (S (begun s i)); ended := ended s;
                slot := slot s |}
  | End i : i < C -> ended s i < begun s i ->
      step s {| issued := issued s; landed := landed s; begun := begun s; ended := set (ended s) i (S (ended s i));
                slot := slot s |}.

  Inductive reachable : state -> Prop :=
  | reach_init : reachable init
  | reach_step s t : reachable s -> step s t -> reachable t.

  (** A consumer is inside a read of version [n], and the slot does not hold it. *)
  Definition torn (s : state) := exists i n, i < C /\ ended s i <= n < begun s i /\ slot s (n mod V) <> Some n.

  Definition all_joined := forall i, i < C -> joined i = true.

  Record invariant (s : state) : Prop := {
    inv_issued : issued s <= N;
    inv_landed : forall n, landed s n = true -> n < issued s;
    inv_begun : forall i n, i < C -> n < begun s i -> landed s n = true;
    inv_ended : forall i, i < C -> ended s i <= begun s i;
    inv_reuse : forall i, i < C -> issued s <= ended s i + V;
    inv_slot : forall n, n < issued s -> issued s <= n + V -> slot s (n mod V) = if landed s n then Some n else None
  }.

  Lemma same_slot a b : a mod V = b mod V -> a < b -> b < a + V -> False.
  Proof.
    intros E L U. pose proof (Nat.div_mod a V ltac:(lia)) as A. pose proof (Nat.div_mod b V ltac:(lia)) as B.
    rewrite E in A. assert (a / V < b / V \/ b / V <= a / V) as [H|H] by lia; nia.
  Qed.

  (** Every version of a slot before the one now in it has landed: a fill is waited for by the consumers that read it. *)
  Lemma invariant_step s t : 0 < C -> all_joined -> invariant s -> step s t -> invariant t.
  Proof.
    intros HC J I St. destruct St as [Hn Hj|n Hn Hl|i Hi Hb Hl|i Hi He]; constructor; simpl.
    - lia.
    - intros m Hm. apply (inv_landed _ I) in Hm. lia.
    - intros i m Hi Hm. exact (inv_begun _ I i m Hi Hm).
    - exact (inv_ended _ I).
    - intros i Hi. specialize (Hj i Hi (J i Hi)). lia.
    - intros m Hm Hv. destruct (Nat.eq_dec m (issued s)) as [->|D].
      + rewrite set_eq. destruct (landed s (issued s)) eqn:L; [|reflexivity]. apply (inv_landed _ I) in L. lia.
      + rewrite set_neq by (intros E; apply (same_slot m (issued s) E); lia). apply (inv_slot _ I); lia.
    - apply (inv_issued _ I).
    - intros m Hm. destruct (Nat.eq_dec m n) as [->|D]; [exact Hn|]. rewrite set_neq in Hm by exact D.
      exact (inv_landed _ I m Hm).
    - intros i m Hi Hm. destruct (Nat.eq_dec m n) as [->|D]; [apply set_eq|]. rewrite set_neq by exact D.
      exact (inv_begun _ I i m Hi Hm).
    - exact (inv_ended _ I).
    - exact (inv_reuse _ I).
    - intros m Hm Hv. destruct (Nat.eq_dec m n) as [->|D].
      + rewrite !set_eq. reflexivity.
      + rewrite (set_neq (landed s)) by exact D.
        rewrite set_neq; [apply (inv_slot _ I); lia|]. intros E.
        (* the version that lands is within the last V: an older one was read, hence had landed *)
        assert (issued s <= n + V) as Recent.
        { destruct (le_lt_dec (issued s) (n + V)) as [|Old]; [assumption|exfalso].
          pose proof (inv_reuse _ I 0 HC). pose proof (inv_ended _ I 0 HC).
          assert (landed s n = true) by (apply (inv_begun _ I 0 n HC); lia). congruence. }
        destruct (lt_eq_lt_dec m n) as [[L|E']|L]; [|congruence|].
        * apply (same_slot m n); [symmetry; auto|lia|lia].
        * apply (same_slot n m); [auto|lia|lia].
    - apply (inv_issued _ I).
    - exact (inv_landed _ I).
    - intros j m Hj Hm. destruct (Nat.eq_dec j i) as [->|D].
      + rewrite set_eq in Hm. destruct (Nat.eq_dec m (begun s i)) as [->|D']; [exact Hl|].
        apply (inv_begun _ I i m Hi). lia.
      + rewrite set_neq in Hm by exact D. exact (inv_begun _ I j m Hj Hm).
    - intros j Hj. pose proof (inv_ended _ I j Hj). unfold set. destruct (j =? i) eqn:E; [|lia].
      apply Nat.eqb_eq in E. subst. lia.
    - exact (inv_reuse _ I).
    - exact (inv_slot _ I).
    - apply (inv_issued _ I).
    - exact (inv_landed _ I).
    - exact (inv_begun _ I).
    - intros j Hj. pose proof (inv_ended _ I j Hj). unfold set. destruct (j =? i) eqn:E; [|lia].
      apply Nat.eqb_eq in E. subst. lia.
    - intros j Hj. pose proof (inv_reuse _ I j Hj). unfold set. destruct (j =? i) eqn:E; [|lia].
      apply Nat.eqb_eq in E. subst. lia.
    - exact (inv_slot _ I).
  Qed.

  Lemma invariant_reachable s : 0 < C -> all_joined -> reachable s -> invariant s.
  Proof.
    intros HC J R. induction R.
    - constructor; simpl; intros; try lia; try discriminate.
    - eapply invariant_step; eauto.
  Qed.

  (** Safety, for every number of slots, consumers and versions, the empty run included. *)
  Theorem ring_safe s : all_joined -> reachable s -> ~ torn s.
  Proof.
    intros J R (i & n & Hi & [He Hb] & T). assert (0 < C) as HC by lia.
    pose proof (invariant_reachable s HC J R) as I.
    assert (landed s n = true) as L by (apply (inv_begun _ I i n Hi Hb)).
    pose proof (inv_landed _ I n L). pose proof (inv_reuse _ I i Hi).
    rewrite (inv_slot _ I) in T by lia. rewrite L in T. congruence.
  Qed.

  (** Progress: before everything is filled and read, some step is possible. *)
  Definition finished (s : state) := issued s = N /\ forall i, i < C -> ended s i = N.

  Lemma bounded (P : nat -> bool) n : (forall i, i < n -> P i = true) \/ (exists i, i < n /\ P i = false).
  Proof.
    induction n as [|n [IH|(i & Hi & IH)]].
    - left. intros; lia.
    - destruct (P n) eqn:E; [left|right].
      + intros i Hi. destruct (Nat.eq_dec i n) as [->|]; [exact E|apply IH; lia].
      + exists n. auto.
    - right. exists i. auto.
  Qed.

  Theorem ring_progress s : 0 < C -> all_joined -> reachable s -> finished s \/ exists t, step s t.
  Proof.
    intros HC J R. pose proof (invariant_reachable s HC J R) as I.
    destruct (bounded (landed s) (issued s)) as [Landed|(n & Hn & L)]; [|right; eexists; apply (Land s n); auto].
    destruct (bounded (fun i => begun s i <=? ended s i) C) as [Ended|(i & Hi & E)].
    2: { right. eexists. apply (End s i Hi). apply Nat.leb_gt in E. exact E. }
    destruct (bounded (fun i => issued s <=? begun s i) C) as [Begun|(i & Hi & B)].
    2: { right. apply Nat.leb_gt in B. eexists. apply (Begin s i Hi); [pose proof (inv_issued _ I); lia|apply Landed; lia]. }
    destruct (Nat.eq_dec (issued s) N) as [E|E].
    - left. split; [exact E|]. intros i Hi. specialize (Ended i Hi). specialize (Begun i Hi).
      apply Nat.leb_le in Ended, Begun. pose proof (inv_ended _ I i Hi).
      assert (begun s i <= issued s).
      { destruct (le_lt_dec (begun s i) (issued s)) as [|G]; [assumption|exfalso].
        pose proof (inv_begun _ I i (issued s) Hi G) as L. apply (inv_landed _ I) in L. lia. }
      lia.
    - right. eexists. apply Issue; [pose proof (inv_issued _ I); lia|]. intros i Hi _.
      specialize (Ended i Hi). specialize (Begun i Hi). apply Nat.leb_le in Ended, Begun. lia.
  Qed.

  (** Termination: every step counts, and there are finitely many to count. *)
  Fixpoint total (f : nat -> nat) (n : nat) : nat := match n with 0 => 0 | S n => total f n + f n end.
  Definition flag (b : bool) : nat := if b then 1 else 0.
  Definition done (s : state) : nat :=
    issued s + total (fun n => flag (landed s n)) N + total (begun s) C + total (ended s) C.

  Lemma total_ext f g n : (forall i, i < n -> f i = g i) -> total f n = total g n.
  Proof. induction n; simpl; intros H; [reflexivity|]. rewrite IHn by auto. rewrite H by auto. reflexivity. Qed.

  Lemma total_set f k v n : k < n -> total (set f k v) n + f k = total f n + v.
  Proof.
    induction n as [|n IH]; simpl; intros H; [lia|]. destruct (Nat.eq_dec k n) as [->|D].
    - rewrite set_eq. rewrite (total_ext (set f n v) f n); [lia|]. intros i Hi. apply set_neq. lia.
    - rewrite (set_neq f k v n) by lia. specialize (IH ltac:(lia)). lia.
  Qed.

  Lemma total_bound f b n : (forall i, i < n -> f i <= b) -> total f n <= n * b.
  Proof. induction n; simpl; intros H; [lia|]. specialize (IHn ltac:(auto)). specialize (H n ltac:(lia)). lia. Qed.

  Theorem ring_terminates s t : 0 < C -> all_joined -> reachable s -> step s t ->
    done t = S (done s) /\ done t <= N + N + C * N + C * N.
  Proof.
    intros HC J R St. pose proof (invariant_reachable s HC J R) as I.
    assert (invariant t) as It by (eapply invariant_step; eauto). split.
    - destruct St as [Hn Hj|n Hn Hl|i Hi Hb Hl|i Hi He]; unfold done; simpl.
      + lia.
      + assert (n < N) as HN by (pose proof (inv_issued _ I); lia).
        pose proof (total_set (fun m => flag (landed s m)) n 1 N HN) as T. simpl in T. rewrite Hl in T. simpl in T.
        rewrite (total_ext (fun m => flag (set (landed s) n true m)) (set (fun m => flag (landed s m)) n 1)); [lia|].
        intros m _. unfold set. destruct (m =? n); reflexivity.
      + pose proof (total_set (begun s) i (S (begun s i)) C Hi). lia.
      + pose proof (total_set (ended s) i (S (ended s i)) C Hi). lia.
    - assert (forall i, i < C -> begun t i <= N) as Bn.
      { intros i Hi. destruct (le_lt_dec (begun t i) N) as [|G]; [assumption|exfalso].
        pose proof (inv_begun _ It i N Hi G) as L. apply (inv_landed _ It) in L. pose proof (inv_issued _ It). lia. }
      assert (forall i, i < C -> ended t i <= N) as En.
      { intros i Hi. pose proof (inv_ended _ It i Hi). specialize (Bn i Hi). lia. }
      pose proof (total_bound (begun t) N C Bn). pose proof (total_bound (ended t) N C En).
      pose proof (inv_issued _ It).
      assert (total (fun n => flag (landed t n)) N <= N * 1).
      { apply total_bound. intros i _. destruct (landed t i); simpl; lia. }
      unfold done. lia.
  Qed.

End Ring.

(** Joining every consumer is needed, not only enough: with two consumers and one joined, a slot is overwritten while
    the other consumer reads it. *)
Theorem one_join_is_not_enough : exists s, reachable 1 2 2 (fun i => i =? 0) s /\ torn 1 2 s.
Proof.
  pose (J := fun i => i =? 0).
  assert (R0 := reach_init 1 2 2 J).
  eapply reach_step in R0; [|apply Issue; simpl; [lia|intros; simpl; lia]].
  eapply reach_step in R0; [|apply (Land 1 2 2 J _ 0); simpl; [lia|reflexivity]].
  eapply reach_step in R0; [|apply (Begin 1 2 2 J _ 0); unfold set; simpl; [lia|lia|reflexivity]].
  eapply reach_step in R0; [|apply (Begin 1 2 2 J _ 1); unfold set; simpl; [lia|lia|reflexivity]].
  eapply reach_step in R0; [|apply (End 1 2 2 J _ 0); unfold set; simpl; [lia|lia]].
  eapply reach_step in R0; [|apply Issue; simpl; [lia|]].
  - eexists. split; [exact R0|]. exists 1, 0. simpl. unfold set. simpl. repeat split; try lia. discriminate.
  - intros i Hi Hj. assert (i = 0) as -> by (destruct i; [reflexivity|discriminate]). unfold set; simpl. lia.
Qed.

(** Phases. A barrier has completed [k] turns; a wait for turn [n] (from 0) looks at one bit: it passes when the parity
    of the running turn differs from that of [n]. It can pass only for turn [n] as long as the run is neither behind by
    more than it nor ahead of it: the ring keeps it so. *)
Definition passes (k n : nat) : bool := negb (Bool.eqb (Nat.odd k) (Nat.odd n)).

Theorem parity_names_the_turn k n : n <= k <= S n -> (passes k n = true <-> k = S n).
Proof.
  intros H. unfold passes. assert (k = n \/ k = S n) as [-> | ->] by lia.
  - rewrite Bool.eqb_reflx. simpl. split; [discriminate|lia].
  - rewrite Nat.odd_succ, <- Nat.negb_odd. destruct (Nat.odd n); simpl; tauto.
Qed.

(** A run that is a whole turn behind passes early: the bit cannot tell. *)
Example run_ahead_passes_early : passes 0 1 = true.
Proof. reflexivity. Qed.

(** Turns of a slot are ring sequence numbers: version [n] is turn [n / V] of slot [n mod V]. *)
Theorem turns_are_sequence_numbers V n m : 0 < V -> n mod V = m mod V -> n / V = m / V -> n = m.
Proof.
  intros HV E D. rewrite (Nat.div_mod n V), (Nat.div_mod m V) by lia. rewrite E, D. reflexivity.
Qed.
