// What a cache of another size or associativity would miss, from reuse distances.
import type { Bin } from "../views/common.tsx";
import { num, obj, objs, triple, type Estimate, type Obj } from "./values.ts";

/**
 * The probability that a touch misses whose block was left `distance` other blocks ago: at least `ways` of these lie in its set. Blocks are
 * taken as dealt to sets by chance. No ways (0): fully associative.
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

/** Points inside a bin of a histogram whose bins double. */
function inside(bin: Bin): number[] {
  if (bin.to <= bin.from) return [bin.from];
  const n = Math.min(8, bin.to - bin.from + 1);
  return Array.from({ length: n }, (_, i) => bin.from + ((bin.to - bin.from) * (i + 0.5)) / n);
}

export interface Asked {
  bytes: number;
  /** 0: fully associative. */
  ways: number;
}

/**
 * Misses per 100 touches. What the first touches of windows would have found is unknown: the ends are that all of them hit, and that all miss.
 * In complete traces first touches miss, and the result is exact up to the width of the bins.
 */
export function missShare(bins: Bin[], first: number, block: number, asked: Asked, complete: boolean): Estimate {
  const reuses = bins.reduce((s, b) => s + b.count, 0);
  const all = reuses + first;
  if (all === 0) return { value: null, lo: null, hi: null };
  const blocks = Math.max(1, Math.floor(asked.bytes / block));
  let missed = 0;
  for (const bin of bins) {
    const points = inside(bin);
    missed += (bin.count * points.reduce((s, d) => s + missChance(d, blocks, asked.ways), 0)) / points.length;
  }
  const [lo, hi] = [(100 * missed) / all, (100 * (missed + first)) / all];
  return complete ? { value: null, lo: hi, hi: null, vague: false } : { value: hi, lo, hi, vague: true };
}

/** What the analysis predicts for a fully associative cache of that size, between the points of its curve; none beyond them. */
export function predictedShare(row: Obj, bytes: number): Estimate | null {
  const points = objs(obj(row["misses"])["curve"])
    .map((c) => ({ x: num(c["size"]) ?? 0, ratio: triple(c["ratio"]) }))
    .filter((p) => p.x > 0 && p.ratio !== null)
    .sort((a, b) => a.x - b.x);
  const after = points.findIndex((p) => p.x >= bytes);
  const [a, b] = [points[after - 1] ?? points[after], points[after]];
  if (!a?.ratio || !b?.ratio) return null;
  const t = b.x === a.x ? 0 : Math.log(bytes / a.x) / Math.log(b.x / a.x);
  if (t < 0) return null;
  const mix = (x: number | null, y: number | null): number | null => (x === null || y === null ? null : 100 * (x + t * (y - x)));
  return { value: mix(a.ratio.value, b.ratio.value), lo: mix(a.ratio.lo, b.ratio.lo), hi: mix(a.ratio.hi, b.ratio.hi) };
}
