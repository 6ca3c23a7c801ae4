// The first view: the memory problems, with line, data, certainty and advice.
import { useState } from "preact/hooks";
import { Chart, type Curve } from "../components/chart.tsx";
import { Classes, Interval, LineUse, Unknown } from "../components/interval.tsx";
import { Marked } from "../components/marked.tsx";
import { define, Term } from "../components/tip.tsx";
import { missRatio } from "../data/curves.ts";
import { caches, command, isComplete, moreWindows, placeOf, sentence, shareKey, shareWord, wantsHeap, type Model } from "../data/model.ts";
import { findObject, objectNames } from "../data/object-names.ts";
import { estimate, num, obj, objs, str, strs, triple, type Estimate, type Obj } from "../data/values.ts";
import { base, bytes, codeName, count, percent, seconds, short, shortRemedy } from "../format.ts";
import { go } from "../state.ts";
import { bins, hundred, missesOf, Panel, PATTERN, Share, watchedOf } from "./common.tsx";
import { MeasuredPanel } from "./measured.tsx";
import { TimeStrip } from "./time.tsx";

/** Number of findings shown at first. */
const FIRST = 4;

/**
 * The predicted cost of a finding: with its interval if latencies were measured on the machine, else
 * rounded.
 */
function predictedCost(v: Obj, cost: number): string {
  const [lo, hi] = [num(v["score_lo"]), num(v["score_hi"])];
  if (str(v["latencies"]) === "measured" && lo !== null && hi !== null) {
    return hi > 3 * lo ? `${lo.toFixed(0)} to ${hi.toFixed(0)} %` : `${cost.toFixed(0)} % (${lo.toFixed(0)}–${hi.toFixed(0)})`;
  }
  return cost < 5 ? "a few %" : `${Math.round(cost / 5) * 5} %`;
}

export function Overview({ m }: { m: Model }) {
  const findings = objs(m.run["findings"]);
  const [all, setAll] = useState(false);
  const shown = all ? findings : findings.slice(0, FIRST);
  return (
    <div class="overview">
      <RunCard m={m} />
      <Panel title="What is slow about memory, and what helps?" cls="wide">
        {findings.length === 0 ? <Nothing m={m} /> : <ol class="findings">{shown.map((v, i) => <Finding key={i} m={m} v={v} n={i + 1} />)}</ol>}
        {shown.length < findings.length && <button type="button" class="more" onClick={() => setAll(true)}>Show {findings.length - shown.length} more</button>}
      </Panel>
      <Panel title="How does the run change over time?" note="Each column is a stretch of the run. Click one to look into it.">
        {m.loading ? <p class="empty">Reading the tables.</p> : <TimeStrip m={m} />}
      </Panel>
      <Panel title={shareWord(m) === "time" ? "Where does the time go?" : "Where are the loads?"}>
        <Top m={m} />
      </Panel>
      <Panel title="Would a larger cache help?">
        <MissCurve m={m} />
      </Panel>
      <MeasuredPanel m={m} />
      <Panel title="How fast does new memory come in?">
        <Growth m={m} />
      </Panel>
    </div>
  );
}

