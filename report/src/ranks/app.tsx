// Many ranks of one job: the ranks with the most work, the code and data of that work, and the
// outliers.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { DataTable, type Column } from "../components/data-table.tsx";
import { Frame } from "../components/frame.tsx";
import { csv } from "../components/csv.ts";
import { heat } from "../components/heat.ts";
import { Take } from "../components/picture.tsx";
import { Term } from "../components/tip.tsx";
import { tableOf } from "../data/table.ts";
import { greatest, list, num, obj, objs, str, strs, type Obj } from "../data/values.ts";
import { base, count, percent, seconds, short } from "../format.ts";
import { go, place } from "../state.ts";
import { Panel } from "../views/common.tsx";
import { pixels } from "../views/memory.tsx";
import { Ramp } from "../views/time.tsx";

const METRICS: [string, string, string, (x: number | null) => string][] = [
  ["loads", "loads", "Loads of the rank: executed ones where they are known, else recorded ones.", count],
  ["footprint", "footprint", "Distinct addresses that the rank touches.", count],
  ["distance_mean", "mean distance", "Mean reuse distance in windows, in blocks.", count],
  ["miss_ratio", "misses per load", "Predicted or counted misses of the last-level cache per load.", (x) => (x === null ? "–" : x.toPrecision(2))],
  ["cpu_seconds", "CPU time", "CPU time of the rank.", seconds],
  ["wall_seconds", "ran for", "Time from the rank's start to its end.", seconds],
];

const metric = (key: string): (typeof METRICS)[number] => METRICS.find(([k]) => k === key) ?? [key, key.replaceAll("_", " "), "", count];
/** Lines come as text or as numbers. */
const text = (v: unknown): string => (typeof v === "number" ? String(v) : str(v));
const nameOf = (row: Obj): string => (num(row["rank"]) === null ? str(row["trace"]) || "?" : `rank ${num(row["rank"])}`);
export const jobTitle = (j: Obj): string => `${num(obj(j["summary"])["ranks"]) ?? 0} ranks${num(obj(j["summary"])["world_size"]) === null ? "" : ` of ${num(obj(j["summary"])["world_size"])}`}`;

/** Least, median and greatest on one axis, with the mean. */
function Spread({ lo, mid, hi, mean, max, show }: { lo: number | null; mid: number | null; hi: number | null; mean: number | null; max: number; show: (x: number | null) => string }) {
  const at = (x: number | null): number => (x === null || max <= 0 ? 0 : Math.max(0, Math.min(100, (100 * x) / max)));
  return (
    <span class="interval" data-tip={`least ${show(lo)}, median ${show(mid)}, mean ${show(mean)}, greatest ${show(hi)}. The band goes from the least to the greatest, the thick line stands at the median, the thin one at the mean.`}>
      <span class="interval-text">{show(mid)}<small> {show(lo)} to {show(hi)}</small></span>
      <svg class="interval-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect x={at(lo)} y="1" width={Math.max(0.8, at(hi) - at(lo))} height="4" class="band" />
        {mean !== null && <rect x={at(mean) - 0.3} y="0" width="0.6" height="6" class="bar" />}
        <rect x={Math.max(0, at(mid) - 0.8)} y="0" width="1.6" height="6" class="tick" />
      </svg>
    </span>
  );
}

/** Greatest over mean: 1 is even. */
function Imbalance({ value }: { value: number | null }) {
  if (value === null) return <>–</>;
  const wide = Math.max(0, Math.min(100, (100 * Math.log2(Math.max(1, value))) / 4));
  return (
    <span class="interval" data-tip={`The greatest is ${value.toFixed(2)} times the mean; 1 is even. Where all ranks wait for the slowest, ${percent(100 * (1 - 1 / Math.max(1, value)))} of their time is waiting.`}>
      <span class="interval-text">{value.toFixed(2)}</span>
      <svg class="interval-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect y="1" width={wide} height="4" class={value >= 1.1 ? "c-irregular" : "bar"} /></svg>
    </span>
  );
}

