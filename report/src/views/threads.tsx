// Threads and ranks beside each other.
import { DataTable, type Column } from "../components/data-table.tsx";
import { heat } from "../components/heat.ts";
import type { Model } from "../data/model.ts";
import { num, objs, type Obj } from "../data/values.ts";
import { tableOf, type Table } from "../data/table.ts";
import { count, short } from "../format.ts";
import { Only } from "../part.tsx";
import { go, place } from "../state.ts";
import { metricColumns, Panel } from "./common.tsx";

const WORDS: Record<string, string> = { process: "process", thread: "thread", rank: "rank", rows: "loads seen", samples: "windows", records_kept: "records kept", records_executed: "records made", A: "loads seen", A_pct: "share of loads", A_hat: "loads, estimated", F_64: "lines of 64 B", F_64_hat: "lines of 64 B, estimated", line_bytes: "bytes used of a line", dF: "growth", dF_irr_pct: "irregular part, %", first_pct: "first touches, %", D_mean: "D in window", time_pct: "share of time" };

export function Threads({ m }: { m: Model }) {
  // The analysis may have rows by thread; the recorder counts in any case.
  const measured = objs(m.run["threads"]);
  const rows = measured.length > 0 ? measured : objs(m.manifest["threads"]);
  if (rows.length === 0) return <Panel title="Do threads share the work evenly?"><p class="empty hatched">The trace names no threads: nothing of the program was recorded. Why stands in the view <a href="#quality">Data quality</a>.</p></Panel>;
  const t = tableOf(rows);
  const id = (key: string): Column => ({ key, head: WORDS[key] ?? key, tip: `System id of the ${key}.`, width: 90, value: (i) => t.num(key, i), cell: (i) => (t.num(key, i) === null ? "several" : String(t.num(key, i))) });
  const columns: Column[] = [id("process"), id("thread")];
  if (t.has("rank")) columns.unshift({ ...id("rank"), tip: "Rank in MPI_COMM_WORLD." });
  if (t.has("name")) columns.push({ key: "name", head: "name", tip: "Name of the thread, where it was recorded.", width: 150, left: true, value: (i) => t.str("name", i), cell: (i) => <span title={t.str("name", i)}>{short(t.str("name", i), 40)}</span> });
  if (measured.length > 0) columns.push(...metricColumns(m, t));
  else for (const key of ["rows", "samples", "records_kept", "records_executed"]) if (rows.some((r) => (num(r[key]) ?? 0) > 0)) columns.push({ key, head: WORDS[key] ?? key, tip: "Counted by the recorder.", width: 120, value: (i) => t.num(key, i), cell: (i) => count(t.num(key, i)) });
  const metrics = (measured.length > 0 ? ["time_pct", "A_pct", "A_hat", "A", "F_64_hat", "F_64", "line_bytes", "dF", "dF_irr_pct", "D_mean", "first_pct"] : ["rows", "samples", "records_kept", "records_executed"]).filter((k) => rows.some((r) => (num(r[k]) ?? 0) > 0));
  const chosen = place.value.selection.thread;
  const selected = rows.findIndex((r) => String(r["thread"]) === chosen);
  const processes = objs(m.run["processes"]);
  return (
    <div class="stack">
      <Panel title="Do threads share the work evenly?" note={rows.length === 1 ? "One thread was recorded: there is nothing to compare." : `${rows.length} threads were recorded. Imbalance is the greatest value over the mean: 1 is even.`}>
        <DataTable name="threads" columns={columns} rows={t.all()} {...(selected >= 0 ? { selected } : {})} onSelect={(i) => go({ thread: String(rows[i]?.["thread"] ?? "") || undefined })} most={12} />
      </Panel>
      {selected >= 0 && num(rows[selected]?.["thread"]) !== null && rows.length > 1 && <p class="above"><Only patch={{ only_thread: String(rows[selected]?.["thread"]), thread: undefined }}>Analyse thread {String(rows[selected]?.["thread"])} alone</Only></p>}
      {processes.length > 1 && (
        <Panel title="Which processes ran?">
          <DataTable name="processes" columns={processColumns(m, tableOf(processes))} rows={processes.map((_, i) => i)} most={8} />
        </Panel>
      )}
      {rows.length > 1 && <Balance rows={rows} metrics={metrics} />}
    </div>
  );
}

function processColumns(m: Model, t: Table): Column[] {
  return [
    { key: "process", head: "process", tip: "System id of the process.", width: 90, value: (i) => t.num("process", i), cell: (i) => String(t.num("process", i) ?? "–") },
    { key: "name", head: "name", tip: "Name of its first thread, where it was recorded.", width: 150, left: true, value: (i) => t.str("name", i), cell: (i) => <span title={t.str("name", i)}>{short(t.str("name", i), 40)}</span> },
    ...metricColumns(m, t),
  ];
}

function Balance({ rows, metrics }: { rows: Obj[]; metrics: string[] }) {
  const values = metrics.map((k) => rows.map((r) => num(r[k])));
  const known = (v: (number | null)[]): number[] => v.filter((x): x is number => x !== null).sort((a, b) => a - b);
  return (
    <Panel title="Which thread is unlike the others?">
      <div class="twin" tabindex={0} role="region" aria-label="Metrics by thread">
        <table class="matrix">
          <thead><tr><th class="left">metric</th><th>least</th><th>median</th><th>most</th><th>imbalance</th>{rows.slice(0, 64).map((r, i) => <th key={i}>{String(r["thread"] ?? i)}</th>)}</tr></thead>
          <tbody>
            {metrics.map((k, j) => {
              const v = known(values[j] ?? []);
              const mean = v.reduce((a, b) => a + b, 0) / Math.max(1, v.length);
              const most = v.at(-1) ?? 0;
              return (
                <tr key={k}>
                  <th scope="row" class="left">{WORDS[k] ?? k.replaceAll("_", " ")}</th>
                  <td>{count(v[0] ?? null)}</td>
                  <td>{count(v[Math.floor(v.length / 2)] ?? null)}</td>
                  <td>{count(most)}</td>
                  <td>{mean > 0 ? (most / mean).toFixed(2) : "–"}</td>
                  {(values[j] ?? []).slice(0, 64).map((x, i) => {
                    const h = heat(most > 0 ? (x ?? 0) / most : 0);
                    return <td key={i} style={x === null ? {} : { background: h.css, color: h.ink }}>{count(x)}</td>;
                  })}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
