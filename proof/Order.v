(** Events, conflicts, and the one theorem about order that everything rests on: two executions of the same events that
    agree on the order of every conflicting pair end in the same state.

    An event reads and writes sets of locations. Sets are predicates, locations and values are arbitrary, so nothing here
    depends on sizes. States are compared point by point. *)

From Coq Require Import List Permutation Relations.
Import ListNotations.

Section Before.
  Context {A : Type}.

  (** [before l a b]: an occurrence of [a] in [l] stands before an occurrence of [b]. *)
  Inductive before : list A -> A -> A -> Prop :=
  | before_here a b l : In b l -> before (a :: l) a b
  | before_later x a b l : before l a b -> before (x :: l) a b.

  Lemma before_in l a b : before l a b -> In a l /\ In b l.
  Proof. induction 1; simpl; tauto. Qed.

  Lemma before_drop p x q a b : before (p ++ x :: q) a b -> a <> x -> b <> x -> before (p ++ q) a b.
  Proof.
    induction p as [|y p IH]; simpl; intros H Ha Hb.
    - inversion H; subst; congruence.
    - inversion H as [? ? ? Here|? ? ? ? Later]; subst.
      + apply before_here. rewrite in_app_iff in *. simpl in *. intuition congruence.
      + apply before_later. auto.
  Qed.

  Lemma before_split p x q a : In a p -> NoDup (p ++ x :: q) -> ~ before (p ++ x :: q) x a.
  Proof.
    induction p as [|y p IH]; simpl; intros Hin Hnd Hb; [tauto|].
    inversion Hnd as [|? ? Hnot Hnd']; subst. inversion Hb as [? ? ? Here|? ? ? ? Later]; subst.
    - apply Hnot. rewrite in_app_iff. simpl. tauto.
    - destruct Hin as [->|Hin].
      + apply Hnot. apply before_in in Later. tauto.
      + exact (IH Hin Hnd' Later).
  Qed.

  Lemma before_app_l p q a b : before p a b -> before (p ++ q) a b.
  Proof. induction 1; simpl; constructor; auto. rewrite in_app_iff. tauto. Qed.

  Lemma before_app_r p q a b : before q a b -> before (p ++ q) a b.
  Proof. intros; induction p; simpl; auto. constructor; auto. Qed.

  Lemma before_cross p q a b : In a p -> In b q -> before (p ++ q) a b.
  Proof.
    induction p as [|x p IH]; simpl; intros Ha Hb; [tauto|]. destruct Ha as [->|Ha].
    - apply before_here. rewrite in_app_iff. tauto.
    - apply before_later. auto.
  Qed.

  Lemma before_app p q a b : before (p ++ q) a b -> before p a b \/ before q a b \/ (In a p /\ In b q).
  Proof.
    induction p as [|x p IH]; simpl; intros H; [tauto|].
    inversion H as [? ? ? Here|? ? ? ? Later]; subst.
    - rewrite in_app_iff in Here. destruct Here; [left; constructor; auto|tauto].
    - destruct (IH Later) as [?|[?|[? ?]]]; [left; constructor; auto|tauto|tauto].
  Qed.

  Lemma before_antisym l a b : NoDup l -> before l a b -> ~ before l b a.
  Proof.
    induction l as [|x l IH]; intros Nd H K; [inversion H|]. inversion Nd as [|? ? Hnot Ndl]; subst.
    inversion H as [? ? ? Here|? ? ? ? Later]; inversion K as [? ? ? Here'|? ? ? ? Later']; subst.
    - contradiction.
    - apply before_in in Later'. tauto.
    - apply before_in in Later. tauto.
    - exact (IH Ndl Later Later').
  Qed.
  Lemma before_trans l a b c : NoDup l -> before l a b -> before l b c -> before l a c.
  Proof.
    induction l as [|x l IH]; intros Nd H K; [inversion H|]. inversion Nd as [|? ? Hnot Ndl]; subst.
    inversion H as [? ? ? Here|? ? ? ? Later]; inversion K as [? ? ? Here'|? ? ? ? Later']; subst.
    - apply before_here. auto.
    - apply before_here. apply before_in in Later'. tauto.
    - apply before_in in Later. tauto.
    - apply before_later. auto.
  Qed.
End Before.

Section Machine.
  Variables event loc value : Type.
  Definition state := loc -> value.
  Definition same (s t : state) := forall l, s l = t l.

  Variable run : event -> state -> state.
  Variables reads writes : event -> loc -> Prop.
  Hypothesis writes_dec : forall e l, {writes e l} + {~ writes e l}.
  (** An event changes only what it writes, and what it writes is a function of what it reads. *)
  Hypothesis frame : forall e s l, ~ writes e l -> run e s l = s l.
  Hypothesis local :
    forall e s t, (forall l, reads e l -> s l = t l) -> forall l, writes e l -> run e s l = run e t l.

  Definition conflict a b := exists l, (writes a l /\ (reads b l \/ writes b l)) \/ (writes b l /\ reads a l).

  Lemma conflict_sym a b : conflict a b -> conflict b a.
  Proof. intros [l H]. exists l. intuition. Qed.

  Lemma same_refl s : same s s. Proof. intros l; reflexivity. Qed.
  Lemma same_sym s t : same s t -> same t s. Proof. intros H l; symmetry; apply H. Qed.
  Lemma same_trans s t u : same s t -> same t u -> same s u.
  Proof. intros H K l. rewrite (H l). apply K. Qed.

  Lemma run_same e s t : same s t -> same (run e s) (run e t).
  Proof.
    intros H l. destruct (writes_dec e l) as [W|W].
    - apply local; auto.
    - rewrite !frame by assumption. apply H.
  Qed.

  Definition run_all (es : list event) (s : state) : state := fold_left (fun s e => run e s) es s.

  Lemma run_all_app p q s : run_all (p ++ q) s = run_all q (run_all p s).
  Proof. apply fold_left_app. Qed.

  Lemma run_all_same es : forall s t, same s t -> same (run_all es s) (run_all es t).
  Proof. induction es; simpl; intros; auto. apply IHes. apply run_same; auto. Qed.

  Lemma commute a b s : ~ conflict a b -> same (run a (run b s)) (run b (run a s)).
  Proof.
    intros N l. destruct (writes_dec a l) as [Wa|Wa]; destruct (writes_dec b l) as [Wb|Wb].
    - exfalso. apply N. exists l. tauto.
    - rewrite (frame b (run a s) l Wb). apply local; auto. intros m Rm. apply frame. intros Wm. apply N. exists m. tauto.
    - rewrite (frame a (run b s) l Wa). apply local; auto. intros m Rm. symmetry. apply frame. intros Wm.
      apply N. exists m. tauto.
    - rewrite !frame by assumption. reflexivity.
  Qed.

  Lemma to_front p : forall a s, (forall x, In x p -> ~ conflict a x) -> same (run_all (p ++ [a]) s) (run_all (a :: p) s).
  Proof.
    induction p as [|x p IH]; simpl; intros a s N; [apply same_refl|].
    eapply same_trans; [apply (IH a (run x s)); intros; apply N; auto|]. simpl.
    apply run_all_same. apply commute. apply N. auto.
  Qed.

  (** The theorem. [l] is the order of the source, [l'] any other order of the same events. *)
  Theorem reorder l : forall l' s,
    NoDup l -> Permutation l l' -> (forall a b, before l a b -> conflict a b -> before l' a b) ->
    same (run_all l s) (run_all l' s).
  Proof.
    induction l as [|a l IH]; intros l' s Nd Pm Keep.
    - apply Permutation_nil in Pm. subst. apply same_refl.
    - assert (In a l') as Ha by (apply (Permutation_in a Pm); simpl; auto).
      destruct (in_split _ _ Ha) as (p & q & ->).
      assert (NoDup (p ++ a :: q)) as Nd' by (eapply Permutation_NoDup; eauto).
      assert (Permutation l (p ++ q)) as Pm' by (eapply Permutation_cons_app_inv; eauto).
      inversion Nd as [|? ? Hnot Ndl]; subst.
      assert (forall x, In x p -> ~ conflict a x) as Free.
      { intros x Hx C. apply (before_split p a q x Hx Nd'). apply Keep; auto. apply before_here.
        apply (Permutation_in x (Permutation_sym Pm')). rewrite in_app_iff. auto. }
      simpl. eapply same_trans; [apply (IH (p ++ q) (run a s) Ndl Pm')|].
      + intros x y B C. apply before_drop with (x := a).
        * apply Keep; auto. apply before_later; auto.
        * intros ->. apply before_in in B. tauto.
        * intros ->. apply before_in in B. tauto.
      + apply same_sym. replace (p ++ a :: q) with ((p ++ [a]) ++ q) by (rewrite <- app_assoc; reflexivity).
        rewrite run_all_app. eapply same_trans.
        * apply run_all_same. apply (to_front p a s Free).
        * simpl. rewrite run_all_app. apply same_refl.
  Qed.

  (** A required order is a relation; an execution respects it if it is an order of the events that contains it. *)
  Definition respects (R : event -> event -> Prop) (source l : list event) :=
    Permutation source l /\ forall a b, R a b -> before l a b.

  (** Order strength is inclusion of transitive closures: what a stronger order allows, a weaker one allows. *)
  Definition weaker (R S : event -> event -> Prop) := forall a b, clos_trans _ R a b -> clos_trans _ S a b.

  Lemma respects_closure R source l :
    NoDup source -> respects R source l -> forall a b, clos_trans _ R a b -> before l a b.
  Proof.
    intros Nd [Pm H] a b C. assert (NoDup l) by (eapply Permutation_NoDup; eauto).
    induction C; auto. eapply before_trans; eauto.
  Qed.

  Theorem strength_inclusion R S source l :
    NoDup source -> weaker R S -> respects S source l -> respects R source l.
  Proof.
    intros Nd W H. split; [apply H|]. intros a b Hab. eapply respects_closure; eauto. apply W. apply t_step. auto.
  Qed.

  (** If the required order holds every conflicting pair as the source has it, all its executions are the source's. *)
  Theorem order_sound R source l s :
    NoDup source -> (forall a b, before source a b -> conflict a b -> clos_trans _ R a b) -> respects R source l ->
    same (run_all source s) (run_all l s).
  Proof.
    intros Nd Cover H. apply reorder; auto; [apply H|]. intros a b B C. eapply respects_closure; eauto.
  Qed.
End Machine.
