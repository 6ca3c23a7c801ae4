// The recorded and the missing parts of the run, the reasons, and the reliability of the numbers.
import { Marked } from "../components/marked.tsx";
import { Unknown } from "../components/interval.tsx";
import { DataTable, type Column } from "../components/data-table.tsx";
import { Term } from "../components/tip.tsx";
import { moreWindows, type Model } from "../data/model.ts";
import { list, num, obj, objs, str, strs } from "../data/values.ts";
import { bytes, count, percent, seconds, short } from "../format.ts";
import { Panel, Word } from "./common.tsx";

export function Quality({ m }: { m: Model }) {
  const t = m.trace;
  const man = m.manifest;
  const cover = obj(t["coverage"]);
  const looks = num(cover["time_samples"]) ?? 0;
  const files = objs(cover["files"]);
  const share = (v: unknown): number | null => (looks > 0 && num(v) !== null ? (100 * (num(v) ?? 0)) / looks : null);
  const generated = objs(cover["generated_functions"]);
  const named = generated.reduce((s, f) => s + (num(f["samples"]) ?? 0), 0);
  const unnamed = Math.max(0, (num(cover["generated_samples"]) ?? 0) - named);
  const others = files.reduce((s, f) => s + (f["instrumented"] === true ? 0 : (num(f["samples"]) ?? 0)), 0) + (num(cover["generated_samples"]) ?? 0);
  const said = [...strs(m.run["warnings"]), ...strs(man["problems"]), ...strs(t["not_recorded"])];
  // Every window has loads that its edges cut.
  const EDGES = ["torn_loads", "cut_loads"];
  const edges = EDGES.reduce((sum, k) => sum + (num(obj(t["dropped"])[k]) ?? 0), 0);
  const dropped = Object.entries(obj(t["dropped"])).filter(([k, n]) => (num(n) ?? 0) > 0 && !EDGES.includes(k));
  const cut = Object.entries(obj(t["truncated_windows"])).filter(([, n]) => (num(n) ?? 0) > 0);
  const doubtful = Object.entries(obj(m.summary["doubtful"])).filter(([, n]) => (num(n) ?? 0) > 0);
  const vague = (["functions", "lines", "loops", "objects"] as const).map((name) => ({ name, all: m.tables[name].rows, shares: m.tables[name].all().filter((i) => m.tables[name].value("undersampled", i) === true).length, footprints: m.tables[name].all().filter((i) => m.tables[name].value("F_undersampled", i) === true).length }));
  const cost = num(man["recording_seconds"]);
  const cpu = num(man["cpu_seconds"]) ?? 0;
  const columns: Column[] = [
    { key: "path", head: "file", tip: "A file whose code was in a recorded process.", width: 320, left: true, value: (i) => str(files[i]?.["path"]), cell: (i) => <span title={str(files[i]?.["path"])}>{short(str(files[i]?.["path"]), 70)}</span> },
    { key: "instrumented", head: "recorded", tip: "Whether its loads are in the trace.", width: 90, value: (i) => (files[i]?.["instrumented"] === true ? "yes" : "no") },
    { key: "samples", head: "share of time", tip: "Part of the CPU time that was spent in its code, where the recorder looked.", width: 110, value: (i) => share(files[i]?.["samples"]), cell: (i) => (share(files[i]?.["samples"]) === null ? "–" : percent(share(files[i]?.["samples"]))) },
    { key: "reads_for", head: "reads for the program", tip: "Functions in it that read memory for recorded code, such as memcpy.", width: 190, left: true, value: (i) => strs(files[i]?.["reads_for"]).join(" "), cell: (i) => <span title={strs(files[i]?.["reads_for"]).join(", ")}>{short(strs(files[i]?.["reads_for"]).join(", "), 40)}</span> },
    { key: "remedy", head: "to record it", tip: "What takes its loads into the trace.", width: 220, left: true, value: (i) => remedy(files[i] ?? {}), cell: (i) => <code>{remedy(files[i] ?? {})}</code> },
  ];
  return (
    <div class="stack">
      <Panel title="Can these numbers be trusted?">
        {said.length === 0 ? <p>Nothing is known to be missing or doubtful.</p> : <ul class="said">{said.map((s, i) => <li key={i}><Marked text={s} /></li>)}</ul>}
      </Panel>
      <div class="grid2">
        <Panel title="How was it recorded?">
          <dl class="facts">
            <div><dt><Word>mode</Word></dt><dd>{str(t["mode"])}{str(t["backend"]) === "soft" ? "" : ` by ${str(t["backend"])} (${str(man["backend_why"])})`}</dd></div>
            <div><dt><Word>windows</Word></dt><dd>{count(num(m.summary["samples"]))}, {count(num(m.summary["sample_mean"]))} loads each ({count(num(m.summary["sample_min"]))} to {count(num(m.summary["sample_max"]))})</dd></div>
            <div><dt><Word>begun by</Word></dt><dd>{str(man["trigger"]) || "records"}{str(man["trigger_why"]) ? `: ${str(man["trigger_why"])}` : ""}</dd></div>
            <div><dt><Term k="rho">sample ratio</Term></dt><dd>{num(m.summary["rho"]) === null ? <Unknown why="The number of executed loads is not known." /> : `${count(num(m.summary["rho"]))} executed loads for each recorded one`}</dd></div>
            <div><dt><Word>loads recorded</Word></dt><dd>{count(num(m.summary["rows"]))}</dd></div>
            <div><dt><Word>cost</Word></dt><dd>{cost !== null && cost > 0 ? `${seconds(cost)} of CPU time${cpu > 0 ? `, ${percent((100 * cost) / cpu)}` : ""}` : <Unknown why="The recorder measures its cost only where windows come by CPU time." />}</dd></div>
            <div><dt><Word>state</Word></dt><dd>{str(t["state"])}; the program: {str(t["program_status"]) || "not known"}</dd></div>
            <div><dt><Word>started</Word></dt><dd>{str(t["started"])}</dd></div>
            <div><dt><Word>by</Word></dt><dd>{str(man["tool"]) || "not known"}</dd></div>
          </dl>
        </Panel>
        <Panel title="What was lost?">
          {dropped.length + cut.length + doubtful.length === 0 ? <p>Nothing: no record was dropped, no window cut short, no row doubtful.</p> : (
            <table class="plain">
              <tbody>
                {dropped.map(([k, n]) => <tr key={k}><th scope="row">dropped: {k.replaceAll("_", " ")}</th><td>{count(num(n))}</td></tr>)}
                {cut.map(([k, n]) => <tr key={k}><th scope="row">windows cut short: {k.replaceAll("_", " ")}</th><td>{count(num(n))}</td></tr>)}
                {doubtful.map(([k, n]) => <tr key={k}><th scope="row">rows: {k.replaceAll("_", " ")}</th><td>{count(num(n))}</td></tr>)}
              </tbody>
            </table>
          )}
          {edges > 0 && <p class="note">Beside that, the edges of windows cut {count(edges)} {edges === 1 ? "load" : "loads"}, which is no loss.</p>}
          <h3 class="next">What is too vague to act on?</h3>
          <table class="plain">
            <thead><tr><th>rows</th><th>all</th><th>vague share</th><th>vague footprint</th></tr></thead>
            <tbody>
              {vague.filter((v) => v.all > 0).map((v) => <tr key={v.name}><th scope="row">{v.name}</th><td>{v.all.toLocaleString("en")}</td><td>{v.shares.toLocaleString("en")}</td><td>{v.footprints.toLocaleString("en")}</td></tr>)}
            </tbody>
          </table>
          <p class="note">Such rows are hatched. Four times the windows halve an interval: <code>{moreWindows(m)}</code></p>
        </Panel>
      </div>
      <Panel title="Which code is not recorded?" note={looks > 0 ? `The recorder looked ${count(looks)} times where CPU time was spent: ${percent((100 * others) / looks)} was in code that is not recorded.` : "How much time was spent in which file is not known: nobody looked."}>
        {files.length > 0 ? <DataTable name="coverage" columns={columns} rows={files.map((_, i) => i)} most={8} /> : <p class="empty">The trace does not say which files had code in the process.</p>}
        {(num(cover["generated_bytes"]) ?? 0) > 0 && <p>{bytes(num(cover["generated_bytes"]))} of code were generated at run time{share(cover["generated_samples"]) === null ? "" : `, with ${percent(share(cover["generated_samples"]))} of the time`}; it is not recorded.</p>}
        {generated.length > 0 && (
          <table class="plain">
            <caption>Functions that were generated at run time</caption>
            <tbody>{generated.slice(0, 8).map((f, i) => <tr key={i}><th scope="row">{str(f["function"])}</th><td>{percent(share(f["samples"]))}</td><td>{str(f["tier"])}</td><td>{str(f["file"])}{(num(f["line"]) ?? 0) > 0 ? `:${num(f["line"])}` : ""}</td></tr>)}</tbody>
          </table>
        )}
        {unnamed > 0 && share(unnamed) !== null && <p>Generated code without names: {percent(share(unnamed))} of the time.{strs(cover["naming_commands"]).map((c, i) => <span key={i}> <code>{c}</code> names it.</span>)}</p>}
        {list(cover["programs"]).length > 0 && (
          <table class="plain">
            <caption>Programs that ran and were not recorded</caption>
            <tbody>{objs(cover["programs"]).map((p, i) => <tr key={i}><th scope="row">{str(p["path"])}</th><td>{count(num(p["times"]))} times</td><td>{str(p["why"])}</td></tr>)}</tbody>
          </table>
        )}
      </Panel>
    </div>
  );
}

function remedy(file: Record<string, unknown>): string {
  if (file["instrumented"] === true) return "";
  const name = str(file["path"]).split("/").pop() ?? "";
  if (file["needed"] !== true || name.startsWith("ld-linux")) return "";
  return `mgz run --libs=${name}`;
}
