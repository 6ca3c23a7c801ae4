(* Exceptions continue at addresses that lie on the stack; an overflow of the stack is a fault that
   becomes one. *)
exception Found of int

let rec search n = if n = 0 then raise (Found 17) else 1 + search (n - 1)
let guarded n = try search n with Found k -> k + n

let rec nested n =
  try if n mod 3 = 0 then raise Not_found else if n = 1 then raise Exit else nested (n - 1)
  with Not_found when n mod 2 = 0 -> n | Exit -> 1

let rec endless n = 1 + endless (n + 1)

let () =
  let total = ref 0 in
  for i = 1 to 20000 do
    total := !total + guarded (i mod 50) + (try nested i with Not_found -> 2)
  done;
  Printf.printf "%d\n" !total;
  let overflows = ref 0 in
  for _ = 1 to 3 do
    try ignore (endless 0) with Stack_overflow -> incr overflows
  done;
  Printf.printf "%d\n" !overflows;
  let caught = ref 0 in
  for i = 0 to 20000 do
    (try ignore (10 / (i mod 3)) with Division_by_zero -> incr caught);
    (try ignore [| 1; 2 |].(i mod 4) with Invalid_argument _ -> incr caught);
    (try ignore (int_of_string "x") with Failure _ -> incr caught);
    try ignore (List.assoc i [ (0, 1) ]) with Not_found -> incr caught
  done;
  Printf.printf "%d\n" !caught;
  Printexc.record_backtrace true;
  (try ignore (search 5) with Found _ -> print_string (Printexc.get_backtrace ()));
  at_exit (fun () -> print_endline "last");
  exit 3
