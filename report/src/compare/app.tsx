// A comparison of two builds: what is better, worse or the same, and where.
import { useState } from "preact/hooks";
import { Chart, Histogram, type Curve } from "../components/chart.tsx";
import { DataTable, type Column } from "../components/data-table.tsx";
import { Frame } from "../components/frame.tsx";
import { Marked } from "../components/marked.tsx";
import { missRatio } from "../data/curves.ts";
import { list, num, obj, objs, str, strs, type Obj } from "../data/values.ts";
import { bytes, count, percent, seconds, short } from "../format.ts";
import { go, place } from "../state.ts";
import { Panel } from "../views/common.tsx";
import { Change, metricName, Side, valueOf, verdictOf, Word, type Verdict } from "./change.tsx";
import { Lines } from "./lines.tsx";
import { distances } from "./merge.ts";
import { Tree } from "./tree.tsx";

const ORDER: Verdict[] = ["worse", "better", "unclear", "same"];

/** The last part of a path that tells two apart. */
const names = (paths: string[]): string => {
  const first = (paths[0] ?? "").replace(/\/trace\/?$/, "").split("/").filter(Boolean).pop() ?? "?";
  return paths.length > 1 ? `${first} and ${paths.length - 1} more` : first;
};

export const titleOf = (c: Obj): string => `${names(strs(c["base"]))} → ${names(strs(c["new"]))}`;

function columnsOf(withWhat: boolean): (rows: Obj[]) => Column[] {
  return (rows) => {
    const row = (i: number): Obj => rows[i] ?? {};
    return [
      ...(withWhat ? [{ key: "what", head: "what", tip: "A function, loop, line or object that both builds have.", width: 240, left: true, value: (i: number) => str(row(i)["what"]), cell: (i: number) => <span title={str(row(i)["what"])}>{short(str(row(i)["what"]), 60)}</span> }] : []),
      { key: "metric", head: "number", tip: "What is compared. All numbers are better if they are smaller.", width: 130, left: true, value: (i) => str(row(i)["metric"]), cell: (i) => <span data-tip={metricName(str(row(i)["metric"]))[1]}>{metricName(str(row(i)["metric"]))[0]}</span> },
      { key: "base", head: "base", tip: "The base, with its 95 % interval.", width: 170, bar: true, value: (i) => valueOf(row(i)["base"]), cell: (i) => <Side row={row(i)} side="base" /> },
      { key: "new", head: "new", tip: "The new build, with its 95 % interval, on the same scale.", width: 170, bar: true, value: (i) => valueOf(row(i)["new"]), cell: (i) => <Side row={row(i)} side="new" /> },
      { key: "change_pct", head: "change", tip: "Change in percent of the base, with its 95 % interval.", width: 190, bar: true, value: (i) => num(row(i)["change_pct"]), cell: (i) => <Change row={row(i)} /> },
      { key: "verdict", head: "verdict", tip: "Better or worse: not by chance, over all comparisons together. The same: within 10 %.", width: 130, left: true, value: (i) => ORDER.indexOf(verdictOf(row(i))), cell: (i) => <Word row={row(i)} /> },
      ...(withWhat ? [{ key: "weight", head: "weight", tip: "The greater share of time or loads of the two.", width: 66, value: (i: number) => num(row(i)["weight"]), cell: (i: number) => percent(num(row(i)["weight"])) }] : []),
    ];
  };
}

function Verdict_({ c }: { c: Obj }) {
  const changes = objs(c["changes"]);
  const news = changes.filter((r) => r["news"] === true);
  const tally = ORDER.map((v) => [v, changes.filter((r) => verdictOf(r) === v).length] as const);
  const sentences = strs(c["verdict"]);
  const run = changes.filter((r) => r["kind"] === "run");
  const gate = objs(c["gate"]).map((g) => ({ failed: g["failed"] === true, text: str(g["text"]) }));
  const said = [...strs(c["warnings"]), ...strs(c["remarks"])];
  const bad = news.filter((r) => verdictOf(r) === "worse").length;
  const good = news.filter((r) => verdictOf(r) === "better").length;
  const head = news.length === 0 ? "No change was found" : bad === 0 ? `${good} ${good === 1 ? "number is" : "numbers are"} better, none is worse` : good === 0 ? `${bad} ${bad === 1 ? "number is" : "numbers are"} worse, none is better` : `${good} better, ${bad} worse`;
  return (
    <div class="stack">
      <section class="run-card">
        <h1 title={titleOf(c)}>{short(titleOf(c), 110)}</h1>
        <p class={`headline ${bad > 0 ? "worse" : good > 0 ? "better" : ""}`}>{head}</p>
        <ul class="sentences">{sentences.map((s, i) => <li key={i}><Marked text={s} /></li>)}</ul>
        {gate.length > 0 && <ul class="gate" aria-label="Conditions">{gate.map((g, i) => <li key={i} class={g.failed ? "worse" : "better"}>{g.failed ? "✗" : "✓"} {g.text}</li>)}</ul>}
        <p class="note tally">{tally.map(([v, n]) => <span key={v}><Word row={{ verdict: v }} /> {n}</span>)}<span>of {changes.length} comparisons of {runsWord(c)}</span></p>
      </section>
      <Panel title="Is the run better?" note="Both builds with their 95 % intervals, on one scale a row. All numbers are better if they are smaller.">
        {run.length > 0 ? <DataTable name="run" columns={columnsOf(false)(run)} rows={run.map((_, i) => i)} most={12} /> : <p class="empty hatched">No number of the run is known on both sides.</p>}
      </Panel>
      <Panel title="What changed?" note="The most important first. Click a row to see it among all comparisons of its kind.">
        {news.length > 0 ? (
          <DataTable name="news" columns={columnsOf(true)(news)} rows={news.map((_, i) => i)} most={12} onSelect={(i) => go({ tab: str(news[i]?.["kind"]) || undefined }, "changes")} />
        ) : (
          <p class="empty">Nothing is better or worse beyond chance. What cannot be told stands in <a href="#changes">Changes</a>, with what each side knows.</p>
        )}
      </Panel>
      {said.length > 0 && <Panel title="What is doubtful about the runs?"><ul class="said">{said.map((s, i) => <li key={i}>{s}</li>)}</ul></Panel>}
    </div>
  );
}

