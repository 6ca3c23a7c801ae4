(* Threads, which take turns at a tick, with queues between them. *)
let () =
  let m = Mutex.create () and c = Condition.create () in
  let q = Queue.create () and total = ref 0 and left = ref 6 in
  let worker n =
    for i = 1 to 300 do
      let l = List.init 50 (fun j -> string_of_int (n * i * j)) in
      let s = List.fold_left (fun s x -> s + String.length x) 0 l in
      Mutex.lock m;
      Queue.add s q;
      Condition.signal c;
      Mutex.unlock m;
      if i mod 50 = 0 then Thread.yield ()
    done;
    Mutex.lock m;
    decr left;
    Condition.signal c;
    Mutex.unlock m
  in
  let all = List.init 6 (fun n -> Thread.create worker n) in
  Mutex.lock m;
  while !left > 0 || not (Queue.is_empty q) do
    if Queue.is_empty q then Condition.wait c m else total := !total + Queue.take q
  done;
  Mutex.unlock m;
  List.iter Thread.join all;
  Printf.printf "%d\n" !total
