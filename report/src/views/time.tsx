// The run in time: the tree of intervals as an icicle, with lanes of metrics above it.
import { useMemo, useRef } from "preact/hooks";
import { Classes, LineUse } from "../components/interval.tsx";
import { Histogram } from "../components/chart.tsx";
import { heat } from "../components/heat.ts";
import { csv } from "../components/csv.ts";
import { Take } from "../components/picture.tsx";
import { define } from "../components/tip.tsx";
import { isComplete, whole, type Model } from "../data/model.ts";
import { greatest, num, obj, objs, str, type Obj } from "../data/values.ts";
import { count, percent, seconds } from "../format.ts";
import { go, place } from "../state.ts";
import { Only, shortSeconds } from "../part.tsx";
import { Ends, marked, Stretch, useBrush } from "./brush.tsx";
import { bins, Footprint, FunctionLink, Panel, Parts, Share, Strides, Word } from "./common.tsx";

/** A node with its place in the tree. */
export interface Node {
  row: Obj;
  id: string;
  depth: number;
  from: number;
  to: number;
  children: Node[];
}

/** The tree of intervals; deeper than people can look, it ends. */
export function treeOf(row: Obj, depth = 0): Node {
  return {
    row,
    id: str(row["id"]),
    depth,
    from: num(row["from_ns"]) ?? 0,
    to: num(row["to_ns"]) ?? 0,
    children: depth > 40 ? [] : objs(row["children"]).map((c) => treeOf(c, depth + 1)),
  };
}

export const flat = (node: Node): Node[] => [node, ...node.children.flatMap(flat)];

const METRICS: [string, string, (x: number | null) => string][] = [
  ["A_hat", "loads per second", (x) => count(x)],
  ["dF", "growth", (x) => (x === null ? "–" : x.toFixed(2))],
  ["dF_irr_pct", "irregular part", percent],
  ["first_pct", "first touches", percent],
  ["D_mean", "D in window", count],
];

const WIDE = 1100;
const LANE = 34;
const LEFT = 130;

/** A metric of a node; loads as a rate, estimated where not all are recorded. */
function valueOf(m: Model, n: Node, key: string): number | null {
  if (key !== "A_hat") return num(n.row[key]);
  const loads = num(n.row["A_hat"]) ?? (isComplete(m) ? num(n.row["A"]) : null);
  return loads === null || n.to <= n.from ? null : (1e9 * loads) / (n.to - n.from);
}

/** Name of a node for people. */
export function label(n: Node, start: number): string {
  const kind = n.id ? `${str(n.row["kind"]) || "interval"} ${n.id}` : "Whole run";
  return `${kind}, ${seconds((n.from - start) / 1e9)} to ${seconds((n.to - start) / 1e9)}`;
}

/** Lanes alone, for the first screen. */
export function TimeStrip({ m }: { m: Model }) {
  const root = useMemo(() => (m.time["root"] ? treeOf(obj(m.time["root"])) : null), [m]);
  if (!root || root.to <= root.from) return <p class="empty">There were no samples to show in time.</p>;
  return <Lanes m={m} root={root} metrics={METRICS} width={600} start={root.from} />;
}

