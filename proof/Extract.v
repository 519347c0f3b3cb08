(** The executable judge of ring texts, as an OCaml program: [compare.ml] reads texts and prints verdicts. *)

From Coq Require Import Extraction ExtrOcamlBasic.
From Treadle Require Import Protocol.

Extraction "protocol.ml" verdict enough.
