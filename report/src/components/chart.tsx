// Curves as SVG: they have at most some hundred points, print well, and can be styled by the page.
import { useRef, useState } from "preact/hooks";
import { csv } from "./csv.ts";
import { Take } from "./picture.tsx";

export interface Curve {
  name: string;
  /** x, y, and the ends of y's interval. */
  points: { x: number; y: number | null; lo?: number | null; hi?: number | null }[];
  cls: string;
  step?: boolean;
  /** Points with whiskers instead of a curve. */
  dots?: boolean;
}

export interface Mark {
  x: number;
  label: string;
}

const W = 560;
const LEFT = 62;
const RIGHT = 14;
const BOTTOM = 42;
const TOP = 28;

function scale(values: number[], log: boolean, from: number, to: number, binary = false): { at: (x: number) => number; ticks: number[]; lo: number; hi: number } {
  const good = values.filter((v) => Math.abs(v) < 1e200 && (!log || v > 1e-200));
  let lo = good.length > 0 ? Math.min(...good) : log ? 1 : 0;
  let hi = good.length > 0 ? Math.max(...good) : 1;
  if (!log && lo > 0) lo = 0;
  if (hi <= lo) hi = log ? lo * 10 : lo + 1;
  const f = (x: number): number => (log ? Math.log(Math.max(x, lo / 10)) : x);
  const at = (x: number): number => from + ((to - from) * (f(x) - f(lo))) / (f(hi) - f(lo));
  const ticks: number[] = [];
  if (log) {
    const base = binary ? (hi / lo > 1e5 ? 32 : 4) : hi / lo > 1e7 ? 1000 : hi / lo > 40 ? 10 : 2;
    for (let p = Math.ceil(Math.log(lo) / Math.log(base) - 1e-9); base ** p <= hi * 1.0001 && ticks.length < 40; p++) ticks.push(base ** p);
  } else {
    const rough = (hi - lo) / 4;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5, 10].find((m) => m * power >= rough) ?? 10);
    for (let t = Math.ceil(lo / step) * step; t <= hi * 1.0001 && ticks.length < 40; t += step) ticks.push(t);
  }
  return { at, ticks, lo, hi };
}

