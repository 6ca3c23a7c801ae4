// Lines of Python: where windows began, a row for each.
import { DataTable, type Column } from "../components/data-table.tsx";
import { Interval } from "../components/interval.tsx";
import { placeOf, shareKey, shareWord, type Model } from "../data/model.ts";
import { num, objs, str, type Obj } from "../data/values.ts";
import { bytes, count, percent, short } from "../format.ts";
import { go, place } from "../state.ts";
import { shareOf } from "./common.tsx";

/** The rows of lines in which windows began. */
export function pythonLines(m: Model): Obj[] {
  return objs(m.python["lines"]).filter((row) => (num(row["windows"]) ?? 0) > 0);
}

export function PythonLines({ m }: { m: Model }) {
  const s = place.value.selection;
  const rows = pythonLines(m);
  const row = (i: number): Obj => rows[i] ?? {};
  const text = (i: number, key: string): string => str(row(i)[key]);
  const columns: Column[] = [
    { key: "line", head: "line", tip: "The line of the innermost Python frame.", width: 150, left: true, value: (i) => `${text(i, "file")}:${num(row(i)["line"]) ?? 0}`, cell: (i) => <span title={text(i, "file")} style={{ opacity: row(i)["own"] === true ? 1 : 0.7 }}>{placeOf(text(i, "file"), num(row(i)["line"])) || "line not known"}</span> },
    { key: "function", head: "function", width: 130, left: true, value: (i) => text(i, "function"), cell: (i) => <span title={text(i, "function")}>{short(text(i, "function"), 32)}</span> },
    {
      key: shareKey(m),
      head: shareWord(m),
      tip: `Share of the ${shareWord(m)} of the windows that began in it, or in machine code that it called.`,
      width: 130,
      bar: true,
      value: (i) => num(row(i)[shareKey(m)]),
      cell: (i) => <Interval e={shareOf(m, row(i))} max={100} show={percent} />,
    },
    { key: "with_calls_pct", head: "with calls", tip: "The same with the Python functions that it called.", width: 70, value: (i) => num(row(i)["with_calls_pct"]), cell: (i) => percent(num(row(i)["with_calls_pct"])) },
    { key: "A", head: "A", tip: "Recorded loads of these windows.", width: 70, value: (i) => num(row(i)["A"]), cell: (i) => count(num(row(i)["A"])) },
    { key: "A_irr_pct", head: "irregular", tip: "Share of irregular loads among them.", width: 70, value: (i) => num(row(i)["A_irr_pct"]), cell: (i) => percent(num(row(i)["A_irr_pct"])) },
    { key: "F_64", head: "memory", tip: "Distinct lines of 64 bytes that these loads touched.", width: 80, value: (i) => num(row(i)["F_64"]), cell: (i) => (num(row(i)["F_64"]) === null ? "–" : bytes((num(row(i)["F_64"]) ?? 0) * 64)) },
    { key: "machine_function", head: "machine code", tip: "The function of machine code with the most of these loads.", width: 130, left: true, value: (i) => text(i, "machine_function"), cell: (i) => <span title={text(i, "machine_function")}>{short(text(i, "machine_function"), 32)}</span> },
  ];
  const pick = (i: number): void => go({ fn: text(i, "function") || undefined, mod: undefined, file: text(i, "file") || undefined, line: num(row(i)["line"]) ? String(num(row(i)["line"])) : undefined, loop: undefined, tab: "python" });
  const selected = rows.findIndex((r) => str(r["file"]) === s.file && String(num(r["line"])) === s.line);
  return (
    <>
      <p class="note">{(num(m.python["windows"]) ?? 0).toLocaleString("en")} windows began in Python. All loads of a window count for the line where it began.</p>
      <DataTable name="python lines" columns={columns} rows={rows.map((_, i) => i)} {...(selected >= 0 ? { selected } : {})} onSelect={pick} most={14} />
    </>
  );
}
