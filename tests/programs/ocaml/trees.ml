(* Allocation and collection: the collector finds roots by the return addresses on the stack. *)
type tree = Leaf | Node of tree * int * tree

let rec build depth = if depth = 0 then Leaf else Node (build (depth - 1), depth, build (depth - 1))
let rec sum = function Leaf -> 0 | Node (l, v, r) -> sum l + v + sum r
let rec map f = function Leaf -> Leaf | Node (l, v, r) -> Node (map f l, f v, map f r)

let () =
  Gc.set { (Gc.get ()) with Gc.minor_heap_size = 4096; space_overhead = 20 };
  let total = ref 0 in
  for i = 1 to 60 do
    let t = build (10 + (i mod 5)) in
    total := !total + sum (map (fun v -> v * i) t);
    if i mod 7 = 0 then Gc.compact ()
  done;
  Printf.printf "%d\n" !total;
  let finalized = ref 0 in
  for i = 1 to 1000 do
    let b = Bytes.make (i mod 100) 'x' in
    Gc.finalise (fun _ -> incr finalized) b
  done;
  Gc.full_major ();
  Gc.full_major ();
  Printf.printf "%b\n" (!finalized > 900);
  let weak = Weak.create 100 in
  for i = 0 to 99 do
    Weak.set weak i (Some (ref i))
  done;
  Gc.full_major ();
  let left = ref 0 in
  for i = 0 to 99 do
    if Weak.check weak i then incr left
  done;
  Printf.printf "%d\n" !left