/** One or more curves with their bands. */
export function Chart(props: {
  title: string;
  xName: string;
  yName: string;
  curves: Curve[];
  marks?: Mark[];
  xLog?: boolean;
  /** Ticks at powers of two: sizes. */
  xBinary?: boolean;
  yLog?: boolean;
  yMax?: number;
  xMin?: number;
  xMax?: number;
  height?: number;
  showX: (x: number | null) => string;
  showY: (y: number | null) => string;
}) {
  const svg = useRef<SVGSVGElement>(null);
  const [near, setNear] = useState<number | null>(null);
  const H = props.height ?? 250;
  const { curves, marks = [] } = props;
  const all = curves.flatMap((c) => c.points);
  if (all.every((p) => p.y === null)) return <p class="empty">{props.title}: nothing to draw.</p>;
  const xs = all.map((p) => p.x).concat(props.xMin ?? [], props.xMax ?? []);
  const x = scale(xs, props.xLog ?? false, LEFT, W - RIGHT, props.xBinary);
  const y = scale(all.flatMap((p) => [p.y, p.lo ?? null, p.hi ?? null]).filter((v): v is number => v !== null).concat(props.yMax ?? []), props.yLog ?? false, H - BOTTOM, TOP);
  const top = (v: number): number => Math.max(TOP, Math.min(H - BOTTOM, y.at(v)));
  const path = (points: [number, number][], step: boolean): string => points.map(([a, b], i) => (i === 0 ? `M${a.toFixed(1)} ${b.toFixed(1)}` : step ? `H${a.toFixed(1)}V${b.toFixed(1)}` : `L${a.toFixed(1)} ${b.toFixed(1)}`)).join("");
  const band = (c: Curve): string => {
    const known = c.dots ? [] : c.points.filter((p) => p.lo != null);
    if (known.length < 2) return "";
    const up = known.map((p): [number, number] => [x.at(p.x), top(p.hi ?? y.hi)]);
    const down = known.map((p): [number, number] => [x.at(p.x), top(p.lo ?? 0)]).reverse();
    return `${path(up, false)}L${path(down, false).slice(1)}Z`;
  };
  const grid = [...new Set(all.map((p) => p.x))].sort((a, b) => a - b);
  const hover = (event: MouseEvent): void => {
    const box = svg.current?.getBoundingClientRect();
    if (!box) return;
    const at = ((event.clientX - box.left) * W) / box.width;
    let best: number | null = null;
    for (const g of grid) if (best === null || Math.abs(x.at(g) - at) < Math.abs(x.at(best) - at)) best = g;
    setNear(best);
  };
  const point = (c: Curve, at: number) => c.points.find((p) => p.x === at);
  const range = (p: Curve["points"][number]): string => (p.lo == null ? "" : ` (${props.showY(p.lo)} to ${p.hi == null ? "unbounded" : props.showY(p.hi)})`);
  const table = (): string =>
    csv(
      [props.xName, ...curves.flatMap((c) => [c.name, `${c.name} from`, `${c.name} to`])],
      grid.map((g) => [g, ...curves.flatMap((c) => [point(c, g)?.y ?? null, point(c, g)?.lo ?? null, point(c, g)?.hi ?? null])]),
    );
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <svg ref={svg} viewBox={`0 0 ${W} ${H}`} role="img" aria-label={`${props.title}. The table below has its numbers.`} onMouseMove={hover} onMouseLeave={() => setNear(null)}>
        {y.ticks.map((t) => (
          <g key={t}>
            <line class="grid" x1={LEFT} x2={W - RIGHT} y1={y.at(t)} y2={y.at(t)} />
            <text class="axis end" x={LEFT - 6} y={y.at(t) + 4}>
              {props.showY(t)}
            </text>
          </g>
        ))}
        {x.ticks.map((t) => (
          <text key={t} class="axis mid" x={x.at(t)} y={H - BOTTOM + 16}>
            {props.showX(t)}
          </text>
        ))}
        <text class="axis mid" x={(LEFT + W - RIGHT) / 2} y={H - 6}>
          {props.xName}
        </text>
        <text class="axis" x={4} y={14}>
          {props.yName}
        </text>
        {marks
          .filter((m) => m.x >= x.lo && m.x <= x.hi)
          .map((m) => (
            <g key={m.label}>
              <line class="mark" x1={x.at(m.x)} x2={x.at(m.x)} y1={TOP} y2={H - BOTTOM} />
              <text class={`mark-text${x.at(m.x) > W - 60 ? " end" : ""}`} x={x.at(m.x) + (x.at(m.x) > W - 60 ? -3 : 3)} y={TOP + 10}>
                {m.label}
              </text>
            </g>
          ))}
        {curves.map((c) => (
          <g key={c.name} class={c.cls}>
            <path class="curve-band" d={band(c)} />
            {c.dots && c.points.map((p) => p.y !== null && <g key={p.x}><line class="whisker" x1={x.at(p.x)} x2={x.at(p.x)} y1={top(p.lo ?? p.y)} y2={top(p.hi ?? p.y)} /><circle class="dot" cx={x.at(p.x)} cy={top(p.y)} r={4} /></g>)}
            <path class="curve" d={c.dots ? "" : path(c.points.filter((p) => p.y !== null).map((p): [number, number] => [x.at(p.x), top(p.y ?? 0)]), c.step ?? false)} />
          </g>
        ))}
        {near !== null && <line class="near" x1={x.at(near)} x2={x.at(near)} y1={TOP} y2={H - BOTTOM} />}
      </svg>
      <div class="legend">
        {curves.map((c) => {
          const p = near === null ? undefined : point(c, near);
          return (
            <span key={c.name} class={c.cls}>
              <i /> {c.name}
              {p && p.y !== null ? `: ${props.showY(p.y)}${range(p)}` : ""}
            </span>
          );
        })}
        {near !== null && <span>at {props.showX(near)}</span>}
      </div>
      <details>
        <summary>Table</summary>
        <Take name="curve" table={table} svg={svg} />
        <div class="twin" tabindex={0} role="region" aria-label={`${props.title}, table`}>
          <table>
            <thead>
              <tr>
                <th>{props.xName}</th>
                {curves.map((c) => (
                  <th key={c.name}>{c.name}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {grid.map((g) => (
                <tr key={g}>
                  <td>{props.showX(g)}</td>
                  {curves.map((c) => {
                    const p = point(c, g);
                    return <td key={c.name}>{p && p.y !== null ? props.showY(p.y) + range(p) : "–"}</td>;
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

/** Bars of a histogram with bins 0, 1, 2–3, 4–7, …, as shares. */
export function Histogram(props: { title: string; xName: string; bins: { from: number; to: number; count: number }[]; over?: { from: number; count: number }[]; marks?: Mark[]; names?: [string, string]; showX: (x: number | null) => string }) {
  const total = props.bins.reduce((s, b) => s + b.count, 0);
  const overTotal = (props.over ?? []).reduce((s, b) => s + b.count, 0);
  if (total === 0) return <p class="empty">{props.title}: no reuse inside a window.</p>;
  // 0 has no place on a logarithmic axis; it stands at a half.
  const at = (from: number): number => (from === 0 ? 0.5 : from);
  const curves: Curve[] = [{ name: props.names?.[0] ?? "share of the reuses", cls: "k0", step: true, points: props.bins.map((b) => ({ x: at(b.from), y: (100 * b.count) / total })) }];
  if (props.over && overTotal > 0) curves.push({ name: props.names?.[1] ?? "selected", cls: "k1", step: true, points: props.over.map((b) => ({ x: at(b.from), y: (100 * b.count) / overTotal })) });
  return <Chart title={props.title} xName={props.xName} yName="share" xLog curves={curves} {...(props.marks ? { marks: props.marks } : {})} showX={(v) => (v !== null && v < 1 ? "0" : props.showX(v))} showY={(v) => (v === null ? "–" : `${v === 0 ? "0" : v >= 99.5 ? v.toFixed(0) : v.toPrecision(2)} %`)} height={220} />;
}
