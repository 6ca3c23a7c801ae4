%% Tables, sorting, exceptions, garbage and processes. The argument says how much.
-module(work).
-export([main/1]).

mix(X) ->
    Y = (X bxor (X bsr 31)) * 16#9e3779b97f4a7c15 band 16#ffffffffffffffff,
    Y bxor (Y bsr 29).

checked(N) when N rem 7 =:= 3 -> throw({odd, N});
checked(N) -> N div 2.

work(Seed, N) ->
    One = fun(I, {Words, H}) ->
        Word = "w" ++ integer_to_list(mix(Seed + I) rem (N div 4 + 1)),
        Number = try checked(I) catch throw:{odd, At} -> mix(At) end,
        Garbage = lists:sort([mix(X + I) || X <- lists:seq(1, I rem 50)]),
        {maps:update_with(Word, fun(V) -> V + I end, I, Words),
         lists:foldl(fun(X, A) -> X bxor A end, H + Number, Garbage)}
    end,
    {Words, H} = lists:foldl(One, {#{}, Seed}, lists:seq(0, N - 1)),
    lists:foldl(fun({K, V}, A) -> mix(A + V + length(K)) end, H, lists:sort(maps:to_list(Words))).

main([Argument]) ->
    N = list_to_integer(atom_to_list(Argument)) * 2000,
    Self = self(),
    [spawn(fun() -> Self ! {T, work(T, N)} end) || T <- lists:seq(1, 8)],
    [receive {T, H} -> io:format("~.16b~n", [H]) end || T <- lists:seq(1, 8)],
    halt(5).
