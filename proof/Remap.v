(** Execution remaps: which executed instance does the work of which source instance, and what every remap must keep. *)

From Coq Require Import List Permutation Arith Lia Bool.
From Treadle Require Import Order.
Import ListNotations.

(** A remap factors over two observed prefixes when the prefix of the source instance is a function of the prefix of
    the executed one: pi (tau e) = f (pi' e). *)
Definition factors {E I P' P} (tau : E -> I) (pi' : E -> P') (pi : I -> P) :=
  exists f : P' -> P, forall e, pi (tau e) = f (pi' e).

(** Instances of one executed prefix stay in one fibre. *)
Definition respects_fibres {E I P' P} (tau : E -> I) (pi' : E -> P') (pi : I -> P) :=
  forall e e', pi' e = pi' e' -> pi (tau e) = pi (tau e').

Section Prefixes.
  Context {E I J P1 P2 P3 : Type}.

  Theorem factors_identity (pi : E -> P1) : factors (fun e => e) pi pi.
  Proof. exists (fun p => p). reflexivity. Qed.

  Theorem factors_compose (tau : E -> I) (sigma : I -> J) (p1 : E -> P1) (p2 : I -> P2) (p3 : J -> P3) :
    factors tau p1 p2 -> factors sigma p2 p3 -> factors (fun e => sigma (tau e)) p1 p3.
  Proof. intros [f F] [g G]. exists (fun p => g (f p)). intros e. rewrite G, F. reflexivity. Qed.

  (** A coarser prefix of the source is still respected; so is a finer one of the execution. *)
  Theorem factors_coarser (tau : E -> I) (p1 : E -> P1) (p2 : I -> P2) (c : P2 -> P3) :
    factors tau p1 p2 -> factors tau p1 (fun i => c (p2 i)).
  Proof. intros [f F]. exists (fun p => c (f p)). intros e. rewrite F. reflexivity. Qed.

  Theorem factors_finer (tau : E -> I) (p1 : E -> P1) (p2 : I -> P2) (finer : E -> P3) (back : P3 -> P1) :
    (forall e, p1 e = back (finer e)) -> factors tau p1 p2 -> factors tau finer p2.
  Proof. intros B [f F]. exists (fun p => f (back p)). intros e. rewrite F, B. reflexivity. Qed.

  Theorem factors_respects (tau : E -> I) (p1 : E -> P1) (p2 : I -> P2) : factors tau p1 p2 -> respects_fibres tau p1 p2.
  Proof. intros [f F] e e' H. rewrite !F, H. reflexivity. Qed.

  (** Over a finite set of executed instances with comparable prefixes, respecting the fibres is enough. *)
  Theorem respects_factors (tau : E -> I) (p1 : E -> P1) (p2 : I -> P2) (all : list E) (default : P2)
      (dec : forall x y : P1, {x = y} + {x <> y}) :
    (forall e, In e all) -> respects_fibres tau p1 p2 -> factors tau p1 p2.
  Proof.
    intros All R.
    exists (fun p => match find (fun e => if dec (p1 e) p then true else false) all with
                     | Some e => p2 (tau e) | None => default end).
    intros e. destruct (find _ all) as [e'|] eqn:F.
    - apply find_some in F. destruct F as [_ F]. destruct (dec (p1 e') (p1 e)) as [Q|Q]; [|discriminate].
      apply R. symmetry. exact Q.
    - exfalso. pose proof (find_none _ _ F e (All e)) as N. simpl in N. destruct (dec (p1 e) (p1 e)); congruence.
  Qed.

  (** What it is for: an owner of the source prefix (a buffer, an accumulator, a barrier) is one owner for all executed
      instances that share a prefix. *)
  Theorem sharing_kept (tau : E -> I) (p1 : E -> P1) (p2 : I -> P2) (owner : P2 -> P3) :
    factors tau p1 p2 -> forall e e', p1 e = p1 e' -> owner (p2 (tau e)) = owner (p2 (tau e')).
  Proof. intros F e e' H. f_equal. exact (factors_respects _ _ _ F e e' H). Qed.
End Prefixes.

(** The counterexample: a bijection of flattened indices that is no map of prefixes. *)
Definition transpose (e : bool * bool) : bool * bool := (snd e, fst e).

Theorem flattened_bijection_breaks_sharing :
  (forall e, transpose (transpose e) = e) /\ ~ factors transpose fst fst.
Proof.
  split; [intros [[] []]; reflexivity|]. intros F.
  pose proof (factors_respects _ _ _ F (true, true) (true, false) eq_refl) as H. discriminate H.
Qed.

(** A remap of an ordered nest. Pure instances (no writes) may be repeated or left out of the comparison; what has an
    effect is executed once, and conflicting effects keep their order. *)
Section Soundness.
  Variables event loc value : Type.
  Variable run : event -> (loc -> value) -> (loc -> value).
  Variables reads writes : event -> loc -> Prop.
  Hypothesis writes_dec : forall e l, {writes e l} + {~ writes e l}.
  Hypothesis frame : forall e s l, ~ writes e l -> run e s l = s l.
  Hypothesis local :
    forall e s t, (forall l, reads e l -> s l = t l) -> forall l, writes e l -> run e s l = run e t l.
  Variable effect : event -> bool.
  Hypothesis pure : forall e l, effect e = false -> ~ writes e l.

  Lemma drop_pure es : forall s, same _ _ (run_all _ _ _ run es s) (run_all _ _ _ run (filter effect es) s).
  Proof.
    induction es as [|x es IH]; simpl; intros s; [apply same_refl|].
    destruct (effect x) eqn:Ef; simpl; [apply IH|].
    eapply same_trans; [|apply IH].
    apply (run_all_same _ _ _ run reads writes writes_dec frame local). intros l. apply frame. apply pure. exact Ef.
  Qed.

  Theorem remap_sound (E : Type) (tau : E -> event) (executed : list E) (source : list event) s :
    NoDup (filter effect source) ->
    Permutation (filter effect source) (filter effect (map tau executed)) ->
    (forall a b, before (filter effect source) a b -> conflict _ _ reads writes a b ->
                 before (filter effect (map tau executed)) a b) ->
    same _ _ (run_all _ _ _ run source s) (run_all _ _ _ run (map tau executed) s).
  Proof.
    intros Nd Pm Keep. eapply same_trans; [apply drop_pure|].
    eapply same_trans; [|apply same_sym; apply drop_pure].
    eapply (reorder _ _ _ run reads writes writes_dec frame local); eauto.
  Qed.
End Soundness.
