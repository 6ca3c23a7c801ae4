// By way of whom windows began: the tree of calls, a row for each.
import { DataTable, type Column } from "../components/data-table.tsx";
import { Interval } from "../components/interval.tsx";
import { placeOf, shareKey, shareWord, type Model } from "../data/model.ts";
import { num, objs, str } from "../data/values.ts";
import { bytes, count, percent, short } from "../format.ts";
import { go, place } from "../state.ts";
import { shareOf } from "./common.tsx";

/** Pixels that a call is indented below its caller, and the deepest that is. */
const STEP = 10;
const DEEPEST = 20;

export function CallPaths({ m }: { m: Model }) {
  const s = place.value.selection;
  const rows = objs(m.paths["calls"]);
  if (rows.length === 0)
    return (
      <p class="empty hatched">
        {m.paths["state"] === "off"
          ? "Call paths are unknown: the trace was recorded with --no-stacks."
          : "Call paths are unknown: windows of burst and ring have them where the recorder looked at their stacks, and this trace tells of none."}
      </p>
    );
  const [whole, partial, unknown] = ["whole", "partial", "unknown"].map((key) => num(m.paths[key]) ?? 0) as [number, number, number];
  const row = (i: number) => rows[i] ?? {};
  const indent = (i: number): number => STEP * Math.min(DEEPEST, num(row(i)["depth"]) ?? 0);
  const columns: Column[] = [
    {
      key: "function",
      head: "function",
      tip: "A function as called by way of the rows that it is indented under. Recursion is one call.",
      width: 240,
      left: true,
      value: (i) => str(row(i)["function"]),
      cell: (i) => (
        <span title={`${str(row(i)["function"])} (${str(row(i)["module"])})`} style={{ paddingLeft: `${indent(i)}px`, opacity: row(i)["own"] === true ? 1 : 0.7 }}>
          {short(str(row(i)["function"]), 44)}
          {row(i)["inlined"] === true ? " (inlined)" : ""}
        </span>
      ),
    },
    { key: "called", head: "called at", tip: "The line of its caller that calls it.", width: 110, left: true, value: (i) => placeOf(str(row(i)["call_file"]), num(row(i)["call_line"])) },
    {
      key: shareKey(m),
      head: shareWord(m),
      tip: `Share of the ${shareWord(m)} of the windows that began in it or in what it called.`,
      width: 130,
      bar: true,
      value: (i) => num(row(i)[shareKey(m)]),
      cell: (i) => <Interval e={shareOf(m, row(i))} max={100} show={percent} />,
    },
    { key: "self_pct", head: "self", tip: "The same of those that began in it alone.", width: 60, value: (i) => num(row(i)["self_pct"]), cell: (i) => percent(num(row(i)["self_pct"])) },
    { key: "windows", head: "windows", tip: "Windows that began in it or in what it called.", width: 70, value: (i) => num(row(i)["windows"]) },
    { key: "A", head: "A", tip: "Their recorded loads.", width: 70, value: (i) => num(row(i)["A"]), cell: (i) => count(num(row(i)["A"])) },
    { key: "F_64", head: "memory", tip: "Distinct lines of 64 bytes that these loads touched.", width: 80, value: (i) => num(row(i)["F_64"]), cell: (i) => (num(row(i)["F_64"]) === null ? "–" : bytes((num(row(i)["F_64"]) ?? 0) * 64)) },
  ];
  const pick = (i: number): void => go({ fn: str(row(i)["function"]) || undefined, mod: undefined, file: str(row(i)["call_file"]) || undefined, line: num(row(i)["call_line"]) ? String(num(row(i)["call_line"])) : undefined, loop: undefined, tab: "paths" });
  const selected = rows.findIndex((r) => str(r["function"]) === s.fn && (!s.line || String(num(r["call_line"])) === s.line));
  return (
    <>
      <p class="note">
        {(whole + partial + unknown).toLocaleString("en")} windows: {whole.toLocaleString("en")} with all callers, {partial.toLocaleString("en")} with the inner ones, {unknown.toLocaleString("en")} unknown.
      </p>
      <DataTable name="call paths" columns={columns} rows={rows.map((_, i) => i)} {...(selected >= 0 ? { selected } : {})} onSelect={pick} most={14} />
    </>
  );
}
