(* Hash tables, maps, sorts, strings and floats. *)
module M = Map.Make (String)

let () =
  let state = ref 1 in
  let next () =
    state := (!state * 1103515245 + 12345) land 0x3fffffff;
    !state lsr 4
  in
  let a = Array.init 100000 (fun _ -> next ()) in
  Array.sort compare a;
  Printf.printf "%d %d\n" a.(0) a.(50000);
  let l = List.sort (fun x y -> compare (x mod 1000) (y mod 1000)) (Array.to_list a) in
  Printf.printf "%d\n" (List.fold_left (fun h x -> (h * 31) + x) 7 l);
  let h = Hashtbl.create 16 in
  for _ = 1 to 100000 do
    let k = next () mod 5000 in
    Hashtbl.replace h k (1 + try Hashtbl.find h k with Not_found -> 0)
  done;
  Printf.printf "%d %d\n" (Hashtbl.length h) (Hashtbl.fold (fun k v s -> s + (k * v)) h 0);
  let m = ref M.empty in
  for i = 1 to 20000 do
    m := M.add (string_of_int (next () mod 3000)) i !m
  done;
  Printf.printf "%d %d\n" (M.cardinal !m) (M.fold (fun k v s -> s + v + String.length k) !m 0);
  let b = Buffer.create 100 in
  M.iter (fun k _ -> Buffer.add_string b k) !m;
  Printf.printf "%s\n" (Digest.to_hex (Digest.string (Buffer.contents b)));
  let f = Array.make_matrix 100 100 0.0 in
  for k = 1 to 20 do
    for i = 0 to 99 do
      for j = 0 to 99 do
        f.(i).(j) <- sin (float (i * j) /. float k) +. (0.5 *. f.(j).(i))
      done
    done
  done;
  Printf.printf "%.12f\n" f.(17).(42);
  let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2) in
  let lazies = Array.init 25 (fun i -> lazy (fib i)) in
  Printf.printf "%d\n" (Array.fold_left (fun s l -> s + Lazy.force l) 0 lazies)
