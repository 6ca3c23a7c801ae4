// The reuse distances of the data.
import { Chart, Histogram } from "../components/chart.tsx";
import { missRatio } from "../data/curves.ts";
import { caches, isComplete, type Model } from "../data/model.ts";
import { num, obj, objs } from "../data/values.ts";
import { bytes, count, percent, short } from "../format.ts";
import { place } from "../state.ts";
import { Affinity } from "./affinity.tsx";
import { bins, missesOf, Panel } from "./common.tsx";
import { Interval, Unknown } from "../components/interval.tsx";
import { MissCurve, predicted } from "./overview.tsx";
import { WhatIf } from "./what-if.tsx";

export function Locality({ m }: { m: Model }) {
  const s = place.value.selection;
  const f = m.tables.functions;
  const lines = m.tables.lines;
  const line = s.line ? lines.find((i) => lines.str("file", i) === s.file && String(lines.num("line", i)) === s.line) : -1;
  const at = s.fn ? f.find((i) => f.str("function", i) === s.fn) : -1;
  const row = line >= 0 ? lines.row(line) : at >= 0 ? f.row(at) : null;
  const name = line >= 0 ? `line ${s.line}` : short(s.fn ?? "", 40);
  const block = num(m.summary["block"]) ?? 64;
  const known = caches(m);
  const marks = known.list.map((c) => ({ x: c.bytes / block, label: known.known ? c.name : `${c.name}?` }));
  const inter = obj(m.run["inter_sample"]);
  const windows = objs(m.run["windows"]);
  const complete = isComplete(m);
  const words: [string, string] = ["whole run", name || "selected"];
  const own = row ? missRatio(bins(row["D_hist"]), num(row["first_touches"]) ?? 0, block, complete) : [];
  return (
    <div class="grid2">
      <Panel title="How much else is loaded before a reuse?" note={`Distinct blocks of ${bytes(block)} between two uses of the same one${complete ? "" : ", inside windows: longer ones show as first touches"}. ${row ? `Beside the whole run: ${name}.` : "Select a function or line to see its own beside it."}`}>
        <Histogram title="Reuses by distance" xName="distance in blocks" bins={bins(m.summary["D_hist"])} {...(row ? { over: bins(row["D_hist"]) } : {})} marks={marks} names={words} showX={count} />
        <p>
          First touches: {percent(num(m.summary["first_pct"]))} of the touches of the run{row ? `, ${percent(num(row["first_pct"]))} of ${name}` : ""}. They have no distance.
        </p>
      </Panel>
      <Panel title="How many loads until a reuse?" note="Loads from one use of a block to the next, inside windows.">
        <Histogram title="Reuses by interval" xName="loads" bins={bins(m.summary["interval_hist"])} names={words} showX={count} />
      </Panel>
      <Panel title="Would a larger cache help?">
        {own.length > 0 ? (
          <Chart title={`Misses of ${name} by the size of a cache`} xName="size of the cache" yName="misses" xLog xBinary curves={[{ name: complete ? "miss ratio" : "between these bounds", cls: "k0", points: complete ? own : own.map((p) => ({ ...p, y: p.hi })) }, ...predicted(row ?? {})]} marks={known.list.map((c) => ({ x: c.bytes, label: known.known ? c.name : `${c.name}?` }))} showX={bytes} showY={percent} yMax={100} xMax={known.list.at(-1)?.bytes ?? 1} />
        ) : (
          <MissCurve m={m} />
        )}
        {missesOf(row ?? m.summary).map((l) => (
          <p key={l.level}>
            Loads that are predicted to miss the {l.level}: {l.ratio ? <Interval e={{ value: 100 * (l.ratio.value ?? 0), lo: l.ratio.lo === null ? null : 100 * l.ratio.lo, hi: l.ratio.hi === null ? null : 100 * l.ratio.hi }} max={100} show={percent} /> : <Unknown why="Not predicted: distances beyond the windows are not known." />}
          </p>
        ))}
      </Panel>
      <Panel title="Do longer stretches reuse more?" note="Means over all windows of W loads.">
        <Chart title="Mean reuse distance in windows of W loads" xName="loads, W" yName="blocks" xLog curves={[{ name: "D", cls: "k0", points: windows.map((w) => ({ x: num(w["W"]) ?? 1, y: num(w["D_mean"]) })) }]} showX={count} showY={count} height={220} />
      </Panel>
      {num(inter["reuses"]) !== null && (
        <Panel title="When are pages seen again?" note="Pages from one window to the next that touches them. Uses between windows are not seen, so that true intervals are shorter.">
          <Histogram title="Pages by the loads until they are seen again" xName="loads" bins={bins(inter["interval_hist"])} names={["pages", "pages"]} showX={count} />
          <p>{count(num(inter["reuses"]))} pages were seen again, {count(num(inter["first_touches"]))} once; mean interval {count(num(inter["interval_mean"]))} loads, estimated distance {count(num(inter["D_mean_hat"]))} pages.</p>
        </Panel>
      )}
      <div class="wide2"><WhatIf key={String(m.summary["block"])} m={m} row={row} name={name} /></div>
      <div class="wide2"><Affinity m={m} /></div>
    </div>
  );
}
