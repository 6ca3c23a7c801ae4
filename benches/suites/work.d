// Tables, sorting, exceptions, garbage and threads. The argument says how much; "mistake" ends by an exception that nobody handles.
import core.memory : GC;
import core.thread : Thread;
import std.algorithm : map, sort, sum;
import std.array : array;
import std.conv : to;
import std.range : iota;
import std.stdio : writefln;

class Odd : Exception { long at; this(long at) { super("odd"); this.at = at; } }

ulong mix(ulong x) { x ^= x >> 31; x *= 0x9e3779b97f4a7c15UL; return x ^ (x >> 29); }

long checked(long n) { if (n % 7 == 3) throw new Odd(n); return n / 2; }

class Tree { Tree left, right; ulong key; this(ulong key) { this.key = key; } }

Tree put(Tree t, ulong key) {
    if (t is null) return new Tree(key);
    if (key < t.key) t.left = put(t.left, key); else t.right = put(t.right, key);
    return t;
}

ulong walk(Tree t, ulong depth) { return t is null ? 0 : mix(t.key + depth) + walk(t.left, depth + 1) + walk(t.right, depth + 1); }

ulong work(ulong seed, int n) {
    ulong h = seed;
    ulong[string] words;
    Tree tree;
    foreach (i; 0 .. n) {
        words["w" ~ to!string(mix(seed + i) % (n / 4 + 1))] += i;
        tree = put(tree, mix(seed * 31 + i));
        try { h += checked(i); } catch (Odd e) { h += mix(e.at); }
        auto garbage = iota(i % 50).map!(x => mix(x + i)).array;
        h ^= sum(garbage);
    }
    auto keys = words.keys;
    keys.sort();
    foreach (k; keys) h = mix(h + words[k] + k.length);
    return h + walk(tree, 1);
}

int main(string[] args) {
    if (args[1] == "mistake") throw new Odd(3);
    int n = to!int(args[1]) * 2000;
    auto results = new ulong[4];
    Thread[] threads;
    foreach (t; 0 .. 4) (int t) { threads ~= new Thread({ results[t] = work(t + 1, n); }).start(); }(t);
    foreach (t; threads) t.join();
    GC.collect();
    foreach (r; results) writefln("%016x", r);
    return 5;
}
