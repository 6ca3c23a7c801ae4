import { expect, test } from "vitest";
import { differs, flat, merged } from "../../src/compare/merge.ts";
import { missChance, missShare, predictedShare } from "../../src/data/what-if.ts";

/** Misses of a set-associative cache whose blocks lie in sets by chance, by trying it. */
function tried(distance: number, blocks: number, ways: number, seed = 1): number {
  const sets = blocks / ways;
  let x = seed;
  const random = (): number => (x = (x * 48271) % 2147483647) / 2147483647;
  let misses = 0;
  const rounds = 4000;
  for (let i = 0; i < rounds; i++) {
    let inSet = 0;
    for (let d = 0; d < distance; d++) if (random() * sets < 1) inSet += 1;
    misses += inSet >= ways ? 1 : 0;
  }
  return misses / rounds;
}

test("the chance to miss is that of blocks dealt to sets", () => {
  expect(missChance(511, 512, 0)).toBe(0);
  expect(missChance(512, 512, 0)).toBe(1);
  expect(missChance(3, 512, 4)).toBe(0);
  for (const [distance, blocks, ways] of [[64, 64, 8], [100, 64, 4], [30, 64, 2], [200, 256, 8]] as const) expect(missChance(distance, blocks, ways)).toBeCloseTo(tried(distance, blocks, ways), 1);
  // One set is fully associative.
  expect(missChance(7, 8, 8)).toBe(0);
  expect(missChance(8, 8, 8)).toBe(1);
  // Both formulas meet.
  expect(missChance(2000, 2048, 8)).toBeCloseTo(missChance(2001, 2048, 8), 2);
  expect(missChance(1e9, 512, 8)).toBe(1);
});

test("shares have bounds that hold the truth", () => {
  const bins = [{ from: 0, to: 0, count: 50 }, { from: 512, to: 1023, count: 30 }];
  // All at 600 blocks: 30 and the 20 first touches of 100.
  const known = missShare(bins, 20, 64, { bytes: 64 * 1000, ways: 0 }, true);
  expect(known.lo).toBe(20);
  expect(known.hi).toBe(50);
  expect(known.vague).toBe(false);
  const sampled = missShare(bins, 20, 64, { bytes: 64 * 512, ways: 0 }, false);
  expect(sampled).toEqual({ value: 50, lo: 30, hi: 50, vague: true });
  expect(missShare([], 0, 64, { bytes: 64, ways: 0 }, true).value).toBe(null);
});

test("predictions lie between the points of the curve, and nowhere else", () => {
  const row = { misses: { curve: [{ size: 1024, ratio: [0.4, 0.5, 0.6] }, { size: 4096, ratio: [0.2, 0.3, 0.4] }] } };
  expect(predictedShare(row, 2048)?.value).toBeCloseTo(40);
  expect(predictedShare(row, 512)).toBe(null);
  expect(predictedShare(row, 8192)).toBe(null);
  expect(predictedShare({}, 2048)).toBe(null);
});

const picture = (folder: string, names: [string, number][]) => ({
  call_paths: { calls: [{ id: 1, parent: 0, function: "main", module: `/${folder}/app`, time_pct: 100, time_pct_lo: 99, time_pct_hi: 100 }, ...names.map(([name, pct], i) => ({ id: i + 2, parent: 1, function: name, module: `/${folder}/app`, time_pct: pct, time_pct_lo: pct - 3, time_pct_hi: pct + 3 }))] },
});

test("calls of both builds are one tree, wherever the builds lie", () => {
  const root = merged([picture("a", [["f", 40], ["old", 20], ["gone", 10]])], [picture("b", [["f", 60], ["fresh", 21], ["added", 5]])], "calls", new Map([["old", "fresh"]]));
  expect(root.children.map((c) => c.name)).toEqual(["main"]);
  const by = new Map(flat(root).map((f) => [f.name, f]));
  expect([...by.keys()].sort()).toEqual(["added", "all", "f", "gone", "main", "old → fresh"]);
  expect(by.get("f")?.base.value).toBe(40);
  expect(by.get("f")?.fresh.value).toBe(60);
  expect(["f", "gone", "added"].map((n) => differs(by.get(n)!, false))).toEqual([true, true, true]);
  expect(["main", "old → fresh"].map((n) => differs(by.get(n)!, false))).toEqual([false, false]);
  // Children lie inside their parent, side by side.
  const main = by.get("main")!;
  expect(main.children.reduce((s, c) => s + c.w, 0)).toBeLessThanOrEqual(main.w + 1e-9);
});

test("several runs of a side are their mean", () => {
  const root = merged([picture("a", [["f", 40]]), picture("a", [["f", 60]])], [picture("b", [["f", 50]])], "calls", new Map());
  const f = flat(root).find((x) => x.name === "f");
  expect(f?.base).toEqual({ value: 50, lo: 47, hi: 53 });
});
