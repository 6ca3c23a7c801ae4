import { describe, expect, test } from "vitest";
import { bytes, count, percent, range, seconds, short, shortRemedy, base } from "../../src/format.ts";
import { csv } from "../../src/components/csv.ts";
import { heat } from "../../src/components/heat.ts";
import { missRatio } from "../../src/data/curves.ts";
import { sorted, Table } from "../../src/data/table.ts";
import { estimate, num, share, triple } from "../../src/data/values.ts";
import { bytesOf } from "../../src/data/load.ts";
import { parse, write } from "../../src/state.ts";
import { readDefinitions } from "../../src/build/definitions.ts";
import definitions from "virtual:definitions";
import { coloured } from "../../src/components/source.tsx";
import { sentence, wantsHeap, type Model } from "../../src/data/model.ts";
import { layout } from "../../src/views/memory.tsx";

describe("numbers", () => {
  test("have three digits and a power", () => {
    expect([0, 7, 999, 1000, 12345, 4.19e6, 5e11, null].map(count)).toEqual(["0", "7", "999", "1.00K", "12.3K", "4.19M", "500G", "–"]);
    expect([0, 1023, 1024, 65536, 3 << 20].map(bytes)).toEqual(["0 B", "1023 B", "1.00 KiB", "64.0 KiB", "3.00 MiB"]);
    expect([0, 0.01, 12.34, 100].map(percent)).toEqual(["0 %", "<0.1 %", "12.3 %", "100 %"]);
    expect([5e-5, 0.5, 5, 125].map(seconds)).toEqual(["50.0 µs", "500 ms", "5.00 s", "2 min 5 s"]);
    expect(range("1.0 %", "2.0 %")).toBe("1.0–2.0 %");
    expect(range("1.00K", "2.00M")).toBe("1.00K–2.00M");
  });
  test("of remedies have no folders", () => {
    expect(shortRemedy("prefetch of /home/me/a b/x.c:3")).toBe("prefetch of x.c:3");
    expect(shortRemedy("split of particles (struct p)")).toBe("split of particles (struct p)");
  });
  test("that are none are unknown", () => {
    for (const v of [undefined, null, "5", Number.NaN, Number.POSITIVE_INFINITY, [], {}]) expect(num(v)).toBeNull();
    expect(estimate({ F: 5 }, "F")).toEqual({ value: null, lo: 5, hi: null, vague: false });
    expect(estimate({ F_hat: 5, F_lo: 4, F_hi: null, F_undersampled: true }, "F")).toEqual({ value: 5, lo: 4, hi: null, vague: true });
    expect(triple([1, 2, 3])).toEqual({ lo: 1, value: 2, hi: 3 });
    expect(triple("x")).toBeNull();
  });
});

test("shares of loads are as far off as the loads are", () => {
  const row = { A_pct: 74, A_lo: 30, A_hi: 33 };
  expect(share(row, "A_pct", false, 40)).toEqual({ value: 74, lo: 74, hi: 82.5, vague: false });
  expect(share({ ...row, A_lo: 28 }, "A_pct", false, 40)).toEqual({ value: 74, lo: 70, hi: 82.5, vague: false });
  expect(share({ A_pct: 74 }, "A_pct", false, 40)).toEqual({ value: 74, lo: 0, hi: null, vague: true });
  expect(share(row, "A_pct", true, 40)).toEqual({ value: null, lo: 74, hi: null, vague: false });
  expect(share({ time_pct: 5, time_pct_lo: 4, time_pct_hi: 7 }, "time_pct", false, null)).toEqual({ value: 5, lo: 4, hi: 7, vague: false });
});

test("long names are cut in the middle, template arguments first", () => {
  expect(short("std::map<int, std::vector<long>, std::less<int>>::find(int const&)", 40)).toBe("std::map<…>::find(int const&)");
  expect(short("std::map<int, std::vector<long>, std::less<int>>::find(int const&)", 20)).toBe("std::map<…>::find");
  expect(short("void std::shuffle<__gnu_cxx::__normal_iterator<int*>, std::mt19937&>(int, int)", 24)).toBe("std::shuffle<…>");
  expect(short("std::mersenne_twister_engine<unsigned long, 32ul>::_M_gen_rand()", 24)).toBe("…::_M_gen_rand");
  expect(short("build(unsigned long, char const*) list.cpp:27 (struct node)", 36)).toBe("build list.cpp:27 (struct node)");
  expect(short("x".repeat(100), 21)).toHaveLength(21);
  expect(short("operator<(very, long, argument, list, indeed)", 20)).toBe("operator<");
  expect(base("/usr/lib/libc.so.6")).toBe("libc.so.6");
  expect(base("a / b")).toBe("a / b");
});

test("an address and a selection are the same thing", () => {
  const place = { view: "code" as const, selection: { fn: "a&b=c?#<x>", file: "/s r/c.c", line: "3" } };
  expect(parse(write(place))).toEqual(place);
  expect(parse("#nonsense?fn=x&evil=1")).toEqual({ view: "overview", selection: { fn: "x" } });
  expect(parse("")).toEqual({ view: "overview", selection: {} });
});

