// Predicts the misses of a cache of another size or associativity from reuse distances.
import type { Bin } from "../views/common.tsx";
import { num, obj, objs, triple, type Estimate, type Obj } from "./values.ts";

/**
 * The probability that a touch misses if its block was last used `distance` other blocks ago: at
 * least `ways` of these lie in its set. The model assigns blocks to sets at random. No ways (0):
 * fully associative.
 */
export function missChance(distance: number, blocks: number, ways: number): number {
  if (ways <= 0 || ways >= blocks) return distance >= blocks ? 1 : 0;
  const sets = blocks / ways;
  if (distance < ways) return 0;
  const mean = distance / sets;
  // Far beyond, and far below, there is no doubt.
  if (mean > ways + 12 * Math.sqrt(ways) + 30) return 1;
  // Binomial with `distance` trials; the Poisson distribution is near to it where trials are many.
  const p = 1 / sets;
  const many = distance > 2000;
  let term = many ? Math.exp(-mean) : (1 - p) ** distance;
  let below = 0;
  for (let k = 0; k < ways; k++) {
    below += term;
    term *= many ? mean / (k + 1) : ((distance - k) / (k + 1)) * (p / (1 - p));
  }
  return Math.max(0, Math.min(1, 1 - below));
}

/** A point in the middle of a bin of a histogram whose bins double. */
const middle = (bin: Bin): number => (bin.from + bin.to) / 2;

export interface Asked {
  bytes: number;
  /** 0: fully associative. */
  ways: number;
}

/**
 * Misses per 100 touches, with bounds. A distance is known up to the width of its bin. In sampled
 * traces, the first touches of windows are unknown, so the bounds are that all of them hit and that
 * all miss. In complete traces first touches miss.
 */
export function missShare(bins: Bin[], first: number, block: number, asked: Asked, complete: boolean): Estimate {
  const reuses = bins.reduce((s, b) => s + b.count, 0);
  const all = reuses + first;
  if (all === 0) return { value: null, lo: null, hi: null };
  const blocks = Math.max(1, Math.floor(asked.bytes / block));
  const missed = (at: (bin: Bin) => number): number => bins.reduce((s, bin) => s + bin.count * missChance(at(bin), blocks, asked.ways), 0);
  const lo = (100 * (missed((b) => b.from) + (complete ? first : 0))) / all;
  const hi = (100 * (missed((b) => b.to) + first)) / all;
  const value = complete ? (100 * (missed(middle) + first)) / all : hi;
  return { value, lo, hi, vague: !complete };
}

/**
 * The analysis's prediction for a fully associative cache of that size, interpolated between the
 * points of its curve; none outside of them.
 */
export function predictedShare(row: Obj, bytes: number): Estimate | null {
  const points = objs(obj(row["misses"])["curve"])
    .map((c) => ({ x: num(c["size"]) ?? 0, ratio: triple(c["ratio"]) }))
    .filter((p) => p.x > 0 && p.ratio !== null)
    .sort((a, b) => a.x - b.x);
  const after = points.findIndex((p) => p.x >= bytes);
  const [a, b] = [points[after - 1] ?? points[after], points[after]];
  // Outside of the curve nothing is predicted.
  if (!a?.ratio || !b?.ratio || bytes < a.x) return null;
  const t = b.x === a.x ? 0 : Math.log(bytes / a.x) / Math.log(b.x / a.x);
  const mix = (x: number | null, y: number | null): number | null => (x === null || y === null ? null : 100 * (x + t * (y - x)));
  return { value: mix(a.ratio.value, b.ratio.value), lo: mix(a.ratio.lo, b.ratio.lo), hi: mix(a.ratio.hi, b.ratio.hi) };
}