function Overview({ j }: { j: Obj }) {
  const s = obj(j["summary"]);
  const findings = objs(j["findings"]);
  const metrics = objs(j["metrics"]);
  const gaps = objs(j["gaps"]);
  const value = num(s["imbalance"]);
  const said = strs(j["warnings"]);
  return (
    <div class="stack">
      <section class="run-card">
        <h1>{jobTitle(j)}</h1>
        <dl>
          <div><dt>Loads of all ranks</dt><dd>{count(num(s["loads"]))}</dd></div>
          <div><dt><Term text="Loads of the busiest rank over those of the mean rank. 1 is even.">Imbalance of the loads</Term></dt><dd><Imbalance value={value} /></dd></div>
          <div><dt>Ranks without a result</dt><dd>{gaps.length === 0 && !s["missing_ranks"] ? "none" : <a href="#gaps">{str(s["missing_ranks"]) ? `${/^\d+$/.test(str(s["missing_ranks"])) ? "rank" : "ranks"} ${short(str(s["missing_ranks"]), 40)}` : gaps.length}</a>}</dd></div>
          <div><dt>Groups of alike ranks</dt><dd><a href="#ranks">{objs(j["clusters"]).length}</a></dd></div>
        </dl>
        {said.length > 0 && <p class="doubts"><strong>Not all is there:</strong> {short(said[0] ?? "", 220)} <a href="#gaps">{said.length > 1 ? `and ${said.length - 1} more` : "details"}</a></p>}
      </section>
      <Panel title="What is slow, and in which ranks?">
        {findings.length === 0 ? (
          <p class="empty">Nothing stands out: the ranks are even, and no rank has a finding.</p>
        ) : (
          <ol class="findings">
            {findings.slice(0, 6).map((v, i) => (
              <li class="finding-card" key={i}>
                <div class="finding-head"><span class="rank">{i + 1}</span><h3>{str(v["title"])}</h3></div>
                <p class="where">
                  {str(v["function"]) && <a href="#code" onClick={(e) => { e.preventDefault(); go({ fn: str(v["function"]), tab: undefined }, "code"); }}>{short(str(v["function"]), 60)}</a>}
                  {str(v["file"]) && ` ${base(str(v["file"]))}:${text(v["line"])}`} {str(v["object"]) && <>on <code>{short(base(str(v["object"])), 50)}</code></>}
                </p>
                <div class="evidence">
                  <span><small>in ranks</small>{count(num(v["ranks"]))}</span>
                  <span><small>most in</small>{str(v["rank"]) || "–"}</span>
                  <span><small>{str(v["kind"]) === "imbalance" ? "of the time of all ranks" : "there up to"}</small>{percent(num(v["score_max_pct"]))}</span>
                </div>
                <p class="finding">{str(v["finding"])}</p>
                {str(v["advice"]) && <p class="try"><strong>Try:</strong> {str(v["advice"])}</p>}
              </li>
            ))}
          </ol>
        )}
      </Panel>
      <Panel title="How unlike are the ranks?" note="Least, median and greatest of all ranks. Imbalance is the greatest value over the mean.">
        <DataTable
          name="metrics" rows={metrics.map((_, i) => i)} most={8}
          columns={[
            { key: "metric", head: "metric", width: 130, left: true, value: (i) => str(metrics[i]?.["metric"]), cell: (i) => <span data-tip={metric(str(metrics[i]?.["metric"]))[2]}>{metric(str(metrics[i]?.["metric"]))[1]}</span> },
            { key: "median", head: "least, median, greatest", tip: "The band goes from the least to the greatest; the thick line stands at the median.", width: 260, bar: true, value: (i) => num(metrics[i]?.["median"]), cell: (i) => { const r = metrics[i] ?? {}; return <Spread lo={num(r["min"])} mid={num(r["median"])} hi={num(r["max"])} mean={num(r["mean"])} max={num(r["max"]) ?? 1} show={metric(str(r["metric"]))[3]} />; } },
            { key: "imbalance", head: "imbalance", tip: "Greatest over mean: 1 is even.", width: 120, bar: true, value: (i) => num(metrics[i]?.["imbalance"]), cell: (i) => <Imbalance value={num(metrics[i]?.["imbalance"])} /> },
            { key: "min_rank", head: "least in", tip: "The rank with the least.", width: 100, left: true, value: (i) => str(metrics[i]?.["min_rank"]) },
            { key: "max_rank", head: "greatest in", tip: "The rank with the greatest.", width: 100, left: true, value: (i) => str(metrics[i]?.["max_rank"]) },
            { key: "ranks", head: "ranks", tip: "Ranks that know this number.", width: 70, value: (i) => num(metrics[i]?.["ranks"]) },
          ]}
        />
      </Panel>
    </div>
  );
}

