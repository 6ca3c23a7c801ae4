// Marking a stretch of the run with the pointer, or with two numbers; what the report knows of it.
import { useRef, useState } from "preact/hooks";
import { num, obj, objs, list, str, type Obj } from "../data/values.ts";
import { served, type Model } from "../data/model.ts";
import { count, percent, seconds } from "../format.ts";
import { shortSeconds } from "../part.tsx";
import { go, place } from "../state.ts";
import { ObjectLink, Panel, Word } from "./common.tsx";
import type { Node } from "./time.tsx";

/** The marked stretch, seconds after the first sample. */
export function marked(): { from: number | null; to: number | null } {
  const s = place.value.selection;
  const of = (text: string | undefined): number | null => (text ? num(Number(text)) : null);
  return { from: of(s.from), to: of(s.to) };
}

const mark = (from: number, to: number): void => go({ from: shortSeconds(Math.max(0, Math.min(from, to))), to: shortSeconds(Math.max(from, to)) });

/**
 * Pointer handlers for a picture that shows `from` to `to` (seconds) between two places of its
 * width, and the stretch that is being drawn.
 */
export function useBrush(left: number, right: number, width: number, from: number, to: number) {
  const begun = useRef<number | null>(null);
  const [now, setNow] = useState<[number, number] | null>(null);
  const moved = useRef(false);
  const at = (e: PointerEvent): number => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    const x = ((e.clientX - box.left) * width) / Math.max(1, box.width);
    return from + ((to - from) * Math.max(0, Math.min(1, (x - left) / Math.max(1, right - left)))) ;
  };
  return {
    now,
    /** A click that ends a stretch selects nothing. */
    wasDrag: (): boolean => moved.current,
    handlers: {
      onPointerDown: (e: PointerEvent) => {
        if (e.button !== 0) return;
        begun.current = at(e);
        moved.current = false;
      },
      onPointerMove: (e: PointerEvent) => {
        if (begun.current === null) return;
        const here = at(e);
        if (!moved.current && Math.abs(here - begun.current) < (to - from) * 0.006) return;
        if (!moved.current) (e.currentTarget as Element).setPointerCapture(e.pointerId);
        moved.current = true;
        setNow([begun.current, here]);
      },
      onPointerUp: (e: PointerEvent) => {
        const start = begun.current;
        begun.current = null;
        setNow(null);
        if (start !== null && moved.current) mark(start, at(e));
      },
      onPointerCancel: () => {
        begun.current = null;
        setNow(null);
      },
    },
  };
}

/** The two ends as numbers, for the keyboard. */
export function Ends({ whole }: { whole: number }) {
  const { from, to } = marked();
  const set = (a: number | null, b: number | null): void => {
    const [x, y] = [a ?? 0, b ?? whole];
    if (y > x) mark(x, y);
  };
  const value = (e: Event): number | null => num(Number.parseFloat((e.currentTarget as HTMLInputElement).value));
  const step = Number((whole / 100).toPrecision(1)) || 0.001;
  return (
    <p class="ends">
      <label>from <input type="number" min="0" max={whole} step={step} value={from === null ? "" : shortSeconds(from)} placeholder="0" onChange={(e) => set(value(e), to)} /></label>
      <label>to <input type="number" min="0" max={whole} step={step} value={to === null ? "" : shortSeconds(to)} placeholder={shortSeconds(whole)} onChange={(e) => set(from, value(e))} /></label>
      <span>seconds</span>
      {(from !== null || to !== null) && <button type="button" class="small" onClick={() => go({ from: undefined, to: undefined })}>whole run</button>}
    </p>
  );
}

/** Parts of intervals that lie in a stretch, 0 to 1. */
function inside(from: number, to: number, a: number, b: number): number {
  if (to <= from) return from >= a && from <= b ? 1 : 0;
  return Math.max(0, Math.min(to, b) - Math.max(from, a)) / (to - from);
}