function runsWord(c: Obj): string {
  const [a, b] = [strs(c["base"]).length, strs(c["new"]).length];
  return `${a} ${a === 1 ? "run" : "runs"} with ${b}`;
}

const KINDS: [string, string][] = [["function", "functions"], ["loop", "loops"], ["line", "lines"], ["object", "data"], ["run", "the run"]];

function Changes({ c }: { c: Obj }) {
  const changes = objs(c["changes"]);
  const s = place.value.selection;
  const kind = KINDS.find(([k]) => k === s.tab)?.[0] ?? KINDS.find(([k]) => changes.some((r) => r["kind"] === k))?.[0] ?? "run";
  const metrics = [...new Set(changes.filter((r) => r["kind"] === kind).map((r) => str(r["metric"])))];
  const metric = metrics.find((m) => m === s.metric);
  const rows = changes.filter((r) => r["kind"] === kind && (!metric || r["metric"] === metric));
  const [chosen, choose] = useState<{ kind: string; row: Obj } | null>(null);
  const hasLines = kind === "line" || kind === "loop";
  const at = Math.max(0, chosen?.kind === kind ? rows.indexOf(chosen.row) : 0);
  const line = hasLines ? rows[at] : undefined;
  return (
    <div class="stack">
    <Panel title="Which rows changed?" note="What both builds have, matched by name, inline chain and moved lines. First what changed, the most important first; then what cannot be told; then what is the same.">
      <div class="tabs" role="group" aria-label="Kind of rows">
        {KINDS.map(([k, name]) => <button type="button" key={k} aria-pressed={k === kind} onClick={() => go({ tab: k, metric: undefined })}>{name} ({changes.filter((r) => r["kind"] === k).length})</button>)}
      </div>
      <div class="tabs" role="group" aria-label="Number">
        <button type="button" aria-pressed={!metric} onClick={() => go({ metric: undefined })}>all numbers</button>
        {metrics.map((m) => <button type="button" key={m} aria-pressed={m === metric} onClick={() => go({ metric: m })}>{metricName(m)[0]}</button>)}
      </div>
      {rows.length > 0 ? <DataTable key={`${kind} ${metric ?? ""}`} name={`changes of ${kind}`} columns={columnsOf(kind !== "run")(rows)} rows={rows.map((_, i) => i)} most={hasLines ? 10 : 18} {...(hasLines ? { selected: at, onSelect: (i: number) => choose({ kind, row: rows[i] ?? {} }) } : {})} /> : <p class="empty hatched">Nothing of this kind has enough of the time or the loads on either side to be compared.</p>}
      <Alone c={c} />
    </Panel>
    {line && <Lines c={c} row={line} />}
    </div>
  );
}

/** Rows that only one side has. */
function Alone({ c }: { c: Obj }) {
  const lists = ([["only_base", "Only in the base"], ["only_new", "Only in the new build"]] as const).map(([key, title]) => [title, objs(c[key])] as const).filter(([, rows]) => rows.length > 0);
  if (lists.length === 0) return null;
  return (
    <div class="columns">
      {lists.map(([title, rows]) => (
        <section key={title}>
          <h3 class="minor">{title}</h3>
          <ul class="said">{rows.slice(0, 40).map((r, i) => <li key={i}>{str(r["kind"])} <code>{short(str(r["name"]), 80)}</code> ({percent(num(r["weight"]))})</li>)}</ul>
        </section>
      ))}
    </div>
  );
}

