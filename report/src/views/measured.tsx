// The processor's memory samples, beside the misses that are predicted from recorded loads.
import { useState } from "preact/hooks";
import { DataTable, type Column } from "../components/data-table.tsx";
import { Interval, Unknown } from "../components/interval.tsx";
import { Term } from "../components/tip.tsx";
import { comparedOf, disputed, drawnIn, KINDS, valueOf, type Compared, type Kind, type Measured as Samples, type Verdict } from "../data/measured.ts";
import { placeOf, type Model } from "../data/model.ts";
import { num, objs, str, triple, type Estimate, type Obj } from "../data/values.ts";
import { base, count, percent, short } from "../format.ts";
import { go, place, write } from "../state.ts";
import { Panel } from "./common.tsx";

const MEASURED = "Misses per 100 loads that the processor sampled, with the 95 % interval. Its lower end counts loads of a line that was on its way as hits, its upper end as misses.";
const PREDICTED = "Misses per 100 loads that are predicted from the recorded addresses, for caches without a hardware prefetcher.";
const LATENCY = "Mean time from issue to data of the sampled loads that tell one, in cycles of the processor.";
const TLB = "Loads whose page no level of the TLB had, of the sampled loads that tell.";
const HITM = "Loads of lines that another core's cache had modified, of the sampled loads that tell. Many of them are a sign of threads that write the same line.";
const REMOTE = "Loads served by another core, node or socket, of the sampled loads that tell.";
const SHARE = "Share of all sampled loads, with the 95 % interval.";
const DISPUTED = "Loads of 100 sampled ones of the run that hit in one of the two and miss in the other. 0 where the intervals overlap.";

const VERDICTS: Record<Exclude<Verdict, "">, { text: string; cls: string; tip: string }> = {
  more: { text: "predicted more", cls: "worse", tip: "The intervals have no common point: the prediction has more misses than the processor measured. A hardware prefetcher turns predicted misses into hits." },
  less: { text: "predicted less", cls: "worse", tip: "The intervals have no common point: the processor measured more misses than are predicted. Other programs, other threads and code that is not recorded take room in the caches too." },
  agree: { text: "agree", cls: "better", tip: "The intervals overlap." },
  "not comparable": { text: "not comparable", cls: "unclear", tip: "The samples are not drawn from all loads, so that their misses are those of slow loads." },
};

function Mark({ verdict }: { verdict: Verdict }) {
  if (verdict === "") return <>–</>;
  const of = VERDICTS[verdict];
  return <span class={`word ${of.cls}`} data-tip={of.tip}>{of.text}</span>;
}

const Ratio = ({ e, why }: { e: Estimate | null; why: string }) => <Interval e={e ?? { value: null, lo: null, hi: null }} max={100} show={percent} why={why} />;
const NO_PREDICTION = "Nothing is predicted of this row: it is not in the recorded code or data, or its name is not unique.";