function RunCard({ m }: { m: Model }) {
  const s = m.summary;
  const loads = estimate(s, "A");
  const cost = num(m.manifest["recording_seconds"]);
  const cpu = num(m.manifest["cpu_seconds"]) ?? 0;
  const exact = num(m.trace["loads_executed"]);
  const known = caches(m);
  const foot = (x: number | null): string => bytes(x === null ? null : x * 64);
  const f = estimate(s, "F_64");
  return (
    <section class="run-card">
      <h1 title={command(m)}>{short(command(m), 110) || "A run without a command line"}</h1>
      <dl>
        <Fact name="Ran for" text="From the start of the program to its end, and how it ended.">{seconds(num(m.trace["wall_seconds"]))} · {str(m.trace["program_status"]) || str(m.trace["state"])}</Fact>
        <Fact name="Loads" k="A_hat">
          {exact !== null ? <>{count(exact)}</> : loads.value === null ? <Unknown why="How fast the code runs was not measured, so that the number of loads is not known. The trace knows those that it recorded." /> : <Interval e={loads} max={loads.hi ?? loads.value} show={count} />}
        </Fact>
        <Fact name="Footprint" k="F_64_hat">
          {(num(s["rows"]) ?? 0) === 0 ? <Unknown why="No load was recorded." /> : <Interval e={f.value === null ? { value: null, lo: num(s["F_64"]), hi: null, vague: false } : f} max={f.hi ?? f.value ?? num(s["F_64"]) ?? 1} show={foot} why={`few windows; more: ${moreWindows(m)}`} />}
        </Fact>
        <Fact name="Pattern" text={PATTERN}><Classes strided={num(s["dF_str_pct"])} irregular={num(s["dF_irr_pct"])} constant={num(s["A_const_pct"])} /></Fact>
        <Fact name="Line use" k="line_bytes"><LineUse used={num(s["line_bytes"])} /></Fact>
        {missesOf(s).map((l) => (
          <Fact key={l.level} name={`${l.level} misses`} text={`Predicted misses of ${l.level} per 100 loads, with the 95 % interval.${watchedOf(s)}`}>
            {l.ratio ? <Interval e={{ value: 100 * (l.ratio.value ?? 0), lo: l.ratio.lo === null ? null : 100 * l.ratio.lo, hi: l.ratio.hi === null ? null : 100 * l.ratio.hi }} max={100} show={percent} /> : <Unknown why="Not predicted: distances beyond the windows are not known." />}
          </Fact>
        ))}
        {objs(obj(m.run["counters"])["misses"]).map((c) => {
          const ratio = hundred(triple(c["counted"]));
          return <Fact key={`counted ${str(c["level"])}`} name={`${str(c["level"])} measured`} text={`Misses of ${str(c["level"])} per 100 loads that the processor counted over the run, in all its code. The lower end counts loads of a line that was on its way as hits, the upper end as misses.`}><Interval e={ratio} max={100} show={percent} bounds="Loads of lines that were on their way are hits at the lower end and misses at the upper end." /></Fact>;
        })}
        <Fact name="Recorded" text="How the loads were sampled.">
          {str(m.trace["mode"])}, {count(num(s["samples"]))} {isComplete(m) ? "threads" : "windows"}{m.trace["by_time"] === true ? " by CPU time" : ""}
        </Fact>
        <Fact name="Cost" text="CPU time that recording took from the program, as the recorder estimates it.">
          {cost !== null && cost > 0 && cpu > 0 ? `${percent((100 * cost) / cpu)} of the CPU time` : <Unknown why="The recorder measures its cost only where windows come by CPU time." />}
        </Fact>
        <Fact name="Machine" text="Where it ran: name of the host, model of the processor.">{[str(m.manifest["host"]), str(m.manifest["cpu"])].filter(Boolean).join(", ") || "not known"}</Fact>
        <Fact name="Caches" text={known.known ? "As the kernel tells them." : "The trace does not say which caches the machine has. These are common sizes."}>
          {known.list.map((c) => `${c.name} ${bytes(c.bytes)}`).join(", ")}
          {known.known ? "" : " (typical, not this machine's)"}
        </Fact>
      </dl>
      <Doubts m={m} />
    </section>
  );
}

function Fact({ name, k, text, children }: { name: string; k?: string; text?: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>
        <Term {...(k ? { k } : {})} {...(text ? { text } : {})}>{name}</Term>
      </dt>
      <dd>{children}</dd>
    </div>
  );
}

/**
 * Warnings that a reader needs before believing a number. Missing data come first, warnings that
 * only concern the list come last.
 */
function Doubts({ m }: { m: Model }) {
  const missing = strs(m.trace["not_recorded"]);
  const problems = strs(m.manifest["problems"]);
  const others = strs(m.run["warnings"]).filter((w) => !problems.includes(w.replace(/^recorder: /, "")));
  const said = [...missing, ...problems, ...others];
  // If nothing was recorded, another part of the page says so.
  if (said.length === 0 || num(m.summary["samples"]) === 0) return null;
  return (
    <p class="doubts">
      <strong>{missing.length > 0 ? "Not all is recorded:" : "Before you believe it:"}</strong> <Marked text={short(said[0] ?? "", 220)} />{" "}
      <a href="#quality">{said.length > 1 ? `and ${said.length - 1} more` : "details"}</a>
    </p>
  );
}

