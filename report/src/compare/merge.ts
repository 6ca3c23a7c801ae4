// Two trees of shares as one, for the differential icicle.
import { list, num, obj, objs, str, type Obj } from "../data/values.ts";

/** A share of a side, percent, with its interval where one is known. */
export interface Share {
  value: number;
  lo: number | null;
  hi: number | null;
}

export interface Frame {
  id: string;
  name: string;
  /** The place, for the tooltip. */
  detail: string;
  base: Share;
  fresh: Share;
  depth: number;
  children: Frame[];
  /** Place in the picture, 0 to 1. */
  x: number;
  w: number;
}

interface Plain {
  name: string;
  detail: string;
  share: Share;
  children: Map<string, Plain>;
}

const NONE: Share = { value: 0, lo: null, hi: null };
/** Builds lie in folders of their own: only the names of files tell what belongs together. */
const fileOf = (module: string): string => module.split("/").pop() ?? module;
const plain = (name: string, detail: string): Plain => ({ name, detail, share: NONE, children: new Map() });

/** The uncertainty of a sum is at least that of its parts. */
function sum(a: Share, b: Share): Share {
  if (a === NONE) return b;
  return { value: a.value + b.value, lo: a.lo === null || b.lo === null ? null : a.lo + b.lo, hi: a.hi === null || b.hi === null ? null : a.hi + b.hi };
}

/** Calls of one run as a tree. */
function callTree(picture: Obj): Plain {
  const root = plain("all", "");
  const byId = new Map<number, Plain>();
  for (const call of objs(obj(picture["call_paths"])["calls"])) {
    const time = num(call["time_pct"]);
    const share = { value: time ?? num(call["A_pct"]) ?? 0, lo: time === null ? null : num(call["time_pct_lo"]), hi: time === null ? null : num(call["time_pct_hi"]) };
    const name = str(call["function"]) || "[unknown]";
    const parent = byId.get(num(call["parent"]) ?? 0) ?? root;
    const key = `${name}\n${fileOf(str(call["module"]))}`;
    const found = parent.children.get(key) ?? plain(name, str(call["module"]));
    found.share = sum(found.share, share);
    parent.children.set(key, found);
    byId.set(num(call["id"]) ?? -1, found);
  }
  return root;
}

/** Functions of one run over their lines. */
function codeTree(picture: Obj): Plain {
  const root = plain("all", "");
  for (const row of objs(picture["lines"])) {
    const share = { value: num(row["pct"]) ?? 0, lo: num(row["lo"]), hi: num(row["hi"]) };
    const name = str(row["function"]) || "[unknown]";
    const key = `${name}\n${fileOf(str(row["module"]))}`;
    const of = root.children.get(key) ?? plain(name, str(row["module"]));
    of.share = sum(of.share, share);
    root.children.set(key, of);
    const file = str(row["file"]).split("/").pop() ?? "";
    const line = num(row["line"]) ?? 0;
    const at = file && line ? `${file}:${line}` : "line not known";
    const leaf = of.children.get(at) ?? plain(at, str(row["file"]));
    leaf.share = sum(leaf.share, share);
    of.children.set(at, leaf);
  }
  return root;
}

/** The mean of several runs of a side. */
function mean(trees: Plain[]): Plain {
  const out = plain("all", "");
  const add = (to: Plain, from: Plain): void => {
    for (const [key, child] of from.children) {
      const found = to.children.get(key) ?? plain(child.name, child.detail);
      const part = (x: number | null): number | null => (x === null ? null : x / trees.length);
      found.share = sum(found.share, { value: child.share.value / trees.length, lo: part(child.share.lo), hi: part(child.share.hi) });
      to.children.set(key, found);
      add(found, child);
    }
  };
  for (const tree of trees) add(out, tree);
  return out;
}

export type Kind = "calls" | "code";

/** Tells whether all runs of both sides have call paths. */
export const hasCalls = (pictures: Obj[]): boolean => pictures.length > 0 && pictures.every((p) => objs(obj(p["call_paths"])["calls"]).length > 0);

/** Names of functions of the base that have another one in the new build. */
export function renames(changes: Obj[]): Map<string, string> {
  return new Map(changes.filter((c) => c["kind"] === "function" && str(c["new_name"])).map((c) => [str(c["name"]), str(c["new_name"])]));
}