/** Rows that ranks have, such as functions: how they are spread. */
function spreadColumns(rows: Obj[], all: number): Column[] {
  const row = (i: number): Obj => rows[i] ?? {};
  const most = greatest(rows.map((r) => num(r["loads_max"])), 1);
  return [
    { key: "loads_median", head: "loads: least, median, greatest", tip: "Loads of a rank in this row: the band goes from the least to the greatest, the thick line stands at the median.", width: 240, bar: true, value: (i) => num(row(i)["loads_max"]), cell: (i) => <Spread lo={num(row(i)["loads_min"])} mid={num(row(i)["loads_median"])} hi={num(row(i)["loads_max"])} mean={num(row(i)["loads_mean"])} max={most} show={count} /> },
    { key: "imbalance", head: "imbalance", tip: "Loads of the busiest rank over those of the mean rank.", width: 110, bar: true, value: (i) => num(row(i)["imbalance"]), cell: (i) => <Imbalance value={num(row(i)["imbalance"])} /> },
    { key: "max_rank", head: "greatest in", tip: "The rank with the most loads.", width: 90, left: true, value: (i) => str(row(i)["max_rank"]) },
    { key: "ranks", head: "in ranks", tip: `Ranks that have the row, of ${all}.`, width: 70, value: (i) => num(row(i)["ranks"]) },
    { key: "footprint_median", head: "footprint", tip: "Distinct addresses: median over ranks, and the greatest.", width: 110, value: (i) => num(row(i)["footprint_median"]), cell: (i) => `${count(num(row(i)["footprint_median"]))} / ${count(num(row(i)["footprint_max"]))}` },
    { key: "distance_median", head: "D", tip: "Mean reuse distance in windows: median over ranks, and the greatest.", width: 100, value: (i) => num(row(i)["distance_median"]), cell: (i) => `${count(num(row(i)["distance_median"]))} / ${count(num(row(i)["distance_max"]))}` },
  ];
}

function Code({ j, all }: { j: Obj; all: number }) {
  const s = place.value.selection;
  const tab = s.tab === "lines" ? "lines" : "functions";
  const every = objs(j[tab]);
  const rows = tab === "lines" && s.fn ? every.filter((r) => r["function"] === s.fn) : every;
  const shown = rows.length > 0 ? rows : every;
  const selected = tab === "functions" && s.fn ? shown.findIndex((r) => r["function"] === s.fn) : -1;
  const columns = useMemo(() => {
    const where: Column = tab === "lines"
      ? { key: "line", head: "line", tip: "A line of source.", width: 160, left: true, value: (i) => `${str(shown[i]?.["file"])}:${text(shown[i]?.["line"])}`, cell: (i) => <span title={str(shown[i]?.["file"])}>{str(shown[i]?.["file"]) ? `${base(str(shown[i]?.["file"]))}:${text(shown[i]?.["line"])}` : "line not known"}</span> }
      : { key: "module", head: "module", tip: "File of the code.", width: 110, left: true, value: (i) => str(shown[i]?.["module"]) };
    const fn: Column = { key: "function", head: "function", width: 200, left: true, value: (i) => str(shown[i]?.["function"]), cell: (i) => <span title={str(shown[i]?.["function"])}>{short(str(shown[i]?.["function"]), 46)}</span> };
    return [fn, where, ...spreadColumns(shown, all)];
  }, [shown.length, tab, s.fn]);
  return (
    <Panel title="Which code differs over ranks?" note="Most loads of one rank first. Click a function: its lines.">
      <div class="tabs" role="group" aria-label="Kind of rows">
        <button type="button" aria-pressed={tab === "functions"} onClick={() => go({ tab: "functions" })}>functions ({objs(j["functions"]).length})</button>
        <button type="button" aria-pressed={tab === "lines"} onClick={() => go({ tab: "lines" })}>lines ({objs(j["lines"]).length})</button>
        {tab === "lines" && s.fn && <button type="button" class="small" onClick={() => go({ fn: undefined })}>of all functions</button>}
      </div>
      <DataTable key={`${tab} ${s.fn ?? ""}`} name={`${tab} over ranks`} columns={columns} rows={shown.map((_, i) => i)} most={16} {...(selected >= 0 ? { selected } : {})} onSelect={(i) => go(tab === "functions" ? { fn: str(shown[i]?.["function"]), tab: "lines" } : { fn: str(shown[i]?.["function"]) })} />
    </Panel>
  );
}