/** For a run without samples: the reason, and the command that records the missing code. */
function Elsewhere({ m }: { m: Model }) {
  const libraries = strs(m.trace["missing_libraries"]).join(",");
  return libraries ? (
    <div class="empty hatched">
      <p>Nothing was recorded: the time went to libraries, which are left out unless they are asked for.</p>
      <p>Run it again with them: <code>mgz run --libs={libraries} -- {short(command(m), 100)}</code></p>
    </div>
  ) : (
    <p class="empty hatched">
      Nothing was recorded. <Marked text={sentence(strs(m.trace["not_recorded"])[0])} /> A short program is recorded as a whole by <code>mgz run --full</code>.
    </p>
  );
}

function Nothing({ m }: { m: Model }) {
  const samples = num(m.summary["samples"]) ?? 0;
  if (samples === 0)
    return <Elsewhere m={m} />;
  if (str(m.run["no_finding"])) return <p class="empty"><Marked text={sentence(m.run["no_finding"])} /></p>;
  return samples < 30 || m.summary["undersampled"] === true ? (
    <p class="empty hatched">
      Too few windows ({count(samples)}) to be sure of anything. More come by <code>{moreWindows(m)}</code>, or by a longer run.
    </p>
  ) : (
    <p class="empty">No line of code that matters shows one of the patterns that are known: steps that waste cache lines, irregular access to much data, data read once, sparse pages, arrays apart, or a working set just above a cache.</p>
  );
}

/** The deepest level that loads miss for certain, or else the deepest of which the prediction says something. */
function evident(levels: ReturnType<typeof missesOf>) {
  const ends = (l: (typeof levels)[number]) => [l.ratio?.lo ?? 0, l.ratio?.hi ?? 1] as const;
  const known = levels.filter((l) => l.ratio && (l.ratio.value ?? 0) >= 0.01 && ends(l)[1] - ends(l)[0] <= 0.5);
  const certain = known.filter((l) => ends(l)[0] >= 0.01);
  return (certain.length > 0 ? certain : known).slice(-1);
}