/** `start` is the time of the run's first sample. */
function Lanes({ m, root, metrics, width, start }: { m: Model; root: Node; metrics: typeof METRICS; width?: number; start: number }) {
  const W = width ?? WIDE;
  const after = (t: number): number => (t - start) / 1e9;
  const brush = useBrush(LEFT, W - 10, W, after(root.from), after(root.to));
  const { from, to } = marked();
  const nodes = root.children.length > 0 ? root.children : [root];
  const selected = place.value.selection.node;
  const x = (t: number): number => LEFT + ((W - LEFT - 10) * (t - root.from)) / Math.max(1, root.to - root.from);
  // A lane of which nothing is known says nothing; the run card tells why.
  const lanes = metrics.filter(([key]) => nodes.some((n) => valueOf(m, n, key) !== null));
  const H = lanes.length * (LANE + 8) + 22;
  const stretch = brush.now ?? (from === null && to === null ? null : [from ?? 0, to ?? after(root.to)]);
  const place_ = (s: number): number => Math.max(LEFT, Math.min(W - 10, x(start + 1e9 * s)));
  return (
    <svg class="lanes" viewBox={`0 0 ${W} ${H}`} role="img" aria-label="Metrics of the intervals of the run. The view Time has a table of them." {...brush.handlers}>
      {lanes.map(([key, name, show], lane) => {
        const y = lane * (LANE + 8);
        const values = nodes.map((n) => valueOf(m, n, key));
        const most = greatest(values, 1e-300);
        return (
          <g key={key}>
            <text class="axis" x={0} y={y + 14}>{name}<title>{define(key)}</title></text>
            <text class="axis dim" x={0} y={y + 28}>{`up to ${show(most)}`}</text>
            <line class="grid" x1={LEFT} x2={W - 10} y1={y + LANE} y2={y + LANE} />
            {nodes.map((s, i) => {
              const v = values[i];
              const wide = Math.max(1.5, x(s.to) - x(s.from) - 1);
              if (v == null) return <rect key={i} x={x(s.from)} y={y} width={wide} height={LANE} class="hatched-rect"><title>{key === "A_hat" ? "not known: how fast the code runs was not measured" : "not known: nothing of this kind was seen here"}</title></rect>;
              const h = Math.max(1, (LANE * v) / most);
              return <rect key={i} x={x(s.from)} y={y + LANE - h} width={wide} height={h} class={key === "dF_irr_pct" ? "c-irregular" : "bar"}><title>{`${name}: ${show(v)}`}</title></rect>;
            })}
          </g>
        );
      })}
      {nodes.map((n) => (
        <rect key={n.id} x={x(n.from)} y={0} width={Math.max(2, x(n.to) - x(n.from))} height={H - 22} class={`pick-node${selected === n.id ? " selected" : ""}`} onClick={() => brush.wasDrag() || go({ node: n.id || undefined }, "time")}>
          <title>{label(n, start)}</title>
        </rect>
      ))}
      {stretch && <rect class="stretch" x={Math.min(place_(stretch[0] ?? 0), place_(stretch[1] ?? 0))} y={0} width={Math.max(1, Math.abs(place_(stretch[1] ?? 0) - place_(stretch[0] ?? 0)))} height={H - 20} />}
      {[0, 0.25, 0.5, 0.75, 1].map((p) => (
        <text key={p} class={`axis ${p === 1 ? "end" : "mid"}`} x={x(root.from + p * (root.to - root.from))} y={H - 6}>{seconds(after(root.from) + (p * (root.to - root.from)) / 1e9)}</text>
      ))}
    </svg>
  );
}

