(** Task mappings: which worker does which tasks of a grid, in which order. Their product (outer tasks, each made of
    inner ones) is associative, and a product of exact covers is an exact cover. *)

From Coq Require Import List Permutation Arith Lia.
Import ListNotations.

(** A task is a vector of coordinates. *)
Definition task := list nat.

Fixpoint combine (d t u : task) : task :=
  match d, t, u with n :: d, x :: t, y :: u => (x * n + y) :: combine d t u | _, _, _ => [] end.

Fixpoint times (c d : task) : task :=
  match c, d with n :: c, m :: d => (n * m) :: times c d | _, _ => [] end.

Record mapping := { workers : nat; extents : task; tasks : nat -> list task }.

Definition product (f g : mapping) : mapping :=
  {| workers := workers f * workers g;
     extents := times (extents f) (extents g);
     tasks := fun w => flat_map (fun t => map (combine (extents g) t) (tasks g (w mod workers g)))
                                (tasks f (w / workers g)) |}.

Lemma combine_assoc d2 d3 : forall t u x,
  combine d3 (combine d2 t u) x = combine (times d2 d3) t (combine d3 u x).
Proof.
  revert d3. induction d2 as [|n d2 IH]; intros d3 t u x; simpl; [destruct d3; reflexivity|].
  destruct d3 as [|m d3]; destruct t as [|a t]; destruct u as [|b u]; destruct x as [|c x]; simpl; try reflexivity.
  rewrite IH. f_equal. nia.
Qed.

Lemma flat_map_map {A B C} (f : A -> B) (g : B -> list C) l : flat_map g (map f l) = flat_map (fun a => g (f a)) l.
Proof. induction l; simpl; congruence. Qed.

Lemma map_flat_map {A B C} (f : B -> C) (g : A -> list B) l : map f (flat_map g l) = flat_map (fun a => map f (g a)) l.
Proof. induction l; simpl; [reflexivity|]. rewrite map_app. congruence. Qed.

Lemma flat_map_flat_map {A B C} (f : A -> list B) (g : B -> list C) l :
  flat_map g (flat_map f l) = flat_map (fun a => flat_map g (f a)) l.
Proof. induction l; simpl; [reflexivity|]. rewrite flat_map_app. congruence. Qed.

Lemma flat_map_ext_all {A B} (f g : A -> list B) l : (forall a, f a = g a) -> flat_map f l = flat_map g l.
Proof. intros H. induction l; simpl; congruence. Qed.

Lemma worker_digits w a b : a <> 0 -> b <> 0 ->
  w / b / a = w / (a * b) /\ (w / b) mod a = w mod (a * b) / b /\ w mod b = (w mod (a * b)) mod b.
Proof.
  intros Ha Hb. rewrite (Nat.mul_comm a b). rewrite Nat.div_div by assumption. split; [reflexivity|].
  rewrite Nat.mod_mul_r by assumption. pose proof (Nat.mod_upper_bound w b Hb). split.
  - rewrite (Nat.mul_comm b), Nat.div_add by assumption. rewrite (Nat.div_small (w mod b) b) by assumption. reflexivity.
  - rewrite (Nat.mul_comm b), Nat.mod_add by assumption. rewrite Nat.mod_mod by assumption. reflexivity.
Qed.

Theorem product_assoc f g h : workers g <> 0 -> workers h <> 0 ->
  workers (product (product f g) h) = workers (product f (product g h)) /\
  extents (product (product f g) h) = extents (product f (product g h)) /\
  forall w, tasks (product (product f g) h) w = tasks (product f (product g h)) w.
Proof.
  intros Hg Hh. simpl. split; [symmetry; apply Nat.mul_assoc|]. split.
  - generalize (extents h). generalize (extents g). generalize (extents f).
    induction t as [|a s IH]; intros [|b t] [|c u]; simpl; try reflexivity. rewrite IH. f_equal. symmetry. apply Nat.mul_assoc.
  - intros w. destruct (worker_digits w (workers g) (workers h) Hg Hh) as (E1 & E2 & E3).
    rewrite E1, E2, <- E3. rewrite flat_map_flat_map. apply flat_map_ext_all. intros t.
    rewrite flat_map_map, map_flat_map. apply flat_map_ext_all. intros u. rewrite map_map.
    apply map_ext. intros x. apply combine_assoc.
Qed.

(** [spatial d]: a worker a task; [repeat d]: one worker, all tasks in order (one dimension). *)
Definition spatial (d : nat) : mapping := {| workers := d; extents := [d]; tasks := fun w => [[w]] |}.
Definition repeat (d : nat) : mapping := {| workers := 1; extents := [d]; tasks := fun _ => map (fun t => [t]) (seq 0 d) |}.

(** All tasks of all workers, and all tasks of a grid of one dimension. *)
Definition everything (f : mapping) : list task := flat_map (tasks f) (seq 0 (workers f)).
Definition line (d : nat) : list task := map (fun t => [t]) (seq 0 d).
Definition exact (f : mapping) (d : nat) := extents f = [d] /\ Permutation (everything f) (line d).

Lemma spatial_exact d : exact (spatial d) d.
Proof.
  split; [reflexivity|]. unfold everything, line. simpl.
  assert (forall l, flat_map (fun w : nat => [[w]]) l = map (fun t : nat => [t]) l) as ->
    by (induction l; simpl; congruence).
  apply Permutation_refl.
Qed.

