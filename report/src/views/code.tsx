// Functions, loops and lines, with the source beside them.
import { DataTable, type Column } from "../components/data-table.tsx";
import { Source } from "../components/source.tsx";
import { placeOf, shareWord, type Model } from "../data/model.ts";
import { list, num, objs, str, strs, type Obj } from "../data/values.ts";
import { lineOf } from "../data/lines.ts";
import { bytes, codeName, short } from "../format.ts";
import { go, place } from "../state.ts";
import { Machine } from "../components/machine.tsx";
import { Only } from "../part.tsx";
import { CallPaths } from "./call-paths.tsx";
import { PythonLines, pythonLines } from "./python-lines.tsx";
import { metricColumns, Panel, Strides } from "./common.tsx";

const TABS = ["functions", "loops", "lines"] as const;
/** The tab of call paths. */
const PATHS = "paths";
/** The tab of lines of Python. */
const PYTHON = "python";

export function Code({ m }: { m: Model }) {
  const s = place.value.selection;
  const tab = TABS.find((t) => t === s.tab) ?? (s.fn && s.line ? "lines" : "functions");
  const t = m.tables[tab];
  if (t.rows === 0 && m.tables.functions.rows === 0) return <Panel title={shareWord(m) === "time" ? "Which code takes the time?" : "Which code has the loads?"}><p class="empty hatched">No recorded code: the trace has no samples. What ran and why it was not recorded stands in the view <a href="#quality">Data quality</a>.</p></Panel>;
  const matches = (i: number): boolean => t.str("function", i) === s.fn && (!s.mod || t.str("module", i) === s.mod);
  const rows = tab !== "functions" && s.fn ? t.all().filter(matches) : t.all();
  const shown = rows.length > 0 ? rows : t.all();
  const selected =
    tab === "functions" ? (s.fn ? t.find((i) => matches(i)) : 0) : tab === "lines" ? t.find((i) => t.str("file", i) === s.file && String(t.num("line", i)) === s.line && (!s.fn || t.str("function", i) === s.fn)) : t.find((i) => t.str("address", i) === s.loop && matches(i));
  const names: Column[] =
    tab === "functions"
      ? [{ key: "function", head: "function", width: 176, left: true, value: (i) => t.str("function", i), cell: (i) => <span title={`${t.str("function", i)} (${t.str("module", i)})`}>{short(codeName(t.str("function", i), t.str("module", i)), 44)}</span> }]
      : [
          { key: "line", head: "line", tip: tab === "loops" ? "The line of the branch back to the loop's head." : "A line of source.", width: 150, left: true, value: (i) => `${t.str("file", i)}:${t.num("line", i) ?? 0}`, cell: (i) => <span title={`${t.str("file", i)}:${t.num("line", i) ?? 0}`} style={tab === "loops" ? { paddingLeft: `${12 * Math.max(0, Math.min(8, (t.num("depth", i) ?? 1) - 1))}px` } : {}}>{placeOf(t.str("file", i), t.num("line", i)) || (t.str("address", i) ? `loop at ${t.str("address", i)}` : "line not known")}</span> },
          { key: "function", head: "function", width: 130, left: true, value: (i) => t.str("function", i), cell: (i) => <span title={t.str("function", i)}>{short(codeName(t.str("function", i), t.str("module", i)), 32)}</span> },
        ];
  const pick = (i: number): void => {
    const fn = t.str("function", i) || undefined;
    const mod = t.str("module", i) || undefined;
    if (tab === "functions") go({ fn, mod, file: undefined, line: undefined, loop: undefined, tab });
    else go({ fn, mod, file: t.str("file", i) || undefined, line: t.num("line", i) ? String(t.num("line", i)) : undefined, loop: tab === "loops" ? t.str("address", i) : undefined, tab });
  };
  // Without a selected line: the one with the most loads of the function.
  const isApart = s.tab === PATHS || s.tab === PYTHON;
  const python = pythonLines(m).length;
  const lines = m.tables.lines;
  const first = s.fn ?? m.tables.functions.str("function", 0);
  const best = s.line ? -1 : lineOf(lines, first);
  const file = s.line ? (s.file ?? "") : best < 0 ? "" : lines.str("file", best);
  const line = s.line ? Number(s.line) : best < 0 ? null : lines.num("line", best);
  return (
    <div class="split">
      <Panel title={shareWord(m) === "time" ? "Which code takes the time?" : "Which code has the loads?"} note="Click a row: its source stands beside. All other views follow the selection.">
        <div class="tabs" role="group" aria-label="Kind of rows">
          {TABS.map((name) => (
            <button type="button" key={name} aria-pressed={name === tab && !isApart} onClick={() => go({ tab: name })}>
              {name} ({m.tables[name].rows.toLocaleString("en")})
            </button>
          ))}
          {python > 0 && (
            <button type="button" aria-pressed={s.tab === PYTHON} onClick={() => go({ tab: PYTHON })}>
              Python lines ({python.toLocaleString("en")})
            </button>
          )}
          <button type="button" aria-pressed={s.tab === PATHS} onClick={() => go({ tab: PATHS })}>
            call paths ({objs(m.paths["calls"]).length.toLocaleString("en")})
          </button>
          {!isApart && tab !== "functions" && s.fn && rows.length > 0 && <button type="button" class="small" onClick={() => go({ fn: undefined, mod: undefined, file: undefined, line: undefined, loop: undefined, tab })}>of all functions</button>}
        </div>
        {s.tab === PATHS ? <CallPaths m={m} /> : s.tab === PYTHON ? <PythonLines m={m} /> : <DataTable key={tab} name={tab} columns={[...names, ...metricColumns(m, t)]} rows={shown} {...(selected >= 0 ? { selected } : {})} onSelect={pick} most={12} />}
      </Panel>
      <Panel title="Which source line is it?">
        <div class="beside">
          <div>
            {first && <p class="above"><Only patch={{ only_fn: first }}>Analyse {short(first, 40)} alone</Only></p>}
            <Source m={m} file={file} line={line} />
            <Machine m={m} file={file} line={line} />
          </div>
          {selected >= 0 && t.rows > 0 && <Details row={t.row(selected)} />}
        </div>
      </Panel>
    </div>
  );
}

function Details({ row }: { row: Obj }) {
  const chain = Array.isArray(row["inlined_into"]) ? strs(row["inlined_into"]) : str(row["inlined_into"]) ? [str(row["inlined_into"])] : [];
  return (
    <div class="details">
      {chain.length > 0 && (
        <section>
          <h3 class="minor">Inlined into</h3>
          <ol class="chain">{chain.map((c, i) => <li key={i} title={c}>{short(c, 90)}</li>)}</ol>
        </section>
      )}
      <section>
        <h3 class="minor">Steps from one address to the next</h3>
        <Strides rows={row["strides"]} />
      </section>
      {list(row["classes"]).length > 0 && (
        <section>
          <h3 class="minor">Static class and what was observed</h3>
          <table class="plain">
            <thead><tr><th>static</th><th>observed</th><th>step</th><th>instructions</th><th>of the steps</th></tr></thead>
            <tbody>
              {objs(row["classes"]).map((c, i) => (
                <tr key={i}><td>{str(c["static"])}</td><td>{str(c["observed"])}</td><td>{num(c["step"]) === null ? "–" : bytes(num(c["step"]))}</td><td>{num(c["sites"]) ?? "–"}</td><td>{(num(c["pct"]) ?? 0).toFixed(1)} %</td></tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </div>
  );
}
