(** The region grammar over symbolic domains: what the instances of a program are, for every valuation of its symbols,
    and which order between them an execution must keep. *)

From Coq Require Import List Permutation Relations ZArith Lia Bool.
From Treadle Require Import Order.
Import ListNotations.
Open Scope Z_scope.

(** Extents and bounds. An environment lists the coordinates of the enclosing regions, innermost first, then the
    parameters of the program: it is the path of an instance. *)
Inductive expr :=
| Num (n : Z)
| Var (i : nat)
| Add (a b : expr)
| Sub (a b : expr)
| Mul (a b : expr)
| Div (a b : expr)
| Mod (a b : expr)
| Min (a b : expr)
| Max (a b : expr).

Definition env := list Z.

Fixpoint eval (x : expr) (v : env) : Z :=
  match x with
  | Num n => n
  | Var i => nth i v 0
  | Add a b => eval a v + eval b v
  | Sub a b => eval a v - eval b v
  | Mul a b => eval a v * eval b v
  | Div a b => eval a v / eval b v
  | Mod a b => eval a v mod eval b v
  | Min a b => Z.min (eval a v) (eval b v)
  | Max a b => Z.max (eval a v) (eval b v)
  end.

Inductive kind := Parallel | Serial | Pipeline | Reduce.

(** [Reduce] is here the exact chain; what its order policy grants beyond that is the business of [Fold]. *)
Definition ordered (k : kind) : bool := match k with Parallel => false | _ => true end.

Inductive prog :=
| Skip
| Op (o : nat)
| Seq (p q : prog)
| Cond (c : expr) (p q : prog)
| Region (k : kind) (lo hi : expr) (body : prog).

(** An instance: an operation at a path. *)
Definition event : Type := nat * env.

Definition span (lo hi : Z) : list Z := map (fun n => lo + Z.of_nat n) (seq 0 (Z.to_nat (hi - lo))).

Fixpoint events (p : prog) (v : env) : list event :=
  match p with
  | Skip => []
  | Op o => [(o, v)]
  | Seq p q => events p v ++ events q v
  | Cond c p q => if 0 <? eval c v then events p v else events q v
  | Region _ lo hi body => flat_map (fun i => events body (i :: v)) (span (eval lo v) (eval hi v))
  end.

Fixpoint labels (p : prog) : list nat :=
  match p with
  | Skip => []
  | Op o => [o]
  | Seq p q | Cond _ p q => labels p ++ labels q
  | Region _ _ _ body => labels body
  end.

Lemma span_in lo hi i : In i (span lo hi) <-> lo <= i < hi.
Proof.
  unfold span. rewrite in_map_iff. split.
  - intros (n & <- & H). apply in_seq in H. lia.
  - intros H. exists (Z.to_nat (i - lo)). split; [lia|]. apply in_seq. lia.
Qed.

Lemma before_map {A B} (f : A -> B) l x y : before (map f l) x y -> exists a b, x = f a /\ y = f b /\ before l a b.
Proof.
  induction l as [|c l IH]; simpl; intros H; inversion H as [? ? ? Here|? ? ? ? Later]; subst.
  - apply in_map_iff in Here. destruct Here as (b & <- & Hb). exists c, b. repeat split. constructor. exact Hb.
  - destruct (IH Later) as (a & b & -> & -> & Hb). exists a, b. repeat split. constructor. exact Hb.
Qed.

Lemma before_seq n m : forall i j, before (seq n m) i j -> (i < j)%nat.
Proof.
  revert n. induction m as [|m IH]; simpl; intros n i j H; inversion H as [? ? ? Here|? ? ? ? Later]; subst.
  - apply in_seq in Here. lia.
  - exact (IH _ _ _ Later).
Qed.

Lemma before_span lo hi i j : before (span lo hi) i j -> i < j.
Proof.
  intros H. apply before_map in H. destruct H as (a & b & -> & -> & H). apply before_seq in H. lia.
Qed.

Lemma NoDup_span lo hi : NoDup (span lo hi).
Proof. apply FinFun.Injective_map_NoDup; [intros a b H; lia|apply seq_NoDup]. Qed.