function Curves({ c }: { c: Obj }) {
  const pictures = obj(c["pictures"]);
  const sides = [objs(pictures["base"]), objs(pictures["new"])];
  const block = num(sides[0]?.[0]?.["block"]) ?? 64;
  const complete = sides.flat().every((p) => p["mode"] === "full");
  const [a, b] = sides.map(distances);
  const first = sides.map((side) => side.reduce((s, p) => s + (num(p["first_touches"]) ?? 0), 0));
  const sizes = objs(sides[1]?.[0]?.["caches"]).map((l) => ({ x: num(l["size"]) ?? 0, label: `L${num(l["level"]) ?? "?"}` })).filter((l) => l.x > 0);
  const ratio: Curve[] = [a, b].map((bins, i) => ({ name: i ? "new" : "base", cls: `k${i}`, points: missRatio(bins ?? [], first[i] ?? 0, block, complete).map((p) => (complete ? p : { ...p, y: p.hi })) }));
  const growth = (side: Obj[]): Curve["points"] => {
    const rows = objs(side[0]?.["growth"]);
    const use = rows.length > 0 ? rows : objs(side[0]?.["windows"]);
    const hat = rows.length > 0;
    return use.map((r) => ({ x: num(r["W"]) ?? 1, y: num(r[hat ? "F_hat" : "F"]), lo: hat ? num(r["F_lo"]) : null, hi: hat ? num(r["F_hi"]) : null })).filter((p) => p.y === null || p.y > 0);
  };
  const grown: Curve[] = sides.map((side, i) => ({ name: i ? "new" : "base", cls: `k${i}`, points: growth(side) }));
  return (
    <div class="grid2">
      <Panel title="How much else is loaded before a reuse?" note={`Distinct blocks of ${bytes(block)} between two uses of the same one${complete ? "" : ", inside windows"}, all runs of a side together.`}>
        <Histogram title="Reuses by distance" xName="distance in blocks" bins={a ?? []} over={b ?? []} names={["base", "new"]} marks={sizes.map((s) => ({ ...s, x: s.x / block }))} showX={count} />
      </Panel>
      <Panel title="Would a larger cache help?" note={complete ? "Of a fully associative cache with LRU, from all reuse distances." : "Upper bounds: first touches of a window count as misses, and the band reaches down to where all of them hit."}>
        <Chart title="Misses of both builds" xName="size of the cache" yName="misses" xLog xBinary curves={ratio} marks={sizes} showX={bytes} showY={percent} yMax={100} />
      </Panel>
      <Panel title="How fast does new memory come in?" note={`Distinct addresses of W consecutive loads, with 95 % intervals${sides.some((s) => s.length > 1) ? ", of the first run of each side" : ""}.`}>
        <Chart title="Footprint of W loads" xName="loads, W" yName="addresses" xLog yLog curves={grown} showX={count} showY={count} />
      </Panel>
    </div>
  );
}

function Runs({ c }: { c: Obj }) {
  const pictures = obj(c["pictures"]);
  const rows = (["base", "new"] as const).flatMap((side) => objs(pictures[side]).map((p) => ({ side, p })));
  return (
    <div class="stack">
      <Panel title="Which runs are compared?">
        <div class="twin" tabindex={0} role="region" aria-label="Runs">
          <table>
            <thead><tr><th class="left">side</th><th class="left">trace</th><th class="left">command</th><th class="left">started</th><th>ran for</th><th class="left">mode</th><th>windows</th></tr></thead>
            <tbody>
              {rows.map(({ side, p }, i) => (
                <tr key={i}>
                  <td class="left">{side}</td><td class="left" title={str(p["path"])}>{short(str(p["path"]), 60)}</td><td class="left" title={strs(p["command"]).join(" ")}>{short(strs(p["command"]).join(" "), 60)}</td>
                  <td class="left">{str(p["started"])}</td><td>{seconds(num(p["wall_seconds"]))}</td><td class="left">{str(p["mode"])}</td><td>{count(num(p["samples"]))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
      <Panel title="How was it decided?">
        <ul class="said">
          <li>{list(c["changes"]).length} comparisons; chance was to be excluded in {count(num(c["tests"]))} of them together: if nothing changed, the probability that any is called a change is at most 5 %.</li>
          {(["exact", "ranks", "intervals", "none"] as const).map((t) => [t, objs(c["changes"]).filter((r) => r["test"] === t).length] as const).filter(([, n]) => n > 0).map(([t, n]) => <li key={t}>{n} {HOW[t]}</li>)}
          {strs(c["remarks"]).map((s, i) => <li key={i}>{s}</li>)}
        </ul>
      </Panel>
    </div>
  );
}

const HOW = {
  exact: "were decided by exact numbers: every load was recorded or counted on both sides.",
  ranks: "were decided by the ranks of the runs (Mann and Whitney's U).",
  intervals: "were decided by the 95 % intervals of the traces, and by how much the runs of a side differ.",
  none: "could not be decided: a side has no interval for that number.",
} as const;

export function Compared({ c }: { c: Obj }) {
  const views = {
    verdict: { name: "Verdict", show: () => <Verdict_ c={c} /> },
    changes: { name: "Changes", show: () => <Changes c={c} /> },
    tree: { name: "Icicle", show: () => <Tree c={c} /> },
    curves: { name: "Locality", show: () => <Curves c={c} /> },
    runs: { name: "Runs", show: () => <Runs c={c} /> },
  };
  return <Frame views={views} title={titleOf(c)} first="verdict" />;
}

