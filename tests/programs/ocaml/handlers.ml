(* Signals, timers, pipes and processes, with handlers in OCaml. *)
let () =
  let got = ref 0 in
  Sys.set_signal Sys.sigusr1 (Sys.Signal_handle (fun _ -> incr got));
  let me = Unix.getpid () in
  let work = ref 0 in
  for i = 1 to 500 do
    Unix.kill me Sys.sigusr1;
    let l = List.init 100 (fun j -> ref (i * j)) in
    work := !work + List.fold_left (fun s r -> s + !r) 0 l
  done;
  Printf.printf "%b %d\n" (!got > 0) !work;
  let ticks = ref 0 in
  Sys.set_signal Sys.sigalrm (Sys.Signal_handle (fun _ -> incr ticks));
  ignore
    (Unix.setitimer Unix.ITIMER_REAL { Unix.it_interval = 0.001; Unix.it_value = 0.001 });
  let l = ref [] in
  while !ticks < 50 do
    l := if List.length !l > 100 then [] else !ticks :: !l
  done;
  ignore (Unix.setitimer Unix.ITIMER_REAL { Unix.it_interval = 0.0; Unix.it_value = 0.0 });
  Printf.printf "%b\n" (!ticks >= 50);
  flush stdout;
  let sums =
    List.init 5 (fun i ->
        let r, w = Unix.pipe () in
        match Unix.fork () with
        | 0 ->
            let s = List.fold_left ( + ) 0 (List.init 10000 (fun j -> i * j)) in
            let text = string_of_int s in
            ignore (Unix.write_substring w text 0 (String.length text));
            Unix._exit 0
        | pid ->
            Unix.close w;
            let b = Bytes.create 100 in
            let n = Unix.read r b 0 100 in
            ignore (Unix.waitpid [] pid);
            Bytes.sub_string b 0 n)
  in
  print_endline (String.concat " " sums)
