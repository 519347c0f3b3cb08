"""Programs that distinguish this calculus: each with an oracle, plans on two targets, wrong twins, an ablation."""