function Data({ j, all }: { j: Obj; all: number }) {
  const rows = objs(j["objects"]);
  if (rows.length === 0) return <Panel title="Which data differ over ranks?"><p class="empty hatched">No trace knows objects. Globals and stacks come with every recording of this version; blocks of the heap with <code>mgz-record --heap</code>.</p></Panel>;
  const names: Column[] = [
    { key: "object", head: "object", width: 220, left: true, value: (i) => str(rows[i]?.["object"]), cell: (i) => <span title={str(rows[i]?.["object"])}>{short(base(str(rows[i]?.["object"])), 50)}</span> },
    { key: "kind", head: "kind", tip: "global, heap, stack, thread-local, file, anonymous or unknown.", width: 90, left: true, value: (i) => str(rows[i]?.["kind"]) },
  ];
  return (
    <div class="stack">
      <Panel title="Which data differ over ranks?" note="Most loads of one rank first.">
        <DataTable name="objects over ranks" columns={[...names, ...spreadColumns(rows, all)]} rows={rows.map((_, i) => i)} most={12} />
      </Panel>
      <Heat j={j} />
    </div>
  );
}

/** Loads by object and part of the run, of all ranks. */
function Heat({ j }: { j: Obj }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = objs(j["heat_map"]);
  const labels = [...new Set(rows.map((r) => str(r["label"])))];
  const columns = greatest(rows.map((r) => num(r["column"])), -1) + 1;
  const cells = labels.map(() => Array.from({ length: columns }, (): number | null => null));
  for (const r of rows) {
    const line = cells[labels.indexOf(str(r["label"]))];
    if (line) line[num(r["column"]) ?? 0] = num(r["loads"]);
  }
  const most = greatest(cells.flat(), 1);
  useEffect(() => {
    const to = canvas.current?.getContext("2d");
    if (!canvas.current || !to || columns < 1) return;
    canvas.current.width = columns;
    canvas.current.height = labels.length;
    to.putImageData(pixels(cells.map((r) => r.map((v) => (v === null ? null : Math.log1p(v) / Math.log1p(most)))), columns), 0, 0);
  }, [j]);
  if (columns < 1) return null;
  return (
    <Panel title="When do ranks load which data?" note="Columns are equal parts of each rank's run.">
      <div class="heat-map">
        <div class="heat-labels">{labels.map((l) => <span key={l} title={l}>{short(base(l), 34)}</span>)}</div>
        <canvas ref={canvas} role="img" aria-label="Heat map of data in time; copy it as CSV for its numbers." style={{ height: `${28 * labels.length}px` }} />
      </div>
      <p class="key"><Ramp /> loads, 0 to {count(most)} (logarithmic); grey: none. <Take name="ranks-heat-map" canvas={canvas} table={() => csv(["label", ...Array.from({ length: columns }, (_, i) => String(i))], labels.map((l, i) => [l, ...(cells[i] ?? [])]))} /></p>
    </Panel>
  );
}