export function Time({ m }: { m: Model }) {
  const root = useMemo(() => (m.time["root"] ? treeOf(obj(m.time["root"])) : null), [m]);
  // The time of the first sample of the run, of which this may be a part.
  const origin = useMemo(() => (whole.value?.time["root"] ? treeOf(obj(whole.value.time["root"])) : root), [whole.value, root]);
  const svg = useRef<SVGSVGElement>(null);
  if (!root || !origin) return <Panel title="When is locality worst?"><p class="empty hatched">The trace has no samples, so that there is nothing to show here. Why, and what makes some, stands in the view <a href="#quality">Data quality</a>.</p></Panel>;
  const all = flat(root);
  const selected = all.find((n) => n.id === (place.value.selection.node ?? "")) ?? root;
  // Zoomed to the selected node, or to the one around it where it has nothing inside.
  const focus = selected.children.length > 0 ? selected : (all.find((n) => n.children.includes(selected)) ?? root);
  const rows = greatest(flat(focus).map((n) => n.depth), 0) - focus.depth + 1;
  const x = (t: number): number => Math.max(LEFT - 5, Math.min(WIDE, LEFT + ((WIDE - LEFT - 10) * (t - focus.from)) / Math.max(1, focus.to - focus.from)));
  const H = Math.min(rows, 12) * 26 + 4;
  const most = greatest(all.map((n) => num(n.row["dF"])), 1e-9);
  const path = all.filter((n) => focus.id.startsWith(n.id) && n !== focus).sort((a, b) => a.depth - b.depth);
  const move = (event: KeyboardEvent): void => {
    const parent = all.find((n) => n.children.includes(selected));
    const around = parent?.children ?? [selected];
    const at = around.indexOf(selected);
    const next = { ArrowLeft: around[at - 1], ArrowRight: around[at + 1], ArrowUp: parent, ArrowDown: selected.children[0] }[event.key];
    if (!next) return;
    event.preventDefault();
    go({ node: next.id || undefined });
  };
  const table = (): string => csv(["id", "kind", "from_s", "to_s", "A", "dF", "dF_irr_pct", "first_pct", "D_mean"], all.map((n) => [n.id, str(n.row["kind"]), (n.from - origin.from) / 1e9, (n.to - origin.from) / 1e9, num(n.row["A"]), num(n.row["dF"]), num(n.row["dF_irr_pct"]), num(n.row["first_pct"]), num(n.row["D_mean"])]));
  const row = selected.row;
  return (
    <div class="stack">
      <Panel title="When is locality worst?" note="The run is divided where locality is worst, down to single windows. Click an interval to zoom in; the row above it zooms out. Arrow keys move. Draw over the lanes to mark a stretch of the run.">
        <Ends whole={(origin.to - origin.from) / 1e9} />
        <p class="crumbs">{path.map((n) => <a key={n.id} href="#time" onClick={(e) => { e.preventDefault(); go({ node: n.id || undefined }); }}>{n.id || "whole run"} ›</a>)} <strong>{focus.id || "whole run"}</strong></p>
        <Lanes m={m} root={focus} metrics={METRICS} start={origin.from} />
        <svg ref={svg} class="icicle" viewBox={`0 0 ${WIDE} ${H}`} role="img" aria-label="Intervals of the run, one inside the other; the table below has them all." tabindex={0} onKeyDown={move}>
          {flat(focus).filter((n) => n.depth - focus.depth < 12).map((n) => {
            const v = num(n.row["dF"]);
            const h = heat((v ?? 0) / most);
            const wide = Math.max(1, x(n.to) - x(n.from) - 1);
            const text = n.id || "whole run";
            return (
              <g key={n.id} class="pick" onClick={() => go({ node: n.id || undefined })}>
                <rect x={x(n.from)} y={(n.depth - focus.depth) * 26} width={wide} height={24} {...(v === null ? { class: "hatched-rect" } : { style: { fill: h.css } })} />
                {n === selected && <rect x={x(n.from) + 1} y={(n.depth - focus.depth) * 26 + 1} width={Math.max(1, wide - 2)} height={22} class="chosen" />}
                {wide > text.length * 8 + 10 && <text x={x(n.from) + 5} y={(n.depth - focus.depth) * 26 + 17} style={{ fill: v === null ? "currentColor" : h.ink }}>{text}{n.row["on_path"] === true && n !== root && wide > text.length * 8 + 75 ? " (worst)" : ""}</text>}
                <title>{`${label(n, origin.from)}\ngrowth ${v === null ? "not known" : v.toFixed(3)}\n${count(num(n.row["A"]))} loads seen`}</title>
              </g>
            );
          })}
        </svg>
        <p class="key"><Ramp /> growth: {define("dF")?.split("\n")[0]}</p>
        <details>
          <summary>Table</summary>
          <Take name="time" table={table} svg={svg} />
          <div class="twin" tabindex={0} role="region" aria-label="Intervals, table">
            <table>
              <thead><tr><th class="left">interval</th>{METRICS.map(([k, name]) => <th key={k}>{name}</th>)}</tr></thead>
              <tbody>
                {all.slice(0, 500).map((n) => (
                  <tr key={n.id} class={n === selected ? "selected" : ""}>
                    <td class="left"><button type="button" class="link" onClick={() => go({ node: n.id || undefined })}>{"\u00a0".repeat(n.depth * 2)}{label(n, origin.from)}</button></td>
                    {METRICS.map(([k, , show]) => <td key={k}>{show(valueOf(m, n, k))}</td>)}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      </Panel>
      <Stretch m={m} root={root} />
      <Panel title={`What happens in the ${label(selected, origin.from).toLowerCase()}?`}>
        {selected !== root && <p><Only patch={{ from: shortSeconds((selected.from - origin.from) / 1e9), to: shortSeconds((selected.to - origin.from) / 1e9), node: undefined }}>Analyse this interval alone</Only></p>}
        <div class="columns">
          <section>
            <dl class="facts">
              <div><dt><Word>share of the run</Word></dt><dd><Share m={m} row={row} /></dd></div>
              <div><dt><Word>loads seen</Word></dt><dd>{count(num(row["A"]))} in {count(num(row["samples"]))} windows</dd></div>
              <div><dt><Word>footprint</Word></dt><dd><Footprint m={m} row={row} max={num(row["F_64_hi"]) ?? num(row["F_64_hat"]) ?? num(row["F_64"]) ?? 1} /></dd></div>
              <div><dt><Word>pattern</Word></dt><dd><Classes strided={num(row["dF_str_pct"])} irregular={num(row["dF_irr_pct"])} /></dd></div>
              {num(row["line_bytes"]) !== null && <div><dt><Word>line use</Word></dt><dd><LineUse used={num(row["line_bytes"])} /></dd></div>}
              {num(row["thread"]) !== null && <div><dt><Word>thread</Word></dt><dd>{num(row["thread"])} of process {num(row["process"])}</dd></div>}
            </dl>
            <h3 class="minor">Steps from one address to the next</h3>
            <Strides rows={row["strides_hat"]} />
          </section>
          <section>
            <Parts title="Functions" rows={row["functions"]} name={(p) => <FunctionLink row={p} />} />
            <Parts title="Loops" rows={row["loops"]} name={(p) => <FunctionLink row={p} />} />
            {objs(row["functions"]).length === 0 && <p class="empty">The analysis lists functions of the intervals on the way to the worst one. For this one: <code>mgz analyze TRACE --zoom --node {selected.id}</code></p>}
          </section>
          <Histogram title="Reuse distances in this interval" xName="distance in blocks" bins={bins(row["D_hist"])} showX={count} />
        </div>
      </Panel>
    </div>
  );
}

export function Ramp() {
  return <span class="ramp" aria-hidden="true">{[0, 0.2, 0.4, 0.6, 0.8, 1].map((v) => <i key={v} style={{ background: heat(v).css }} />)}</span>;
}
