(* Reads ring texts, one a line, as numbers, and prints 1 (right), 0 (wrong) or ? for each.
   A line: slots trips full_count empty_count whole, then the producer's acts, then the number of consumers and for each
   the acts of a step and the acts after the last step. A list of acts is its length and pairs (word, number); words:
   0 WaitFull, 1 WaitEmpty, 2 Tell, 3 Fill, 4 Read, 5 Give. *)

open Protocol

let rec nat n = if n = 0 then O else S (nat (n - 1))

let line_of text =
  let rest = ref (List.map int_of_string (String.split_on_char ' ' (String.trim text))) in
  let next () = match !rest with x :: more -> rest := more; x | [] -> failwith "a line is too short" in
  let rec times n f = if n = 0 then [] else let x = f () in x :: times (n - 1) f in
  let act () =
    let word = next () in
    let n = nat (next ()) in
    match word with
    | 0 -> WaitFull n | 1 -> WaitEmpty n | 2 -> Tell n | 3 -> Fill n | 4 -> Read | 5 -> Give n
    | _ -> failwith "no such act" in
  let acts () = let n = next () in times n act in
  let slots = nat (next ()) in
  let trips = nat (next ()) in
  let full_count = nat (next ()) in
  let empty_count = nat (next ()) in
  let whole = nat (next ()) in
  let producer = acts () in
  let many = next () in
  let consumers = times many (fun () -> let step = acts () in let last = acts () in (step, last)) in
  { slots; trips; full_count; empty_count; whole; producer; consumers }

let () =
  try
    while true do
      let text = line_of (input_line stdin) in
      print_char (match verdict text enough with Some true -> '1' | Some false -> '0' | None -> '?')
    done
  with End_of_file -> print_newline ()