function Ranks({ j }: { j: Obj }) {
  const rows = objs(j["ranks"]);
  const clusters = objs(j["clusters"]);
  const outliers = objs(j["outliers"]);
  const known = METRICS.filter(([k]) => rows.some((r) => num(r[k]) !== null));
  const most = new Map(known.map(([k]) => [k, greatest(rows.map((r) => num(r[k])), 1e-300)]));
  const wanted = place.value.selection.thread;
  const selected = rows.findIndex((r) => nameOf(r) === wanted);
  const t = tableOf(rows);
  const columns: Column[] = [
    { key: "rank", head: "rank", tip: "Number of the rank in the job.", width: 80, left: true, value: (i) => num(rows[i]?.["rank"]) ?? str(rows[i]?.["trace"]), cell: (i) => nameOf(rows[i] ?? {}) },
    { key: "host", head: "host", tip: "The machine it ran on.", width: 110, left: true, value: (i) => t.str("host", i) },
    ...known.map(([k, name, tip, show]): Column => ({
      key: k, head: name, tip, width: 110, value: (i) => t.num(k, i),
      cell: (i) => { const v = t.num(k, i); const h = heat((v ?? 0) / (most.get(k) ?? 1)); return v === null ? "–" : <span class="heat-cell" style={{ background: h.css, color: h.ink }}>{show(v)}</span>; },
    })),
    { key: "cluster", head: "group", tip: "Ranks of one group do alike things.", width: 64, value: (i) => t.num("cluster", i), cell: (i) => String(t.num("cluster", i) ?? "–") },
    { key: "program", head: "ended", tip: "How the program ended, and the state of its trace.", width: 130, left: true, value: (i) => t.str("program", i), cell: (i) => [t.str("program", i), t.str("state", i) === "complete" ? "" : t.str("state", i)].filter(Boolean).join(", ") },
    { key: "trace", head: "trace", tip: "Name of the trace's folder.", width: 110, left: true, value: (i) => t.str("trace", i) },
  ];
  return (
    <div class="stack">
      <Matrix rows={rows} known={known} most={most} selected={selected} />
      <Panel title="Which rank is greatest in what?" note="The nearer to yellow, the nearer to the greatest of the column. Click a head to sort.">
        <DataTable name="ranks" columns={columns} rows={rows.map((_, i) => i)} most={14} {...(selected >= 0 ? { selected } : {})} onSelect={(i) => go({ thread: nameOf(rows[i] ?? {}) })} />
      </Panel>
      <div class="grid2">
        <Panel title="Which ranks are unlike the others?" note="Ranks whose value is far from the median of all.">
          {outliers.length === 0 ? <p class="empty">No rank is far from the others in any metric.</p> : (
            <div class="twin" tabindex={0} role="region" aria-label="Outliers">
              <table>
                <thead><tr><th class="left">rank</th><th class="left">host</th><th class="left">metric</th><th>value</th><th>median</th><th>times the median</th></tr></thead>
                <tbody>{outliers.slice(0, 200).map((o, i) => { const [, name, , show] = metric(str(o["metric"])); return <tr key={i}><td class="left"><button type="button" class="link" onClick={() => go({ thread: str(o["rank"]) })}>{str(o["rank"])}</button></td><td class="left">{str(o["host"])}</td><td class="left">{name}</td><td>{show(num(o["value"]))}</td><td>{show(num(o["median"]))}</td><td>{num(o["times"])?.toFixed(2) ?? "–"}</td></tr>; })}</tbody>
              </table>
            </div>
          )}
        </Panel>
        <Panel title="Which ranks are alike?" note="Ranks that spend their loads on the same functions in like amounts; medians of each group.">
          <div class="twin" tabindex={0} role="region" aria-label="Groups">
            <table>
              <thead><tr><th>group</th><th>ranks</th><th class="left">members</th>{METRICS.filter(([k]) => clusters.some((c) => num(c[k]) !== null)).map(([k, name]) => <th key={k}>{name}</th>)}</tr></thead>
              <tbody>{clusters.map((c, i) => <tr key={i}><td>{num(c["cluster"])}</td><td>{num(c["size"])}</td><td class="left" title={str(c["members"])}>{short(str(c["members"]), 50)}</td>{METRICS.filter(([k]) => clusters.some((x) => num(x[k]) !== null)).map(([k, , , show]) => <td key={k}>{show(num(c[k]))}</td>)}</tr>)}</tbody>
            </table>
          </div>
        </Panel>
      </div>
    </div>
  );
}

