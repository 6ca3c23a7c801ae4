% Tables, sorting, handled errors, strings, matrices. WORK says how much.
1;
function y = mix(x)
  y = mod(x * 7919 + 104729, 1000003);
end
function h = work(seed, n)
  h = seed; words = containers.Map();
  for i = 1:n
    word = sprintf("w%d", mod(mix(seed + i), floor(n / 4) + 1));
    if isKey(words, word), words(word) = words(word) + i; else, words(word) = i; end
    try
      if mod(i, 7) == 3, error("work:odd", "odd"); end
      h = mod(h + floor(i / 2), 1000003);
    catch e
      h = mod(h + mix(i) + length(e.message), 1000003);
    end
    h = mod(h + sum(sort(mix((1:mod(i, 50)) + i))), 1000003);
  end
  k = keys(words);
  for i = 1:numel(k), h = mix(h + words(k{i}) + length(k{i})); end
end
n = 50 * str2double(getenv("WORK"));
for t = 1:4, printf("%d\n", work(t, n)); end
m = reshape(mod(mix(1:2500), 17), 50, 50) + eye(50) * 100;
printf("%.6f\n", sum((m \ (m * m))(:)));
printf("%d\n", sum(str2double(regexp(sprintf("%d;", mix(1:500)), '\d+', 'match'))));
exit(5);