function Finding({ m, v, n }: { m: Model; v: Obj; n: number }) {
  const lines = m.tables.lines;
  const [file, line, fn] = [str(v["file"]), num(v["line"]), str(v["function"])];
  const at = lines.find((i) => lines.str("file", i) === file && lines.num("line", i) === line && lines.str("function", i) === fn);
  const row = at < 0 ? {} : lines.row(at);
  const object = str(v["object"]);
  const kind = str(v["kind"]);
  // The name of a block is often the place that allocated it.
  const allocated = object.includes(str(v["allocated"]).split(" < ")[0] ?? "") ? "" : str(v["allocated"]);
  const objects = m.tables.objects;
  const site = object ? findObject(objects, object) : -1;
  const selection = { fn: fn || undefined, file: file || undefined, line: line ? String(line) : undefined, obj: object || undefined };
  // Only findings that name a mechanism know their cost.
  const cost = str(v["title"]) ? num(v["score"]) : null;
  const gain = str(v["gain"]);
  const also = strs(v["also"]);
  // If the slow loads were inlined into the line, the line's own row describes other loads.
  const own = at >= 0 && 2 * (lines.num(shareKey(m), at) ?? 0) >= (cost ?? 0);
  const title = str(v["title"]) || kind.replaceAll("_", " ");
  return (
    <li class="finding-card">
      <div class="finding-head">
        <span class="rank" aria-hidden="true">{n}</span>
        <h3>{title}</h3>
      </div>
      <p class="where">
        {fn ? <a href="#code" title={fn} onClick={(e) => { e.preventDefault(); go(selection, "code"); }}>{short(codeName(fn, str(v["module"])), 60)}{line ? `, ${placeOf(file, line)}` : ""}</a> : "the whole run"}
        {object && <> · data <a href="#data" title={object} onClick={(e) => { e.preventDefault(); go(selection, "data"); }}>{short(base(object), 60)}</a></>}
        {site >= 0 && objects.num("bytes", site) !== null ? ` (${str(objects.value("kind", site))}, ${bytes(objects.num("bytes", site))})` : ""}
        {wantsHeap(m, object) && <> · <code>mgz run --heap</code> names where they were allocated</>}
        {allocated && <> · allocated by <span title={allocated}>{short(allocated, 70)}</span></>}
        {also.length > 0 && <> · also <span title={also.join("\n")}>{also.slice(0, 3).map((a) => a.split("/").pop()).join(", ")}{also.length > 3 ? ` and ${also.length - 3} more` : ""}</span></>}
      </p>
      <div class="evidence">
        {cost !== null && <span data-tip={`By predicted misses and ${str(v["latencies"]) === "measured" ? "latencies that were measured on the machine" : "assumed latencies, whose error is not known (mgz doctor --measure measures them)"}. Findings are ranked by it.`}><small>predicted cost</small><b>{predictedCost(v, cost)}{shareKey(m) === "time_pct" ? " of the time" : ""}</b></span>}
        {num(v["waiting_pct"]) !== null && <span data-tip="Measured: share of the time in which the trigger's interrupt stood right behind these loads. It includes loads that hit."><small>measured wait</small><Interval e={{ value: num(v["waiting_pct"]), lo: num(v["waiting_pct_lo"]), hi: num(v["waiting_pct_hi"]) }} max={100} show={percent} /></span>}
        {!own && num(v["time_pct"]) !== null && <span data-tip="Of the function or loop that the loads are in, with all its lines and what was inlined there. The line alone may take less: see the view Code."><small>{shareWord(m)} of its code</small><Share m={m} row={v} /></span>}
        {own && (
          <>
            {num(v["time_pct"]) === null ? (
              <span data-tip="Of the line alone, with its 95 % interval."><small>{shareWord(m)} of the line</small><Share m={m} row={row} /></span>
            ) : (
              <span data-tip="Of the function or loop that the loads are in, with all its lines and what was inlined there, with its 95 % interval."><small>{shareWord(m)} of its code</small><Share m={m} row={v} /></span>
            )}
            {evident(missesOf(obj(v["misses"])["levels"] ? v : row)).map((l) => (
              <span key={l.level} data-tip="Predicted, of the loads of this finding."><small>miss the {l.level}</small>{l.ratio && <Interval e={{ value: 100 * (l.ratio.value ?? 0), lo: l.ratio.lo === null ? null : 100 * l.ratio.lo, hi: l.ratio.hi === null ? null : 100 * l.ratio.hi }} max={100} show={percent} />}</span>
            ))}
            <span data-tip={define("line_bytes")}><small>of each line fetched</small><LineUse used={num(row["line_bytes"])} /></span>
            <span data-tip={PATTERN}><small>pattern</small><Classes strided={num(row["dF_str_pct"])} irregular={num(row["dF_irr_pct"])} /></span>
          </>
        )}
      </div>
      <p class="finding">{sentence(v["finding"])}</p>
      {str(v["mechanism"]) && <p class="finding">{sentence(v["mechanism"])}</p>}
      <p class="try"><strong>Try:</strong> {sentence(v["advice"])}</p>
      {gain && <p class="gain" data-tip="Predicted from the recorded addresses, moved as the remedy moves data, with its interval. mgz what-if predicts other remedies."><strong>Gain:</strong> <code>{short(shortRemedy(str(v["remedy"])), 80)}</code> {gain} <small>(predicted)</small></p>}
      <p class="links">
        {fn && <a href="#code" onClick={(e) => { e.preventDefault(); go(selection, "code"); }}>Code</a>}
        {object && <a href="#data" onClick={(e) => { e.preventDefault(); go(selection, "data"); }}>Data</a>}
        <a href="#time" onClick={(e) => { e.preventDefault(); go(selection, "time"); }}>Time</a>
        <a href="#memory" onClick={(e) => { e.preventDefault(); go(selection, "memory"); }}>Memory</a>
        <a href="#locality" onClick={(e) => { e.preventDefault(); go(selection, "locality"); }}>Locality</a>
      </p>
    </li>
  );
}

