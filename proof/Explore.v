(** A judge of finite transition systems whose answers are certificates: a closed set of good states, or a run that ends
    badly. Search is not trusted; what it returns is checked, and the check is proved. *)

From Coq Require Import List FMapPositive PArith Lia Bool.
Import ListNotations.

Section Explore.
  Variable state : Type.
  Variable eq_dec : forall a b : state, {a = b} + {a <> b}.
  Variable code : state -> positive.            (* for the table only: nothing rests on it being injective *)
  Variable successors : state -> list state.
  Variable good final : state -> bool.
  Variable start : state.

  Inductive reachable : state -> Prop :=
  | at_start : reachable start
  | one_more s t : reachable s -> In t (successors s) -> reachable t.

  (** Right: nothing bad happens, and who is not finished can go on. *)
  Definition right (s : state) := good s = true /\ (final s = true \/ exists t, In t (successors s)).

  Definition table := PositiveMap.t state.
  Definition known (seen : table) (s : state) : bool :=
    match PositiveMap.find (code s) seen with Some t => if eq_dec s t then true else false | None => false end.

  Definition fine (s : state) : bool :=
    good s && (final s || match successors s with [] => false | _ => true end).

  Inductive outcome := Closed (seen : table) | Ends (run : list nat) | Undecided.

  (** Depth first. Each entry carries the run that led to it, last choice first. *)
  Fixpoint number {A} (n : nat) (l : list A) : list (nat * A) :=
    match l with [] => [] | a :: l => (n, a) :: number (S n) l end.

  Fixpoint search (fuel : nat) (work : list (state * list nat)) (seen : table) : outcome :=
    match fuel with
    | 0 => Undecided
    | S fuel =>
        match work with
        | [] => Closed seen
        | (s, run) :: work =>
            if known seen s then search fuel work seen
            else if fine s then
              search fuel (fold_left (fun w nt => (snd nt, fst nt :: run) :: w) (number 0 (successors s)) work)
                     (PositiveMap.add (code s) s seen)
            else Ends (rev run)
        end
    end.

  (** The certificate of safety. *)
  Definition closed (seen : table) : bool :=
    known seen start &&
    forallb (fun ks => fine (snd ks) && forallb (known seen) (successors (snd ks))) (PositiveMap.elements seen).

  Lemma known_element seen s : known seen s = true -> In (code s, s) (PositiveMap.elements seen).
  Proof.
    unfold known. destruct (PositiveMap.find (code s) seen) as [t|] eqn:F; [|discriminate].
    destruct (eq_dec s t) as [->|]; [|discriminate]. intros _. apply PositiveMap.elements_correct. exact F.
  Qed.

  Lemma fine_right s : fine s = true -> right s.
  Proof.
    unfold fine, right. rewrite andb_true_iff, orb_true_iff. intros [G [F|P]]; split; auto.
    right. destruct (successors s) as [|t l]; [discriminate|]. exists t. simpl. auto.
  Qed.

  Theorem closed_sound seen : closed seen = true -> forall s, reachable s -> right s.
  Proof.
    unfold closed. rewrite andb_true_iff, forallb_forall. intros [Hs All].
    assert (forall s, reachable s -> known seen s = true) as K.
    { intros s R. induction R as [|s t R IH Ht]; [exact Hs|]. apply known_element in IH. apply All in IH. simpl in IH.
      rewrite andb_true_iff, forallb_forall in IH. apply IH. exact Ht. }
    intros s R. apply K in R. apply known_element in R. apply All in R. simpl in R. rewrite andb_true_iff in R.
    apply fine_right. apply R.
  Qed.

  (** The certificate of a fault. *)
  Fixpoint replay (s : state) (run : list nat) : option state :=
    match run with [] => Some s | n :: run => match nth_error (successors s) n with Some t => replay t run | None => None end end.

  Lemma replay_reachable run : forall s t, reachable s -> replay s run = Some t -> reachable t.
  Proof.
    induction run as [|n run IH]; simpl; intros s t R H; [congruence|].
    destruct (nth_error (successors s) n) as [u|] eqn:E; [|discriminate].
    apply (IH u t); auto. apply one_more with (s := s); auto. eapply nth_error_In; eauto.
  Qed.

  Definition ends_badly (run : list nat) : bool := match replay start run with Some s => negb (fine s) | None => false end.

  Lemma not_fine s : fine s = false -> ~ right s.
  Proof.
    unfold fine, right. intros F [G P]. rewrite G in F. simpl in F. destruct P as [P|[t P]].
    - rewrite P in F. discriminate.
    - destruct (successors s); [destruct P|]. rewrite orb_true_r in F. discriminate.
  Qed.

  Theorem ends_badly_sound run : ends_badly run = true -> exists s, reachable s /\ ~ right s.
  Proof.
    unfold ends_badly. destruct (replay start run) as [s|] eqn:E; [|discriminate]. intros H.
    exists s. split; [eapply replay_reachable; eauto; constructor|]. apply not_fine. destruct (fine s); [discriminate|reflexivity].
  Qed.

  (** [Some true]: every execution is right. [Some false]: some execution is not. [None]: not decided in this fuel. *)
  Definition judge (fuel : nat) : option bool :=
    match search fuel [(start, [])] (PositiveMap.empty state) with
    | Closed seen => if closed seen then Some true else None
    | Ends run => if ends_badly run then Some false else None
    | Undecided => None
    end.

  Theorem judge_sound fuel :
    (judge fuel = Some true -> forall s, reachable s -> right s) /\
    (judge fuel = Some false -> exists s, reachable s /\ ~ right s).
  Proof.
    unfold judge. destruct (search fuel _ _) as [seen|run|].
    - destruct (closed seen) eqn:E; split; intros H; try discriminate. apply closed_sound with (seen := seen). exact E.
    - destruct (ends_badly run) eqn:E; split; intros H; try discriminate. apply ends_badly_sound with (run := run). exact E.
    - split; discriminate.
  Qed.
End Explore.
