// Threads and ranks beside each other.
import { DataTable, type Column } from "../components/data-table.tsx";
import { heat } from "../components/heat.ts";
import type { Model } from "../data/model.ts";
import { num, objs, str, type Obj } from "../data/values.ts";
import { count } from "../format.ts";
import { go, place } from "../state.ts";
import { Panel } from "./common.tsx";

const WORDS: Record<string, string> = { process: "process", thread: "thread", rank: "rank", rows: "loads seen", samples: "windows", records_kept: "records kept", records_executed: "records made", A: "loads seen", F: "footprint, addresses", dF: "growth", D_mean: "D in window", time_pct: "share of time" };

export function Threads({ m }: { m: Model }) {
  // The analysis may have rows by thread; the recorder counts in any case.
  const rows = objs(m.run["threads"]).length > 0 ? objs(m.run["threads"]) : objs(m.manifest["threads"]);
  const keys = [...new Set(rows.flatMap((r) => Object.keys(r).filter((k) => num(r[k]) !== null || str(r[k]) !== "")))].filter((k) => rows.some((r) => num(r[k]) !== 0)).sort((a, b) => order(a) - order(b));
  const metrics = keys.filter((k) => !["process", "thread", "rank", "undersampled"].includes(k) && rows.some((r) => num(r[k]) !== null)).slice(0, 12);
  if (rows.length === 0) return <Panel title="Threads and ranks"><p class="empty">The trace names no threads.</p></Panel>;
  const columns: Column[] = keys.slice(0, 14).map((k) => ({ key: k, head: WORDS[k] ?? k.replaceAll("_", " "), width: 110, value: (i) => num(rows[i]?.[k]) ?? str(rows[i]?.[k]), cell: (i) => (k === "process" || k === "thread" ? String(rows[i]?.[k] ?? "–") : num(rows[i]?.[k]) === null ? str(rows[i]?.[k]) || "–" : count(num(rows[i]?.[k]))) }));
  const chosen = place.value.selection.thread;
  const selected = rows.findIndex((r) => String(r["thread"]) === chosen);
  return (
    <div class="stack">
      <Panel title="Threads and ranks" note={rows.length === 1 ? "One thread was recorded: there is nothing to compare." : `${rows.length} threads were recorded. Imbalance is the greatest value over the mean: 1 is even.`}>
        <DataTable name="threads" columns={columns} rows={rows.map((_, i) => i)} {...(selected >= 0 ? { selected } : {})} onSelect={(i) => go({ thread: String(rows[i]?.["thread"] ?? "") || undefined })} most={12} />
      </Panel>
      {rows.length > 1 && <Balance rows={rows} metrics={metrics} />}
    </div>
  );
}

const ORDER = ["rank", "process", "thread", "time_pct", "A", "rows", "samples"];
const order = (k: string): number => (ORDER.indexOf(k) + 100) % 100 || (ORDER.includes(k) ? 0 : 99);

function Balance({ rows, metrics }: { rows: Obj[]; metrics: string[] }) {
  const values = metrics.map((k) => rows.map((r) => num(r[k])));
  const known = (v: (number | null)[]): number[] => v.filter((x): x is number => x !== null).sort((a, b) => a - b);
  return (
    <Panel title="Balance">
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