function Top({ m }: { m: Model }) {
  const f = m.tables.functions;
  const key = shareKey(m);
  const rows = f.all().slice(0, 8);
  if (m.loading) return <p class="empty">Reading the tables.</p>;
  if (rows.length === 0) return <p class="empty">No function was recorded.</p>;
  const o = m.tables.objects;
  const most = Math.max(1, ...rows.map((i) => f.num(`${key}_hi`, i) ?? f.num(key, i) ?? 0));
  return (
    <div class="top">
      <table>
        <caption>Functions</caption>
        <tbody>
          {rows.map((i) => (
            <tr key={i}>
              <th scope="row"><a href="#code" title={f.str("function", i)} onClick={(e) => { e.preventDefault(); go({ fn: f.str("function", i), mod: f.str("module", i), file: undefined, line: undefined }, "code"); }}>{short(codeName(f.str("function", i), f.str("module", i)), 34)}</a></th>
              <td><Share m={m} row={f.row(i)} max={most} /></td>
            </tr>
          ))}
        </tbody>
      </table>
      {o.rows > 0 ? (
        <table>
          <caption>Data</caption>
          <tbody>
            {o.all().slice(0, 8).map((i) => (
              <tr key={i}>
                <th scope="row"><a href="#data" title={objectNames(o)[i]} onClick={(e) => { e.preventDefault(); go({ obj: objectNames(o)[i] }, "data"); }}>{short(base(objectNames(o)[i] ?? ""), 34)}</a></th>
                <td><Share m={m} row={o.row(i)} max={100} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : null}
    </div>
  );
}

/** Predictions of the analysis: a curve with its band, and points at the sizes of the caches. */
export function predicted(row: Obj): Curve[] {
  const point = (bytes: number | null, ratio: Estimate | null) => ({ x: bytes ?? 0, y: ratio?.value == null ? null : 100 * ratio.value, lo: ratio?.lo == null ? null : 100 * ratio.lo, hi: ratio?.hi == null ? null : 100 * ratio.hi });
  const known = (p: { x: number; y: number | null }): boolean => p.x > 0 && p.y !== null;
  const curve = objs(obj(row["misses"])["curve"]).map((c) => point(num(c["size"]), triple(c["ratio"]))).filter(known);
  const levels = missesOf(row).map((l) => point(l.bytes, l.ratio)).filter(known);
  const curves: Curve[] = [];
  if (curve.length > 1) curves.push({ name: "predicted, whole run", cls: "k1", points: curve });
  if (levels.length > 0) curves.push({ name: "predicted for this machine's caches", cls: "k1", dots: true, points: levels });
  return curves;
}

export function MissCurve({ m }: { m: Model }) {
  const known = caches(m);
  const block = num(m.summary["block"]) ?? 64;
  const complete = isComplete(m);
  const points = missRatio(bins(m.summary["D_hist"]), num(m.summary["first_touches"]) ?? 0, block, complete);
  const marks = known.list.map((c) => ({ x: c.bytes, label: known.known ? c.name : `${c.name}?` }));
  return (
    <>
      <Chart title="Misses by the size of a cache" xName="size of the cache" yName="misses" xLog xBinary curves={[{ name: complete ? "miss ratio" : "between these bounds", cls: "k0", points: complete ? points : points.map((p) => ({ ...p, y: p.hi })) }, ...predicted(m.summary)]} marks={marks} showX={bytes} showY={percent} yMax={100} xMax={known.list.at(-1)?.bytes ?? 1} />
      {points.length > 0 && <p class="note">
        {complete
          ? "Of a fully associative cache with LRU, from all reuse distances of the run."
          : "A window does not tell what its first touches would have found in the cache. The upper end counts all of them as misses, the lower end as hits. A wide band says: record longer windows, or the whole run (mgz run --full)."}
        {known.known ? "" : " L1?, L2?, L3? are common sizes: the trace does not say which caches the machine has."}
      </p>}
    </>
  );
}

function Growth({ m }: { m: Model }) {
  const growth = objs(m.run["growth"]);
  const windows = objs(m.run["windows"]);
  const rows = growth.length > 0 ? growth : windows;
  if (rows.length === 0) return <p class="empty">No window was long enough.</p>;
  const sampled = growth.length > 0;
  const points = (name: string) =>
    rows.map((r) => ({ x: num(r["W"]) ?? 1, y: num(r[sampled ? `${name}_hat` : name]), lo: sampled ? num(r[`${name}_lo`]) : null, hi: sampled ? num(r[`${name}_hi`]) : null })).filter((p) => p.y === null || p.y > 0);
  const vague = rows.filter((r) => r["F_undersampled"] === true).length;
  return (
    <>
      <Chart title="Distinct addresses of W consecutive loads" xName="loads, W" yName="addresses" xLog yLog curves={[{ name: "all", cls: "k0", points: points("F") }, { name: "strided", cls: "k-strided", points: points("F_str") }, { name: "irregular", cls: "k-irregular", points: points("F_irr") }]} showX={count} showY={count} />
      <p class="note">
        {sampled ? "Bands are 95 % intervals." : "Means over all windows of the run."} A curve that becomes flat says that the data are used again; a straight one, that new data come with every load.
        {vague > 0 ? ` The last ${vague} of ${rows.length} points are vague: too few windows. More: ${moreWindows(m)}.` : ""}
      </p>
    </>
  );
}