Lemma before_flat_map {A B} (f : A -> list B) l x y :
  before (flat_map f l) x y ->
  (exists i, In i l /\ before (f i) x y) \/ (exists i j, before l i j /\ In x (f i) /\ In y (f j)).
Proof.
  induction l as [|a l IH]; simpl; intros H; [inversion H|].
  apply before_app in H. destruct H as [H|[H|[Hx Hy]]].
  - left. exists a. auto.
  - destruct (IH H) as [(i & Hi & Hb)|(i & j & Hb & Hi & Hj)].
    + left. exists i. auto.
    + right. exists i, j. repeat split; auto. constructor. exact Hb.
  - right. apply in_flat_map in Hy. destruct Hy as (j & Hj & Hy). exists a, j. repeat split; auto. constructor. exact Hj.
Qed.

Lemma NoDup_join {A} (p q : list A) : NoDup p -> NoDup q -> (forall x, In x p -> ~ In x q) -> NoDup (p ++ q).
Proof.
  induction p as [|a p IH]; simpl; intros Np Nq D; auto. inversion Np; subst. constructor.
  - rewrite in_app_iff. intros [H|H]; [contradiction|]. exact (D a (or_introl eq_refl) H).
  - apply IH; auto.
Qed.

Lemma NoDup_flat_map {A B} (f : A -> list B) l :
  NoDup l -> (forall a, NoDup (f a)) -> (forall a b x, In x (f a) -> In x (f b) -> a = b) -> NoDup (flat_map f l).
