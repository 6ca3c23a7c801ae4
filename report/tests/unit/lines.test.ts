import { expect, test } from "vitest";
import { lineOf } from "../../src/data/lines.ts";
import { tableOf } from "../../src/data/table.ts";
import { codeName } from "../../src/format.ts";

const lines = tableOf([
  { function: "Table::find", file: "/s/table.h", line: 12, inlined_into: ["probe at /s/hash.cpp:7 < main at /s/hash.cpp:30", "run at /s/run.cpp:9"] },
  { function: "main", file: "", line: 0, inlined_into: [] },
  { function: "fill", file: "/s/hash.cpp", line: 20, inlined_into: [] },
]);

test("a function whose lines were all inlined from others has a line", () => {
  expect(lineOf(lines, "fill")).toBe(2);
  expect(lineOf(lines, "main")).toBe(0);
  expect(lineOf(lines, "run")).toBe(0);
  expect(lineOf(lines, "probe")).toBe(-1);
  expect(lineOf(lines, "other")).toBe(-1);
});

test("code without a name has its address and module", () => {
  expect(codeName("[0x19c490]", "/x/_multiarray_umath.cpython-311-x86_64-linux-gnu.so")).toBe("code at 0x19c490 of _multiarray_umath");
  expect(codeName("[0x4f0]", "")).toBe("code at 0x4f0");
  expect(codeName("inflate", "/lib/libz.so.1")).toBe("inflate");
});