const leaves = (n: Node): Node[] => (n.children.length === 0 ? [n] : n.children.flatMap(leaves));

/** Shows the report's data on the stretch; `mgz serve` analyses it instead. */
export function Stretch({ m, root }: { m: Model; root: Node }) {
  const { from, to } = marked();
  if (served.value || (from === null && to === null)) return null;
  const a = root.from + 1e9 * (from ?? 0);
  const b = to === null ? root.to : root.from + 1e9 * to;
  const parts = leaves(root).map((n) => ({ n, part: inside(n.from, n.to, a, b) })).filter((p) => p.part > 0);
  const loads = parts.reduce((s, p) => s + p.part * (num(p.n.row["A"]) ?? 0), 0);
  const windows = parts.reduce((s, p) => s + p.part * (num(p.n.row["samples"]) ?? 0), 0);
  const mean = (key: string): number | null => {
    const known = parts.filter((p) => num(p.n.row[key]) !== null);
    const weight = known.reduce((s, p) => s + p.part * (num(p.n.row["A"]) ?? 0), 0);
    return weight > 0 ? known.reduce((s, p) => s + p.part * (num(p.n.row["A"]) ?? 0) * (num(p.n.row[key]) ?? 0), 0) / weight : null;
  };
  const columns = objs(m.heat["columns"]);
  const cover = columns.map((c) => inside(num(c["from_ns"]) ?? 0, num(c["to_ns"]) ?? 0, a, b));
  const regions = objs(m.heat["rows"])
    .map((r: Obj) => ({ label: str(r["label"]) || str(r["start"]), loads: list(r["A"]).reduce((s: number, v, i) => s + (num(v) ?? 0) * (cover[i] ?? 0), 0) }))
    .sort((x, y) => y.loads - x.loads)
    .filter((r) => r.loads > 0)
    .slice(0, 8);
  const all = regions.reduce((s, r) => s + r.loads, 0);
  const cut = parts.some((p) => p.part < 1);
  return (
    <Panel title={`What happens from ${seconds(from ?? 0)} to ${seconds((b - root.from) / 1e9)}?`} note={`From ${parts.length === 1 ? "the smallest interval" : `the ${parts.length} smallest intervals`} that it meets.${cut ? " Of those that it cuts their part by time counts, as if they were even." : ""}`}>
      <div class="columns">
        <dl class="facts">
          <div><dt><Word>loads seen</Word></dt><dd>about {count(Math.round(loads))} in {count(Math.round(windows))} windows, {percent((100 * loads) / Math.max(1, num(root.row["A"]) ?? loads))} of those of the run</dd></div>
          <div><dt><Word>growth</Word></dt><dd>{mean("dF")?.toFixed(3) ?? "not known"} new addresses per load in windows (run: {num(root.row["dF"])?.toFixed(3) ?? "not known"})</dd></div>
          <div><dt><Word>irregular part</Word></dt><dd>{percent(mean("dF_irr_pct"))} (run: {percent(num(root.row["dF_irr_pct"]))})</dd></div>
          <div><dt><Word>first touches</Word></dt><dd>{percent(mean("first_pct"))} (run: {percent(num(root.row["first_pct"]))})</dd></div>
        </dl>
        <section class="parts">
          <h3 class="minor">Regions that are loaded most here</h3>
          <ul>
            {regions.map((r) => (
              <li key={r.label}>
                <span class="parts-name"><ObjectLink name={r.label} /></span>
                <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width={(100 * r.loads) / Math.max(1, all)} height="6" class="bar" /></svg>
                <span class="parts-share">{percent((100 * r.loads) / Math.max(1, all))}</span>
              </li>
            ))}
          </ul>
          {regions.length === 0 && <p class="empty">The heat map has nothing here.</p>}
        </section>
      </div>
      {obj(m.heat)["columns"] === undefined && <p class="note">The report has no heat map.</p>}
    </Panel>
  );
}
