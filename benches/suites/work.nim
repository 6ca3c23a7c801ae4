# Tables, sorting, exceptions, garbage and threads. The argument says how much; "mistake" ends by an exception that nobody handles.
import std/[algorithm, os, strutils, tables]

type
  Odd = object of CatchableError
  Tree = ref object
    left, right: Tree
    key: uint64

proc mix(x: uint64): uint64 =
  var y = x xor (x shr 31)
  y = y * 0x9e3779b97f4a7c15'u64
  y xor (y shr 29)

proc checked(n: int): int =
  if n mod 7 == 3: raise newException(Odd, $n)
  n div 2

proc put(t: Tree, key: uint64): Tree =
  if t == nil: return Tree(key: key)
  if key < t.key: t.left = put(t.left, key) else: t.right = put(t.right, key)
  t

proc walk(t: Tree, depth: uint64): uint64 =
  if t == nil: 0'u64 else: mix(t.key + depth) + walk(t.left, depth + 1) + walk(t.right, depth + 1)

proc work(seed: uint64, n: int): uint64 =
  var h = seed
  var words = initTable[string, int]()
  var tree: Tree
  for i in 0 ..< n:
    let word = "w" & $(mix(seed + uint64(i)) mod uint64(n div 4 + 1))
    words[word] = words.getOrDefault(word) + i
    tree = put(tree, mix(seed * 31 + uint64(i)))
    try: h += uint64(checked(i))
    except Odd as e: h += mix(uint64(parseInt(e.msg)))
    var garbage: seq[uint64]
    for x in 0 ..< i mod 50: garbage.add mix(uint64(x + i))
    garbage.sort()
    for x in garbage: h = h xor x
  var keys: seq[string]
  for k in words.keys: keys.add k
  keys.sort()
  for k in keys: h = mix(h + uint64(words[k] + k.len))
  h + walk(tree, 1)

var results: array[4, uint64]

proc thread(job: (int, int)) {.thread.} =
  results[job[0]] = work(uint64(job[0] + 1), job[1])

let argument = paramStr(1)
if argument == "mistake": discard checked(3)
let n = parseInt(argument) * 2000
var threads: array[4, Thread[(int, int)]]
for t in 0 ..< 4: createThread(threads[t], thread, (t, n))
joinThreads(threads)
for r in results: echo toHex(r)
quit(5)
