(* Tables, sorting, exceptions and garbage. The argument says how much. *)
exception Odd of int

let mix x = let y = (x lxor (x lsr 31)) * 0x1e3779b97f4a7c15 in y lxor (y lsr 29)
let checked n = if n mod 7 = 3 then raise (Odd n) else n / 2

let work seed n =
  let words = Hashtbl.create 16 and h = ref seed in
  for i = 0 to n - 1 do
    let word = "w" ^ string_of_int (abs (mix (seed + i)) mod (n / 4 + 1)) in
    Hashtbl.replace words word (i + try Hashtbl.find words word with Not_found -> 0);
    (h := !h + try checked i with Odd at -> mix at);
    h := List.fold_left (lxor) !h (List.sort compare (List.init (i mod 50) (fun x -> mix (x + i))))
  done;
  let all = List.sort compare (Hashtbl.fold (fun k v l -> (k, v) :: l) words []) in
  List.fold_left (fun h (k, v) -> mix (h + v + String.length k)) !h all

let () =
  let n = int_of_string Sys.argv.(1) * 2000 in
  for t = 1 to 4 do Printf.printf "%x\n" (work t n) done;
  exit 5
