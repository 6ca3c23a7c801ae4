// Curves that follow from histograms of the analysis.
import type { Bin } from "../views/common.tsx";

export interface CurvePoint {
  x: number;
  y: number | null;
  lo: number;
  hi: number;
}

/**
 * Misses of a fully associative cache by its size: touches whose reuse distance is at least the
 * number of its blocks. A sampled trace does not show whether the first touches of a window would
 * have hit. The bounds are that all of them hit and that all of them miss; there is no estimate
 * between.
 */
export function missRatio(bins: Bin[], first: number, block: number, complete: boolean): CurvePoint[] {
  const reuses = bins.reduce((s, b) => s + b.count, 0);
  const all = reuses + first;
  if (all === 0) return [];
  const points: CurvePoint[] = [];
  let beyond = reuses;
  const add = (blocks: number): void => {
    const hi = (100 * (beyond + first)) / all;
    const lo = complete ? hi : (100 * beyond) / all;
    points.push({ x: blocks * block, y: complete ? hi : (lo + hi) / 2, lo, hi });
  };
  for (const bin of [...bins].sort((a, b) => a.from - b.from)) {
    // Distances of the bin itself fit from its end on.
    beyond -= bin.count;
    add(bin.to + 1);
  }
  const top = Math.max((points.at(-1)?.x ?? 0) * 4, 64 << 20);
  for (let x = (points.at(-1)?.x ?? block) * 2; x <= top; x *= 2) add(x / block);
  return points;
}
