import { expect, test } from "vitest";
import { findObject, objectNames } from "../../src/data/object-names.ts";
import { tableOf } from "../../src/data/table.ts";

const table = tableOf([
  { object: "build a.c:5", type: "struct node" },
  { object: "build a.c:5", type: "struct leaf" },
  { object: "table", type: "int", module: "a" },
  { object: "table", type: "int", module: "b" },
  { object: "make b.c:1", type: "char", stack: ["make", "first"] },
  { object: "make b.c:1", type: "char", stack: ["make", "second"] },
  { object: "count", type: "int" },
  { object: "count", type: "int" },
  { object: "main c.c:9", type: "struct order" },
]);

test("names are distinct", () => {
  expect(objectNames(table)).toEqual([
    "build a.c:5 (struct node)",
    "build a.c:5 (struct leaf)",
    "table [a]",
    "table [b]",
    "make b.c:1 by first",
    "make b.c:1 by second",
    "count #1",
    "count #2",
    "main c.c:9",
  ]);
});

test("objects are found by the names of findings", () => {
  expect(findObject(table, "build a.c:5 (struct leaf)")).toBe(1);
  expect(findObject(table, "main c.c:9 (struct order)")).toBe(8);
  expect(findObject(table, "main c.c:9 (struct order) and 2 other objects")).toBe(8);
  expect(findObject(table, "main c.c:9")).toBe(8);
  expect(findObject(table, "table [b]")).toBe(3);
  expect(findObject(table, "nothing")).toBe(-1);
});