test("tables bear what is not there", () => {
  const t = new Table({ rows: 3, columns: { a: [3, null, 1], b: ["x"], c: 7 } });
  expect(t.num("a", 1)).toBeNull();
  expect(t.str("b", 2)).toBe("");
  expect(t.has("c")).toBe(false);
  expect(t.find((i) => t.num("a", i) === 1)).toBe(2);
  expect(new Table("x").rows).toBe(0);
  expect(sorted([0, 1, 2], (i) => t.num("a", i), true)).toEqual([0, 2, 1]);
  expect(sorted([0, 1, 2], (i) => t.num("a", i), false)).toEqual([2, 0, 1]);
});

test("CSV quotes, and has no formulas", () => {
  expect(csv(["a", "b"], [["x,\"y\"", 1], ["=cmd()", null]])).toBe("a,b\n\"x,\"\"y\"\"\",1\n'=cmd(),\n");
});

test("colours are within the map", () => {
  expect(heat(-1).rgb).toEqual([0, 34, 78]);
  expect(heat(2).rgb).toEqual([254, 232, 56]);
  expect(heat(Number.NaN).rgb).toEqual([0, 34, 78]);
  // Text on any of them has the contrast that WCAG AA asks for.
  const part = (c: number): number => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  for (let i = 0; i <= 100; i++) {
    const { rgb, ink } = heat(i / 100);
    const l = 0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2]);
    expect(ink === "#000" ? (l + 0.05) / 0.05 : 1.05 / (l + 0.05)).toBeGreaterThan(4.5);
  }
});

test("misses of a cache lie between hits and misses of all first touches", () => {
  const bins = [{ from: 0, to: 0, count: 60 }, { from: 1, to: 1, count: 20 }, { from: 2, to: 3, count: 10 }];
  const sampled = missRatio(bins, 10, 64, false);
  expect(sampled.slice(0, 3)).toEqual([{ x: 64, y: 35, lo: 30, hi: 40 }, { x: 128, y: 15, lo: 10, hi: 20 }, { x: 256, y: 5, lo: 0, hi: 10 }]);
  expect(missRatio(bins, 10, 64, true)[2]).toEqual({ x: 256, y: 10, lo: 10, hi: 10 });
  expect(missRatio([], 0, 64, true)).toEqual([]);
});

test("base64 is read with and without the browser's own", () => {
  expect([...bytesOf("AQID/w==")]).toEqual([1, 2, 3, 255]);
});

test("definitions are those of the documentation", () => {
  const page = "| key | symbol | unit | Meaning |\n|---|---|---|---|\n| `A`, `B` | a, b | loads | One \\| two. |\n| `F` of `w` | – | x | Mean. |\n\n| other | x |\n|---|---|\n| `Z` | 1 |\n";
  const found = readDefinitions(page);
  expect(Object.keys(found)).toEqual(["A", "B", "w.F"]);
  expect(found["B"]).toMatchObject({ symbol: "b", unit: "loads", meaning: "One | two." });
  for (const key of ["A", "A_pct", "time_pct", "F_64", "line_bytes", "D_mean", "first_pct", "dF_irr_pct", "rho"]) expect(definitions[key]?.meaning, key).toMatch(/\.$/);
});

test("source has the lines that it had", () => {
  const text = "int f() {\n  return \"a\"; // <b>\n}\n\n/* two\nlines */";
  for (const file of ["a.c", "a.rs", "a.py", "a.f90"]) {
    const lines = coloured(file, text).map((pieces) => pieces.map((p) => p.text).join(""));
    expect(lines, file).toEqual(text.split("\n"));
  }
});

test("regions lie side by side inside the one around them", () => {
  const root = layout({ A: 10, id: "", children: [{ A: 6, id: "0", children: [] }, { A: 4, id: "1", children: [{ A: 99, id: "1.0" }] }] });
  expect(root.children.map((c) => [c.x, c.w])).toEqual([[0, 0.6], [0.6, 0.4]]);
  expect(root.children[1]?.children[0]?.w).toBeCloseTo(0.4);
});

test("texts of the analysis become sentences", () => {
  expect(sentence("nothing: no code loses 2 %")).toBe("Nothing: no code loses 2 %.");
  expect(sentence("8 of each element's 64 bytes")).toBe("8 of each element's 64 bytes.");
  expect(sentence("x2_y is a name")).toBe("x2_y is a name.");
  expect(sentence("")).toBe("");
});

test("data without a name want the blocks of the heap, unless these are known", () => {
  const of = (rows: { object: string; stack: string[] }[], impossible?: string): Model => ({ trace: { heap_impossible: impossible }, tables: { objects: new Table({ columns: { object: rows.map((r) => r.object), stack: rows.map((r) => r.stack) }, rows: rows.length }) } }) as unknown as Model;
  const plain = of([{ object: "0x7f00 (1 MiB)", stack: [] }]);
  expect([wantsHeap(plain, "0x7f00 (1 MiB)"), wantsHeap(plain, "[heap]"), wantsHeap(plain, "nodes")]).toEqual([true, true, false]);
  expect(wantsHeap(of([{ object: "build", stack: ["build at a.c:3"] }]), "0x7f00 (1 MiB)")).toBe(false);
  expect(wantsHeap(of([]), "[heap]")).toBe(false);
  expect(wantsHeap(of([{ object: "[heap]", stack: [] }], "static program"), "[heap]")).toBe(false);
});
