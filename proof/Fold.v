(** Folds: what may be regrouped, what may be permuted, what may not; scans are not folds. *)

From Coq Require Import List Permutation Arith Lia Bool.
Import ListNotations.

(** A reduction tree: the leaves in order are the contributions, the shape is the plan's. *)
Inductive tree (A : Type) : Type :=
| Leaf (a : A)
| Empty
| Node (l r : tree A).
Arguments Leaf {A}. Arguments Empty {A}. Arguments Node {A}.

Fixpoint leaves {A} (t : tree A) : list A :=
  match t with Leaf a => [a] | Empty => [] | Node l r => leaves l ++ leaves r end.

Section Monoid.
  Variable A : Type.
  Variable op : A -> A -> A.
  Variable e : A.
  Hypothesis assoc : forall x y z, op x (op y z) = op (op x y) z.
  Hypothesis left_id : forall x, op e x = x.
  Hypothesis right_id : forall x, op x e = x.

  (** The chain in source order that starts from the incoming state. *)
  Definition chain (s : A) (l : list A) : A := fold_left op l s.
  Definition fold (l : list A) : A := chain e l.

  Lemma chain_state l : forall s, chain s l = op s (fold l).
  Proof.
    unfold fold, chain. induction l as [|x l IH]; simpl; intros s.
    - symmetry; apply right_id.
    - rewrite IH, (IH (op e x)), left_id. symmetry. apply assoc.
  Qed.

  (** The incoming state enters once, at its place. *)
  Theorem incoming_state_once s l : chain s l = op s (fold l).
  Proof. apply chain_state. Qed.

  Lemma fold_app p q : fold (p ++ q) = op (fold p) (fold q).
  Proof. unfold fold at 1, chain. rewrite fold_left_app. apply (chain_state q). Qed.

  Lemma fold_one a : fold [a] = a.
  Proof. unfold fold, chain. simpl. apply left_id. Qed.

  Fixpoint value (t : tree A) : A :=
    match t with Leaf a => a | Empty => e | Node l r => op (value l) (value r) end.

  (** Regrouping: any tree over the leaves in order, empty lanes included, gives the fold. *)
  Theorem regroup t : value t = fold (leaves t).
  Proof.
    induction t as [a| |l IHl r IHr]; simpl.
    - symmetry. apply fold_one.
    - reflexivity.
    - rewrite fold_app, IHl, IHr. reflexivity.
  Qed.

  (** Factoring into ordered chunks of any lengths (split-K, stream-K, decoding by parts). *)
  Theorem factor chunks : fold (concat chunks) = fold (map fold chunks).
  Proof.
    induction chunks as [|c cs IH]; simpl; [reflexivity|].
    rewrite fold_app, IH. change (fold c :: map fold cs) with ([fold c] ++ map fold cs).
    rewrite fold_app, fold_one. reflexivity.
  Qed.

  Section Commutative.
    Hypothesis comm : forall x y, op x y = op y x.

    Theorem permute p q : Permutation p q -> fold p = fold q.
    Proof.
      induction 1 as [|x l l' _ IH|x y l|l l' l'' _ IH1 _ IH2].
      - reflexivity.
      - change (x :: l) with ([x] ++ l). change (x :: l') with ([x] ++ l'). rewrite !fold_app, IH. reflexivity.
      - change (y :: x :: l) with ([y] ++ [x] ++ l). change (x :: y :: l) with ([x] ++ [y] ++ l).
        rewrite !fold_app, !fold_one, !assoc, (comm y x). reflexivity.
      - congruence.
    Qed.

    (** Any tree over any order of the contributions. *)
    Theorem regroup_permute t l : Permutation (leaves t) l -> value t = fold l.
    Proof. intros P. rewrite regroup. apply permute; auto. Qed.

    (** Lanes: lane [i] of [w] takes every [w]th contribution. *)
    Fixpoint lane (w i : nat) (l : list A) (n : nat) : list A :=
      match l with [] => [] | x :: l => if n mod w =? i then x :: lane w i l (S n) else lane w i l (S n) end.

    Lemma lanes_permute w : w <> 0 -> forall l n, Permutation (concat (map (fun i => lane w i l n) (seq 0 w))) l.
    Proof.
      intros W. induction l as [|x l IH]; intros n.
      - simpl. assert (forall is : list nat, concat (map (fun _ => @nil A) is) = []) as -> by (induction is; simpl; auto).
        apply perm_nil.
      - assert (G : forall is, NoDup is -> In (n mod w) is ->
                    Permutation (concat (map (fun i => lane w i (x :: l) n) is))
                                (x :: concat (map (fun i => lane w i l (S n)) is))).
        { induction is as [|i is IHi]; intros Nd Hin; [destruct Hin|]. inversion Nd as [|? ? Hnot Ndi]; subst. simpl.
          destruct (Nat.eqb_spec (n mod w) i) as [E|E].
          - simpl. apply perm_skip. apply Permutation_app_head.
            assert (forall js, ~ In (n mod w) js ->
                      map (fun i => if n mod w =? i then x :: lane w i l (S n) else lane w i l (S n)) js
                      = map (fun i => lane w i l (S n)) js) as ->.
            { induction js as [|j js IHj]; simpl; intros N; [reflexivity|].
              assert (n mod w =? j = false) as -> by (apply Nat.eqb_neq; intuition).
              rewrite IHj by intuition. reflexivity. }
            + apply Permutation_refl.
            + rewrite E. auto.
          - destruct Hin as [->|Hin]; [congruence|].
            eapply Permutation_trans; [apply Permutation_app_head; apply IHi; auto|].
            apply Permutation_sym, Permutation_middle. }
        eapply Permutation_trans; [apply G|].
        + apply seq_NoDup.
        + apply in_seq. pose proof (Nat.mod_upper_bound n w W). lia.
        + apply perm_skip. apply IH.
    Qed.

    (** Striping over lanes is a permutation: allowed exactly where the monoid commutes (see [striping_refused]). *)
    Theorem striping w l : w <> 0 -> fold (map fold (map (fun i => lane w i l 0) (seq 0 w))) = fold l.
    Proof. intros W. rewrite <- factor. apply permute. apply lanes_permute; auto. Qed.

    Section Fibres.
      (** result[o] = fold over the fibre of [o]. *)
      Variables I O : Type.
      Variable g : I -> O.
      Variable eqb : O -> O -> bool.
      Variable contribution : I -> A.

      Definition fibre (o : O) (is : list I) : list I := filter (fun i => eqb (g i) o) is.
      Definition result (o : O) (is : list I) : A := fold (map contribution (fibre o is)).

      Lemma fibre_permutation o p q : Permutation p q -> Permutation (fibre o p) (fibre o q).
      Proof.
        unfold fibre. induction 1 as [|x l l' _ IH|x y l|l l' l'' _ IH1 _ IH2]; simpl.
        - apply perm_nil.
        - destruct (eqb (g x) o); auto.
        - destruct (eqb (g x) o), (eqb (g y) o); auto. apply perm_swap.
        - eapply Permutation_trans; eauto.
      Qed.

      (** Executing contributions in another arrangement: [tau] maps executed to source instances, one-to-one and onto. *)
      Theorem remapped_contributions (E : Type) (tau : E -> I) executed source o :
        Permutation (map tau executed) source -> result o (map tau executed) = result o source.
      Proof. intros P. unfold result. apply permute. apply Permutation_map. apply fibre_permutation. auto. Qed.
    End Fibres.
  End Commutative.

  (** A scan exposes every prefix. *)
  Fixpoint scan (s : A) (l : list A) : list A :=
    match l with [] => [] | x :: l => op s x :: scan (op s x) l end.

  Theorem scan_prefixes l : forall s n, n < length l -> nth n (scan s l) e = chain s (firstn (S n) l).
  Proof.
    induction l as [|x l IH]; simpl; intros s n H; [lia|].
    destruct n as [|n]; [reflexivity|]. rewrite IH by lia. reflexivity.
  Qed.

  (** Factoring a scan: each later chunk starts from the fold of the chunks before it. *)
  Theorem scan_carry p q s : scan s (p ++ q) = scan s p ++ scan (chain s p) q.
  Proof. revert s. induction p as [|x p IH]; simpl; intros s; [reflexivity|]. rewrite IH. reflexivity. Qed.

  Theorem scan_offset l : forall s, scan s l = map (op s) (scan e l).
  Proof.
    induction l as [|x l IH]; simpl; intros s; [reflexivity|].
    rewrite left_id, (IH (op s x)), (IH x), map_map. f_equal.
    apply map_ext. intros a. symmetry. apply assoc.
  Qed.
End Monoid.

(** Concatenation of lists is a monoid that does not commute: it shows what each rule protects. *)
Definition cat := @app nat.

Example striping_refused :
  fold _ cat [] (map (fold _ cat []) (map (fun i => lane _ 2 i [[0]; [1]; [2]; [3]] 0) (seq 0 2)))
  <> fold _ cat [] [[0]; [1]; [2]; [3]].
Proof. discriminate. Qed.

Example duplicated_contribution_refused : fold _ Nat.add 0 [1; 2; 2] <> fold _ Nat.add 0 [1; 2].
Proof. discriminate. Qed.

Example state_per_chunk_refused :
  Nat.add (chain _ Nat.add 1 [1]) (chain _ Nat.add 1 [1]) <> chain _ Nat.add 1 [1; 1].
Proof. discriminate. Qed.

(** Two inputs with one fold and different scans: no rule for final results applies to a scan. *)
Example fold_does_not_determine_scan :
  fold _ Nat.add 0 [1; 2] = fold _ Nat.add 0 [2; 1] /\ scan _ Nat.add 0 [1; 2] <> scan _ Nat.add 0 [2; 1].
Proof. split; [reflexivity|discriminate]. Qed.

(** Subtraction has no lawful tree: regrouping needs associativity. *)
Example regroup_needs_assoc : (8 - 4) - 2 <> 8 - (4 - 2).
Proof. discriminate. Qed.