/** Measured and predicted misses of a set of loads, by level. */
export function ByLevel({ rows }: { rows: Compared[] }) {
  return (
    <div class="twin" tabindex={0} role="region" aria-label="Misses by level">
      <table class="levels">
        <thead><tr><th class="left">level</th><th class="left"><Term text={MEASURED}>measured</Term></th><th class="left"><Term text={PREDICTED}>predicted</Term></th><th class="left">the two</th></tr></thead>
        <tbody>
          {rows.map((c) => (
            <tr key={c.level}><th scope="row" class="left">{c.level}</th><td><Ratio e={c.measured} why="No sample tells it." /></td><td><Ratio e={c.predicted} why={NO_PREDICTION} /></td><td class="left"><Mark verdict={c.verdict} /></td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The samples of a run in a sentence. */
function source(s: Samples): string {
  const recorded = num(s.all["of_recorded_code"]);
  const other = str(s.all["trace"]);
  return `${count(num(s.all["samples"]))} sampled loads, ${drawnIn(str(s.all["drawn"]))}${other ? `, of another run (${other})` : ""}.${recorded === null ? "" : ` ${count(recorded)} of them are of recorded code, and stand beside the prediction.`}`;
}

/** For the first screen; only where there is something to compare. */
export function MeasuredPanel({ m }: { m: Model }) {
  const s = m.measured;
  if (!s?.compared) return null;
  return (
    <Panel title="Did the processor measure what was predicted?" note={source(s)}>
      <ByLevel rows={comparedOf(s.all, s.allLoads)} />
      <p class="links"><a href={write({ view: "measured", selection: place.value.selection })}>By function, line and object</a></p>
    </Panel>
  );
}

export function Measured({ m }: { m: Model }) {
  const s = m.measured;
  if (!s) return <Panel title="What did the processor measure?"><p class="empty hatched">There are no memory samples of what is shown here: a part of a run has none. Samples of the whole run come from <code>mgz-record --import</code> of a recording of perf.</p></Panel>;
  return (
    <div class="stack">
      <div class="grid2">
        {s.compared && (
          <Panel title="Did the processor measure what was predicted?" note={source(s)}>
            <ByLevel rows={comparedOf(s.all, s.allLoads)} />
          </Panel>
        )}
        <Panel title="Which level served the loads?" {...(s.compared ? {} : { note: source(s) })}>
          <Served all={s.all} />
        </Panel>
      </div>
      <Rows s={s} />
    </div>
  );
}

function Served({ all }: { all: Obj }) {
  const levels = objs(all["levels"]);
  const nodes = objs(all["nodes"]);
  const share = (v: unknown, why: string) => <Interval e={triple(v) ?? { value: null, lo: null, hi: null }} max={100} show={percent} why={why} />;
  const cycles = (x: number | null): string => (x === null ? "–" : `${count(x)} cycles`);
  const latency = triple(all["latency"]);
  return (
    <>
      <dl class="facts">
        {levels.map((l) => <div key={str(l["level"])}><dt><Term text="Share of the sampled loads that this level served, with the 95 % interval.">{str(l["level"]) || "unknown"}</Term></dt><dd>{share(l["share_pct"], "No sample tells it.")}</dd></div>)}
      </dl>
      <h3 class="minor">How they were served</h3>
      <dl class="facts">
        <div><dt><Term text={LATENCY}>mean latency</Term></dt><dd>{latency ? <Interval e={latency} max={latency.hi ?? latency.value ?? 1} show={cycles} /> : <Unknown why="Fewer than ten samples tell a latency." />}</dd></div>
        <div><dt><Term text={TLB}>TLB misses</Term></dt><dd>{share(all["tlb_miss_pct"], "No sample tells what the TLB did.")}</dd></div>
        <div><dt><Term text={HITM}>modified</Term></dt><dd>{share(all["hitm_pct"], "No sample tells what other caches had.")}</dd></div>
        <div><dt><Term text={REMOTE}>remote</Term></dt><dd>{share(all["remote_pct"], "No sample tells it.")}</dd></div>
        {nodes.map((n) => <div key={num(n["node"])}><dt><Term text="Share of the loads whose NUMA node is known.">memory of node {num(n["node"]) ?? "?"}</Term></dt><dd>{share(n["share_pct"], "No sample tells it.")}</dd></div>)}
      </dl>
    </>
  );
}

function nameColumn(kind: Kind, rows: Obj[]): Column {
  const row = (i: number): Obj => rows[i] ?? {};
  const place = (i: number): string => (num(row(i)["line"]) ? `${str(row(i)["file"])}:${num(row(i)["line"])}` : str(row(i)["function"]));
  const name = { functions: (i: number) => str(row(i)["function"]), lines: place, objects: (i: number) => str(row(i)["object"]) }[kind];
  const cell = (i: number): string => (kind === "lines" && num(row(i)["line"]) ? `${placeOf(str(row(i)["file"]), num(row(i)["line"]))} ${str(row(i)["function"])}` : base(name(i)));
  const head = { functions: "function", lines: "line", objects: "object" }[kind];
  return { key: head, head, tip: kind === "objects" ? "A variable, a mapping, or the heap." : "Code with sampled loads.", width: 170, left: true, value: name, cell: (i) => <span title={name(i)}>{short(cell(i), 48) || "[unknown]"}</span> };
}

/** Functions, lines and objects at one level. */
function Rows({ s }: { s: Samples }) {
  const asked = place.value.selection.tab;
  const kind = KINDS.find((k) => k === asked) ?? "lines";
  const [level, setLevel] = useState(s.levels[0] ?? "L1");
  const rows = s.rows[kind];
  const row = (i: number): Obj => rows[i] ?? {};
  const at = (i: number): Compared | undefined => comparedOf(row(i), s.allLoads).find((c) => c.level === level);
  const value = (key: string) => (i: number): number | null => triple(row(i)[key])?.value ?? null;
  const flag = (key: string, head: string, tip: string): Column => ({ key, head, tip, width: 68, value: value(key), cell: (i) => percent(value(key)(i)) });
  const share = (i: number): Estimate => triple(row(i)["share_pct"]) ?? { value: null, lo: null, hi: null };
  const columns: Column[] = [
    nameColumn(kind, rows),
    { key: "share_pct", head: "loads", tip: SHARE, width: 120, bar: true, value: value("share_pct"), cell: (i) => <Interval e={share(i)} max={100} show={percent} /> },
    { key: "measured", head: "measured", tip: MEASURED, width: 130, bar: true, value: (i) => valueOf(at(i)?.measured ?? null), cell: (i) => <Ratio e={at(i)?.measured ?? null} why="No sample tells it." /> },
  ];
  if (s.compared)
    columns.push(
      { key: "predicted", head: "predicted", tip: PREDICTED, width: 130, bar: true, value: (i) => valueOf(at(i)?.predicted ?? null), cell: (i) => <Ratio e={at(i)?.predicted ?? null} why={NO_PREDICTION} /> },
      { key: "verdict", head: "the two", tip: "Whether the two intervals have a common point.", width: 118, left: true, value: (i) => at(i)?.verdict ?? "", cell: (i) => <Mark verdict={at(i)?.verdict ?? ""} /> },
      { key: "disputed", head: "in dispute", tip: DISPUTED, width: 74, value: (i) => disputed(row(i), level, s.allLoads), cell: (i) => percent(disputed(row(i), level, s.allLoads)) },
    );
  const told = (key: string): boolean => rows.some((r) => triple(r[key]) !== null);
  const flags = [flag("tlb_miss_pct", "TLB", TLB), flag("hitm_pct", "modified", HITM), flag("remote_pct", "remote", REMOTE)].filter((c) => told(c.key));
  columns.push({ key: "latency", head: "cycles", tip: LATENCY, width: 60, value: value("latency"), cell: (i) => count(value("latency")(i)) }, ...flags, { key: "samples", head: "samples", tip: "Sampled loads.", width: 66, value: (i) => num(row(i)["samples"]), cell: (i) => count(num(row(i)["samples"])) });
  const pick = (i: number): void => {
    if (kind === "objects") go({ obj: str(row(i)["object"]) || undefined });
    else go({ fn: str(row(i)["function"]) || undefined, mod: str(row(i)["module"]) || undefined, file: str(row(i)["file"]) || undefined, line: num(row(i)["line"]) ? String(num(row(i)["line"])) : undefined, loop: undefined });
  };
  return (
    <Panel title={s.compared ? "Where do measured and predicted misses differ?" : "Where do the loads miss?"} note="Click a row: the other views show it.">
      <div class="tabs" role="group" aria-label="Kind of rows">
        {KINDS.map((k) => <button type="button" key={k} aria-pressed={k === kind} onClick={() => go({ tab: k })}>{k} ({s.rows[k].length.toLocaleString("en")})</button>)}
      </div>
      <div class="tabs" role="group" aria-label="Level">
        {s.levels.map((l) => <button type="button" key={l} aria-pressed={l === level} onClick={() => setLevel(l)}>{l} misses</button>)}
      </div>
      <DataTable key={`${kind} ${level}`} name={`measured ${kind}`} columns={columns} rows={rows.map((_, i) => i)} {...(s.compared && s.allLoads ? { sort: "disputed" } : {})} onSelect={pick} most={12} />
    </Panel>
  );
}