Proof.
  induction 1 as [|a l Hnot Nd IH]; simpl; intros Nf D; [constructor|].
  apply NoDup_join; auto. intros x Hx Hin. apply in_flat_map in Hin. destruct Hin as (b & Hb & Hx').
  rewrite (D a b x Hx Hx') in Hnot. contradiction.
Qed.

Lemma events_path p : forall v o w, In (o, w) (events p v) -> In o (labels p) /\ exists pre, w = pre ++ v.
Proof.
  induction p as [|o'|p IHp q IHq|c p IHp q IHq|k lo hi body IH]; simpl; intros v o w H.
  - contradiction.
  - destruct H as [H|[]]. inversion H; subst. split; [auto|exists []; reflexivity].
  - rewrite in_app_iff in *. destruct H as [H|H]; [apply IHp in H|apply IHq in H]; tauto.
  - rewrite in_app_iff. destruct (0 <? eval c v); [apply IHp in H|apply IHq in H]; tauto.
  - apply in_flat_map in H. destruct H as (i & _ & H). apply IH in H. destruct H as [H (pre & ->)]. split; [exact H|].
    exists (pre ++ [i]). rewrite <- app_assoc. reflexivity.
Qed.

Lemma NoDup_parts {A} (p q : list A) : NoDup (p ++ q) -> NoDup p /\ NoDup q /\ (forall x, In x p -> ~ In x q).
Proof.
  induction p as [|a p IH]; simpl; intros H; [repeat split; auto; constructor|].
  inversion H as [|? ? Hnot Hnd]; subst. destruct (IH Hnd) as (Np & Nq & D). rewrite in_app_iff in Hnot.
  repeat split; auto.
  - constructor; tauto.
  - intros x [->|Hx]; [tauto|auto].
Qed.

(** Instances are distinct when the operations of the program are. *)
Theorem instances_distinct p : forall v, NoDup (labels p) -> NoDup (events p v).
Proof.
  induction p as [|o|p IHp q IHq|c p IHp q IHq|k lo hi body IH]; simpl; intros v H.
  - constructor.
  - repeat constructor; auto.
  - apply NoDup_parts in H. destruct H as (Hp & Hq & D). apply NoDup_join; auto.
    intros [o w] Hin Hin'. apply events_path in Hin. apply events_path in Hin'. exact (D o (proj1 Hin) (proj1 Hin')).
  - apply NoDup_parts in H. destruct H as (Hp & Hq & _). destruct (0 <? eval c v); auto.
  - apply NoDup_flat_map; [apply NoDup_span|auto|].
    intros i j [o w] Hi Hj. apply events_path in Hi. apply events_path in Hj.
    destruct Hi as [_ (a & ->)], Hj as [_ (b & E)].
    assert ((a ++ [i]) ++ v = (b ++ [j]) ++ v) as E' by (rewrite <- !app_assoc; exact E).
    apply app_inv_tail in E'. apply app_inj_tail in E'. tauto.
Qed.

Section Meaning.
  Variables loc value : Type.
  Variable run : event -> state loc value -> state loc value.
  Variables reads writes : event -> loc -> Prop.
  Hypothesis writes_dec : forall e l, {writes e l} + {~ writes e l}.
  Hypothesis frame : forall e s l, ~ writes e l -> run e s l = s l.
  Hypothesis local :
    forall e s t, (forall l, reads e l -> s l = t l) -> forall l, writes e l -> run e s l = run e t l.

  Notation conflict := (conflict event loc reads writes).
  Notation run_all := (run_all event loc value run).
  Notation same := (same loc value).

  (** The meaning of a program: its structure, executed in program order. *)
  Fixpoint meaning (p : prog) (v : env) (s : state loc value) : state loc value :=
    match p with
    | Skip => s
    | Op o => run (o, v) s
    | Seq p q => meaning q v (meaning p v s)
    | Cond c p q => if 0 <? eval c v then meaning p v s else meaning q v s
    | Region _ lo hi body => fold_left (fun s i => meaning body (i :: v) s) (span (eval lo v) (eval hi v)) s
    end.

  Theorem meaning_events p : forall v s, meaning p v s = run_all (events p v) s.
  Proof.
    induction p as [|o|p IHp q IHq|c p IHp q IHq|k lo hi body IH]; simpl; intros v s.
    - reflexivity.
    - reflexivity.
    - rewrite run_all_app, IHp, IHq. reflexivity.
    - destruct (0 <? eval c v); auto.
    - generalize (span (eval lo v) (eval hi v)). intros l. revert s. induction l as [|i l IHl]; simpl; intros s.
      + reflexivity.
      + rewrite run_all_app, IHl, IH. reflexivity.
  Qed.

  (** The promise of [parallel]: distinct instances do not conflict. *)
  Fixpoint promise (p : prog) (v : env) : Prop :=
    match p with
    | Skip | Op _ => True
    | Seq p q => promise p v /\ promise q v
    | Cond c p q => if 0 <? eval c v then promise p v else promise q v
    | Region k lo hi body =>
        (forall i, In i (span (eval lo v) (eval hi v)) -> promise body (i :: v)) /\
        (ordered k = false -> forall i j a b, i <> j ->
           In a (events body (i :: v)) -> In b (events body (j :: v)) -> ~ conflict a b)
    end.

  (** The order that every execution must keep: dependences, and none between the instances of a [parallel]. *)
  Fixpoint must (p : prog) (v : env) (a b : event) : Prop :=
    match p with
    | Skip | Op _ => False
    | Seq p q => must p v a b \/ must q v a b \/ (In a (events p v) /\ In b (events q v) /\ conflict a b)
    | Cond c p q => if 0 <? eval c v then must p v a b else must q v a b
    | Region k lo hi body =>
        (exists i, In i (span (eval lo v) (eval hi v)) /\ must body (i :: v) a b) \/
        (ordered k = true /\ exists i j, In i (span (eval lo v) (eval hi v)) /\ In j (span (eval lo v) (eval hi v)) /\
           i < j /\ In a (events body (i :: v)) /\ In b (events body (j :: v)) /\ conflict a b)
    end.

  Theorem must_covers p : forall v a b, promise p v -> before (events p v) a b -> conflict a b -> must p v a b.
  Proof.
    induction p as [|o|p IHp q IHq|c p IHp q IHq|k lo hi body IH]; simpl; intros v a b Pr B C.
    - inversion B.
    - inversion B as [? ? ? Here|? ? ? ? Later]; subst; [destruct Here|inversion Later].
    - destruct Pr as [Pp Pq]. apply before_app in B. destruct B as [B|[B|[Ha Hb]]].
      + left. auto.
      + right; left. auto.
      + right; right. auto.
    - destruct (0 <? eval c v); auto.
    - destruct Pr as [Pin Ppar]. apply before_flat_map in B. destruct B as [(i & Hi & B)|(i & j & B & Ha & Hb)].
      + left. exists i. split; auto.
      + right. pose proof (before_span _ _ _ _ B) as Lt. destruct (before_in _ _ _ B) as [Hi Hj].
        destruct (ordered k) eqn:O.
        * split; [reflexivity|]. exists i, j. repeat split; auto.
        * exfalso. apply (Ppar eq_refl i j a b); auto. lia.
  Qed.

  (** Any order of the instances that keeps the required order gives the program's meaning. *)
  Theorem execution_sound p v l s :
    NoDup (labels p) -> promise p v -> respects event (must p v) (events p v) l ->
    same (meaning p v s) (run_all l s).
  Proof.
    intros Nd Pr R. rewrite meaning_events.
    eapply (order_sound _ _ _ run reads writes writes_dec frame local (must p v)); eauto.
    - apply instances_distinct. exact Nd.
    - intros a b B C. apply t_step. apply must_covers; auto.
  Qed.

  (** A [parallel] may be executed in order: the same instances, a stronger order. Nothing else changes. *)
  Inductive serialises : prog -> prog -> Prop :=
  | ser_skip : serialises Skip Skip
  | ser_op o : serialises (Op o) (Op o)
  | ser_seq p p' q q' : serialises p p' -> serialises q q' -> serialises (Seq p q) (Seq p' q')
  | ser_cond c p p' q q' : serialises p p' -> serialises q q' -> serialises (Cond c p q) (Cond c p' q')
  | ser_region k k' lo hi b b' :
      (ordered k = true -> ordered k' = true) -> serialises b b' -> serialises (Region k lo hi b) (Region k' lo hi b').

  Lemma serialises_events p p' : serialises p p' -> forall v, events p v = events p' v.
  Proof.
    induction 1; simpl; intros v; auto.
    - rewrite IHserialises1, IHserialises2. reflexivity.
    - rewrite IHserialises1, IHserialises2. reflexivity.
    - apply flat_map_ext. intros i. apply IHserialises.
  Qed.

  Theorem serialises_stronger p p' : serialises p p' -> forall v a b, must p v a b -> must p' v a b.
  Proof.
    induction 1 as [|o|p p' q q' Hp IHp Hq IHq|c p p' q q' Hp IHp Hq IHq|k k' lo hi b b' Hk Hb IH]; simpl; intros v x y M.
    - exact M.
    - exact M.
    - rewrite <- (serialises_events _ _ Hp), <- (serialises_events _ _ Hq). intuition.
    - destruct (0 <? eval c v); auto.
    - destruct M as [(i & Hi & M)|(O & i & j & Hi & Hj & Lt & Hx & Hy & C)].
      + left. exists i. auto.
      + right. split; auto. exists i, j. rewrite <- !(serialises_events _ _ Hb). repeat split; auto.
  Qed.

  Theorem serialising_sound p p' v l s :
    NoDup (labels p) -> promise p v -> serialises p p' -> respects event (must p' v) (events p' v) l ->
    same (meaning p v s) (run_all l s).
  Proof.
    intros Nd Pr S [Pm K]. apply execution_sound; auto. split.
    - rewrite (serialises_events _ _ S). exact Pm.
    - intros a b M. apply K. eapply serialises_stronger; eauto.
  Qed.
End Meaning.

(** The other way is wrong: a recurrence is no [parallel]. Cell 0 is doubled, then increased, in each iteration of a
    loop of two; swapping iterations of [x := 2 x + i] changes the result. *)
Definition step (e : event) (s : state unit Z) : state unit Z :=
  fun l => match e with (_, i :: _) => 2 * s l + i | _ => s l end.

Example serial_is_not_parallel :
  run_all event unit Z step (events (Region Serial (Num 0) (Num 2) (Op 0)) []) (fun _ => 0) tt
  <> run_all event unit Z step (rev (events (Region Serial (Num 0) (Num 2) (Op 0)) [])) (fun _ => 0) tt.
Proof. vm_compute. discriminate. Qed.
