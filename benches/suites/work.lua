-- What a Lua program asks of its machine: tables, strings, closures, coroutines, numbers. Argument: scale.
local scale = tonumber(arg[1]) or 1

local function sieve(n)
  local composite, count = {}, 0
  for i = 2, n do
    if not composite[i] then
      count = count + 1
      for j = i * i, n, i do composite[j] = true end
    end
  end
  return count
end

local function words(n)
  local seen, order = {}, {}
  local state = 42
  for _ = 1, n do
    state = (state * 1103515245 + 12345) % 2147483648
    local word = string.format("%x", state % 5000)
    if not seen[word] then order[#order + 1] = word end
    seen[word] = (seen[word] or 0) + 1
  end
  table.sort(order)
  local sum = 0
  for i, word in ipairs(order) do sum = (sum * 31 + i * seen[word]) % 1000000007 end
  return sum
end

local function producers(n)
  local function numbers(to) return coroutine.wrap(function() for i = 1, to do coroutine.yield(i) end end) end
  local sum = 0
  for i in numbers(n) do sum = sum + i % 7 end
  return sum
end

local function floats(n)
  local x, y = 0.5, 0.25
  for _ = 1, n do x, y = x * y + math.sin(x), math.sqrt(math.abs(y - x)) end
  return string.format("%.12g %.12g", x, y)
end

local function errors(n)
  local count = 0
  for i = 1, n do
    local ok, what = pcall(function() if i % 3 == 0 then error({ code = i }) end return i end)
    if not ok then count = count + what.code end
  end
  return count
end

print("sieve", sieve(200000 * scale))
print("words", words(100000 * scale))
print("producers", producers(100000 * scale))
print("floats", floats(500000 * scale))
print("errors", errors(20000 * scale))
print("gsub", #string.gsub(string.rep("hello world ", 20000 * scale), "o(%s?)w", "%1-"))