Lemma repeat_exact d : exact (repeat d) d.
Proof. split; [reflexivity|]. unfold everything, line. simpl. rewrite app_nil_r. apply Permutation_refl. Qed.

Lemma seq_shift_by k : forall n m, seq (n + m) k = map (fun y => n + y) (seq m k).
Proof.
  induction k as [|k IH]; simpl; intros n m; [reflexivity|]. f_equal. rewrite <- IH. f_equal. lia.
Qed.

Lemma seq_product a b : seq 0 (a * b) = flat_map (fun x => map (fun y => x * b + y) (seq 0 b)) (seq 0 a).
Proof.
  induction a as [|a IH]; [reflexivity|]. rewrite seq_S, flat_map_app, <- IH. simpl. rewrite app_nil_r.
  rewrite (Nat.add_comm b), seq_app. f_equal. simpl. rewrite <- seq_shift_by. f_equal. lia.
Qed.

Lemma flat_map_in {A B} (f g : A -> list B) l : (forall a, In a l -> f a = g a) -> flat_map f l = flat_map g l.
Proof. induction l as [|a l IH]; simpl; intros H; [reflexivity|]. rewrite H by auto. rewrite IH; auto. Qed.

Lemma flat_map_split {A B} (f g : A -> list B) l :
  Permutation (flat_map (fun a => f a ++ g a) l) (flat_map f l ++ flat_map g l).
Proof.
  induction l as [|a l IH]; simpl; [apply perm_nil|].
  rewrite <- !app_assoc. apply Permutation_app_head.
  eapply Permutation_trans; [apply Permutation_app_head; exact IH|].
  rewrite !app_assoc. apply Permutation_app_tail. apply Permutation_app_comm.
Qed.

Lemma flat_map_swap {A B C} (h : A -> B -> list C) l : forall m,
  Permutation (flat_map (fun b => flat_map (fun a => h a b) l) m) (flat_map (fun a => flat_map (fun b => h a b) m) l).
Proof.
  induction l as [|a l IH]; intros m; simpl.
  - induction m; simpl; auto.
  - eapply Permutation_trans; [apply flat_map_split|]. apply Permutation_app_head. apply IH.
Qed.

Lemma flat_map_permutation {A B} (f : A -> list B) l m : Permutation l m -> Permutation (flat_map f l) (flat_map f m).
Proof.
  induction 1; simpl; auto.
  - apply Permutation_app_head. auto.
  - rewrite !app_assoc. apply Permutation_app_tail. apply Permutation_app_comm.
  - eapply Permutation_trans; eauto.
Qed.

(** All tasks of a product: each outer task with each inner one, once. *)
Theorem product_everything f g : workers g <> 0 ->
  Permutation (everything (product f g))
              (flat_map (fun t => map (combine (extents g) t) (everything g)) (everything f)).
Proof.
  intros W. unfold everything at 1. simpl workers. rewrite seq_product, flat_map_flat_map.
  unfold everything at 2. rewrite flat_map_flat_map.
  induction (seq 0 (workers f)) as [|x xs IH]; simpl; [apply perm_nil|].
  apply Permutation_app; [|exact IH].
  rewrite flat_map_map.
  rewrite (flat_map_in _ (fun y => flat_map (fun t => map (combine (extents g) t) (tasks g y)) (tasks f x))).
  - eapply Permutation_trans; [apply flat_map_swap|].
    rewrite (flat_map_ext_all _ (fun t => map (combine (extents g) t) (everything g))); [apply Permutation_refl|].
    intros t. unfold everything. rewrite map_flat_map. reflexivity.
  - intros y Hy. apply in_seq in Hy. simpl.
    rewrite Nat.div_add_l by assumption. rewrite (Nat.div_small y) by lia. rewrite Nat.add_0_r.
    rewrite (Nat.add_comm (x * workers g)), Nat.mod_add by assumption. rewrite Nat.mod_small by lia. reflexivity.
Qed.

(** A product of exact covers is an exact cover. *)
Theorem product_exact f g df dg : workers g <> 0 -> exact f df -> exact g dg -> exact (product f g) (df * dg).
Proof.
  intros W [Ef Pf] [Eg Pg]. split.
  - simpl. rewrite Ef, Eg. reflexivity.
  - eapply Permutation_trans; [apply product_everything; assumption|].
    eapply Permutation_trans; [apply flat_map_permutation; exact Pf|].
    assert (Permutation (flat_map (fun t => map (combine (extents g) t) (everything g)) (line df))
                        (flat_map (fun t => map (combine (extents g) t) (line dg)) (line df))) as H.
    { clear Pf. induction (line df) as [|t ts IHt]; simpl; [apply perm_nil|].
      apply Permutation_app; [apply Permutation_map; exact Pg|exact IHt]. }
    eapply Permutation_trans; [exact H|]. unfold line. rewrite seq_product, map_flat_map, flat_map_map, Eg.
    rewrite (flat_map_ext_all _ (fun x => map (fun t => [t]) (map (fun y => x * dg + y) (seq 0 dg)))).
    + apply Permutation_refl.
    + intros x. rewrite !map_map. reflexivity.
Qed.

(** The product does not commute: outer repetition of spread tasks is not spread repetition. *)
Example product_not_commutative :
  tasks (product (repeat 2) (spatial 2)) 0 = [[0]; [2]] /\ tasks (product (spatial 2) (repeat 2)) 0 = [[0]; [1]].
Proof. split; reflexivity. Qed.
