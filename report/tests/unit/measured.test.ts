import { describe, expect, test } from "vitest";
import { comparedOf, disputed, drawnIn, measuredOf, valueOf } from "../../src/data/measured.ts";

const level = (name: string, measured: number[], predicted: number[] | null, differs: boolean | null) => ({ level: name, measured, predicted, differs });
const ROW = { share_pct: [40, 50, 60], misses: [level("L1", [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], true), level("L2", [0.1, 0.2, 0.3], [0.05, 0.05, 0.05], true), level("L3", [0, 0.1, 0.2], [0.1, 0.2, 0.3], false)] };

describe("measured beside predicted", () => {
  test("says which of the two has more misses", () => {
    const found = comparedOf(ROW, true);
    expect(found.map((c) => [c.level, c.verdict])).toEqual([["L1", "more"], ["L2", "less"], ["L3", "agree"]]);
    expect(found[0]?.measured).toEqual({ value: 20, lo: 10, hi: 30, vague: false });
    // A complete trace predicts without an interval.
    expect(found[1]?.predicted).toEqual({ value: null, lo: 5, hi: null, vague: false });
    expect(valueOf(found[1]?.predicted ?? null)).toBe(5);
  });
  test("is not compared where samples are of slow loads, or where one of the two is missing", () => {
    expect(comparedOf(ROW, false).map((c) => c.verdict)).toEqual(["not comparable", "not comparable", "not comparable"]);
    expect(comparedOf({ misses: [level("L1", [0, 0, 1], null, null)] }, true)[0]?.verdict).toBe("");
    expect(comparedOf({ misses: "x" }, true)).toEqual([]);
  });
  test("disputes the loads that hit in one and miss in the other", () => {
    expect(disputed(ROW, "L1", true)).toBeCloseTo(20);
    expect(disputed(ROW, "L2", true)).toBeCloseTo(7.5);
    expect([disputed(ROW, "L3", true), disputed(ROW, "L1", false)]).toEqual([0, 0]);
    expect([disputed(ROW, "L4", true), disputed({ ...ROW, share_pct: null }, "L1", true)]).toEqual([null, null]);
  });
  test("is there only with samples, and knows whether anything is predicted", () => {
    expect([measuredOf(null), measuredOf({ samples: 0 }), measuredOf({ samples: "5" })]).toEqual([null, null, null]);
    expect(measuredOf({ samples: 5, misses: [] })).toMatchObject({ compared: false, levels: [], allLoads: false });
    expect(measuredOf({ samples: 5, of_all_loads: true, functions: [ROW] })).toMatchObject({ compared: true, allLoads: true });
    expect(drawnIn("loads of 30 cycles or more")).toBe("drawn from loads of 30 cycles or more");
    expect(drawnIn("")).toBe("what they are drawn from is not known");
  });
});
