(** Fusing sibling scopes over one domain: A over all of D, then B over all of D, as one scope that does A and B of an
    instance together. *)

From Coq Require Import List Permutation Arith Lia Bool.
From Treadle Require Import Order Region Tasks.
Import ListNotations.

Section Siblings.
  Variables event loc value : Type.
  Variable run : event -> state loc value -> state loc value.
  Variables reads writes : event -> loc -> Prop.
  Hypothesis writes_dec : forall e l, {writes e l} + {~ writes e l}.
  Hypothesis frame : forall e s l, ~ writes e l -> run e s l = s l.
  Hypothesis local :
    forall e s t, (forall l, reads e l -> s l = t l) -> forall l, writes e l -> run e s l = run e t l.
  Notation conflict := (conflict event loc reads writes).
  Notation run_all := (run_all event loc value run).

  Variable D : Type.
  Variables A B : D -> list event.
  Variable domain : list D.

  Definition apart := flat_map A domain ++ flat_map B domain.
  Definition fused := flat_map (fun i => A i ++ B i) domain.
  Hypothesis distinct : NoDup apart.

  Lemma before_instance i a b : In i domain -> before (A i ++ B i) a b -> before fused a b.
  Proof.
    clear distinct. unfold fused. intros Hi H. induction domain as [|j l IH]; simpl; [destruct Hi|].
    destruct Hi as [->|Hi]; [apply before_app_l; exact H|]. apply before_app_r. auto.
  Qed.

  Lemma before_instances i j a b :
    before domain i j -> In a (A i ++ B i) -> In b (A j ++ B j) -> before fused a b.
  Proof.
    unfold fused. intros H Ha Hb. clear distinct. induction H as [i j l Hin|x i j l H IH]; simpl.
    - apply before_cross; auto. apply in_flat_map. exists j. auto.
    - apply before_app_r. auto.
  Qed.

  (** Ordered time: every cross edge goes from an instance to itself or to a later one (i <= j). *)
  Definition forward := forall i j a b, In i domain -> In j domain -> In a (A i) -> In b (B j) -> conflict a b ->
    i = j \/ before domain i j.

  Theorem ordered_fusion s : forward -> same loc value (run_all apart s) (run_all fused s).
  Proof.
    intros F. apply (reorder _ _ _ run reads writes writes_dec frame local); auto.
    - apply Permutation_sym. apply flat_map_split.
    - intros a b H C. unfold apart in H. apply before_app in H. destruct H as [H|[H|[Ha Hb]]].
      + apply before_flat_map in H. destruct H as [(i & Hi & H)|(i & j & H & Ha & Hb)].
        * apply (before_instance i); auto. apply before_app_l. exact H.
        * apply (before_instances i j); auto; rewrite in_app_iff; auto.
      + apply before_flat_map in H. destruct H as [(i & Hi & H)|(i & j & H & Ha & Hb)].
        * apply (before_instance i); auto. apply before_app_r. exact H.
        * apply (before_instances i j); auto; rewrite in_app_iff; auto.
      + apply in_flat_map in Ha. apply in_flat_map in Hb. destruct Ha as (i & Hi & Ha), Hb as (j & Hj & Hb).
        destruct (F i j a b Hi Hj Ha Hb C) as [->|H].
        * apply (before_instance j); auto. apply before_cross; auto.
        * apply (before_instances i j); auto; rewrite in_app_iff; auto.
  Qed.

  (** [parallel] siblings whose cross dependences are all diagonal: the fused scope is right, and is a [parallel]. *)
  Definition diagonal := forall i j a b, In i domain -> In j domain -> In a (A i) -> In b (B j) -> conflict a b -> i = j.
  Definition independent (P : D -> list event) :=
    forall i j a b, In i domain -> In j domain -> i <> j -> In a (P i) -> In b (P j) -> ~ conflict a b.

  Theorem sibling_fusion s :
    diagonal -> independent A -> independent B ->
    same loc value (run_all apart s) (run_all fused s) /\ independent (fun i => A i ++ B i).
  Proof.
    intros Dg IA IB. split.
    - apply ordered_fusion. intros i j a b Hi Hj Ha Hb C. left. eapply Dg; eauto.
    - intros i j a b Hi Hj N Ha Hb C. rewrite in_app_iff in Ha, Hb. destruct Ha as [Ha|Ha], Hb as [Hb|Hb].
      + exact (IA i j a b Hi Hj N Ha Hb C).
      + apply N. eapply Dg; eauto.
      + apply N. symmetry. eapply (Dg j i b a); eauto. apply conflict_sym. exact C.
      + exact (IB i j a b Hi Hj N Ha Hb C).
  Qed.
End Siblings.

(** The counterexample: A_i writes cell i, B_i reads the neighbour's cell i + 1 and writes 10 + i. *)
Definition stencil (e : bool * nat) (s : state nat nat) : state nat nat :=
  match e with
  | (true, i) => fun l => if l =? i then i + 1 else s l
  | (false, i) => fun l => if l =? 10 + i then s (i + 1) else s l
  end.

Example neighbours_refused :
  run_all _ nat nat stencil (apart _ nat (fun i => [(true, i)]) (fun i => [(false, i)]) [0; 1]) (fun _ => 0) 10
  <> run_all _ nat nat stencil (fused _ nat (fun i => [(true, i)]) (fun i => [(false, i)]) [0; 1]) (fun _ => 0) 10.
Proof. vm_compute. discriminate. Qed.