/** All ranks from left to right, metrics one above the other. */
function Matrix({ rows, known, most, selected }: { rows: Obj[]; known: typeof METRICS; most: Map<string, number>; selected: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [near, setNear] = useState<[number, number] | null>(null);
  const cells = known.map(([k]) => rows.map((r) => num(r[k])));
  useEffect(() => {
    const to = canvas.current?.getContext("2d");
    if (!canvas.current || !to || rows.length === 0) return;
    canvas.current.width = rows.length;
    canvas.current.height = Math.max(1, known.length);
    to.putImageData(pixels(cells.map((line, i) => line.map((v) => (v === null ? null : v / (most.get(known[i]?.[0] ?? "") ?? 1)))), rows.length), 0, 0);
  }, [rows]);
  if (rows.length === 0 || known.length === 0) return null;
  const at = (e: MouseEvent): [number, number] => {
    const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
    return [Math.max(0, Math.min(rows.length - 1, Math.floor(((e.clientX - box.left) * rows.length) / box.width))), Math.max(0, Math.min(known.length - 1, Math.floor(((e.clientY - box.top) * known.length) / box.height)))];
  };
  const said = near ? `${nameOf(rows[near[0]] ?? {})}: ${known[near[1]]?.[1]} ${known[near[1]]?.[3](cells[near[1]]?.[near[0]] ?? null)}` : selected >= 0 ? `selected: ${nameOf(rows[selected] ?? {})}` : "";
  return (
    <Panel title="How do ranks compare, metric by metric?" note="From left to right all ranks, in the order of the table below; each row on a scale of its own.">
      <div class="heat-map">
        <div class="heat-labels">{known.map(([k, name]) => <span key={k}>{name}</span>)}</div>
        <canvas ref={canvas} role="img" aria-label="Heat map of ranks by metrics; the table below has its numbers." style={{ height: `${28 * known.length}px` }} onMouseMove={(e) => setNear(at(e))} onMouseLeave={() => setNear(null)} onClick={(e) => go({ thread: nameOf(rows[at(e)[0]] ?? {}) })} />
      </div>
      <p class="key"><Ramp /> 0 to the greatest; grey: not known. <Take name="ranks" canvas={canvas} /> {said}</p>
    </Panel>
  );
}

function Gaps({ j }: { j: Obj }) {
  const gaps = objs(j["gaps"]);
  const said = strs(j["warnings"]);
  return (
    <div class="stack">
      <Panel title="Which ranks have no result?">
        {gaps.length === 0 ? <p class="empty">Every input has a result.</p> : <ul class="said">{gaps.map((g, i) => <li key={i}><code>{str(g["input"])}</code>: {str(g["why"])}</li>)}</ul>}
        {str(obj(j["summary"])["missing_ranks"]) && <p>Of the job's {num(obj(j["summary"])["world_size"])} ranks these are not here: {str(obj(j["summary"])["missing_ranks"])}.</p>}
      </Panel>
      <Panel title="What is doubtful about the traces?">
        {said.length === 0 ? <p class="empty">Nothing.</p> : <ul class="said">{said.map((s, i) => <li key={i}>{s}</li>)}</ul>}
      </Panel>
    </div>
  );
}

export function Job({ j }: { j: Obj }) {
  const all = num(obj(j["summary"])["ranks"]) ?? list(j["ranks"]).length;
  const views = {
    spread: { name: "Overview", show: () => <Overview j={j} /> },
    code: { name: "Code", show: () => <Code j={j} all={all} /> },
    data: { name: "Data", show: () => <Data j={j} all={all} /> },
    ranks: { name: "Ranks", show: () => <Ranks j={j} /> },
    gaps: { name: "Data quality", show: () => <Gaps j={j} /> },
  };
  return <Frame views={views} title={jobTitle(j)} first="spread" />;
}
