// Source lines of functions.
import type { Table } from "./table.ts";
import { list, str } from "./values.ts";

/** Tells whether a line was inlined into a function: the last part of its chain is `caller at file:line`. */
function isInlinedInto(row: unknown, fn: string): boolean {
  return list(row).some((chain) => str(chain).split(" < ").pop()?.startsWith(`${fn} at `) === true);
}

/** The hottest line of a function that is known: its own, else one that was inlined into it; else -1. */
export function lineOf(lines: Table, fn: string): number {
  const own = lines.find((i) => lines.str("function", i) === fn && lines.str("file", i) !== "");
  return own >= 0 ? own : lines.find((i) => lines.str("file", i) !== "" && isInlinedInto(lines.value("inlined_into", i), fn));
}