/** Both sides as one tree; what is as wide as the mean of its two shares. */
export function merged(base: Obj[], fresh: Obj[], kind: Kind, renamed: Map<string, string>): Frame {
  const of = kind === "calls" ? callTree : codeTree;
  const [a, b] = [mean(base.map(of)), mean(fresh.map(of))];
  const join = (x: Plain | undefined, y: Plain | undefined, id: string, depth: number): Frame => {
    const left = x?.children ?? new Map<string, Plain>();
    const right = new Map(y?.children ?? []);
    const pairs: [Plain | undefined, Plain | undefined][] = [];
    // Pairs nodes of the same name and file first, then renamed ones, then nodes of the same name
    // in a file of another name.
    const rest = new Map<string, Plain>();
    const take = (key: string, child: Plain): boolean => {
      const partner = right.get(key);
      if (!partner) return false;
      pairs.push([child, partner]);
      right.delete(key);
      return true;
    };
    for (const [key, child] of left) if (!take(key, child)) rest.set(key, child);
    for (const [key, child] of rest) {
      const [name = "", module] = key.split("\n");
      const fresh = renamed.get(name);
      const found = (fresh !== undefined && take(`${fresh}\n${module}`, child)) || [...right].some(([other, partner]) => partner.name === name && take(other, child));
      if (!found) pairs.push([child, undefined]);
    }
    for (const child of right.values()) pairs.push([undefined, child]);
    const children = depth > 60 ? [] : pairs.map(([p, q], i) => join(p, q, id ? `${id}.${i}` : String(i), depth + 1));
    children.sort((p, q) => q.base.value + q.fresh.value - p.base.value - p.fresh.value);
    const name = x && y && x.name !== y.name ? `${x.name} → ${y.name}` : (y ?? x)?.name ?? "";
    return { id, name, detail: (y ?? x)?.detail ?? "", base: x?.share ?? NONE, fresh: y?.share ?? NONE, depth, children, x: 0, w: 0 };
  };
  const root = join(a, b, "", 0);
  const whole = (side: "base" | "fresh"): Share => ({ value: root.children.reduce((s, c) => s + c[side].value, 0), lo: null, hi: null });
  root.base = whole("base");
  root.fresh = whole("fresh");
  place(root, 0, 1);
  return root;
}

const size = (f: Frame): number => (f.base.value + f.fresh.value) / 2;

/** Children side by side below their parent. */
export function place(frame: Frame, x: number, w: number): void {
  frame.x = x;
  frame.w = w;
  const inside = Math.max(size(frame), frame.children.reduce((s, c) => s + size(c), 0), 1e-9);
  let at = x;
  for (const child of frame.children) {
    const wide = (w * size(child)) / inside;
    place(child, at, wide);
    at += wide;
  }
}

export const flat = (f: Frame): Frame[] => [f, ...f.children.flatMap(flat)];

/**
 * Tells whether the intervals of both sides are disjoint. Shares without intervals tell nothing,
 * unless all loads were recorded.
 */
export function differs(f: Frame, exact: boolean): boolean {
  const [a, b] = [f.base, f.fresh];
  if (exact) return Math.abs(a.value - b.value) > 0.05;
  const low = (s: Share): number | null => (s === NONE ? 0 : s.lo);
  const high = (s: Share): number | null => (s === NONE ? 0 : s.hi);
  const [alo, ahi, blo, bhi] = [low(a), high(a), low(b), high(b)];
  if (alo === null || ahi === null || blo === null || bhi === null) return false;
  return blo > ahi || bhi < alo;
}

/** Distances of several runs together. */
export function distances(pictures: Obj[]): { from: number; to: number; count: number }[] {
  const bins = new Map<number, { from: number; to: number; count: number }>();
  for (const p of pictures)
    for (const b of list(p["D_hist"]).map(obj)) {
      const from = num(b["from"]) ?? 0;
      const old = bins.get(from) ?? { from, to: num(b["to"]) ?? from, count: 0 };
      old.count += num(b["count"]) ?? 0;
      bins.set(from, old);
    }
  return [...bins.values()].sort((x, y) => x.from - y.from);
}
