// Estimates with their intervals; what is not known is hatched, and says why.
import { range as rangeOf } from "../format.ts";
import type { Estimate } from "../data/values.ts";

/** A bar from 0 to `max`: the interval as a band, the estimate as a tick. */
export function Interval({ e, max, show, why, bounds }: { e: Estimate; max: number; show: (x: number | null) => string; why?: string; /** What the ends are, where they are not those of a 95 % interval. */ bounds?: string }) {
  const exact = e.value === null && e.lo !== null && e.hi === null && e.vague === false;
  const value = exact ? e.lo : e.value;
  if (value === null) return <Unknown why={why ?? "Not known for this row."} />;
  const at = (x: number): number => (max > 0 ? Math.max(0, Math.min(100, (100 * x) / max)) : 0);
  const lo = exact ? value : (e.lo ?? 0);
  const open = !exact && e.hi === null;
  const hi = exact ? value : (e.hi ?? max);
  const range = exact ? "exact" : open ? `at least ${show(lo)}` : `${show(lo)} to ${show(hi)}`;
  const tip = exact ? "Exact count over what was recorded." : bounds ? `Bounds: ${range}. ${bounds}` : `95 % interval: ${range}.${e.vague ? `\nToo vague to act on: ${why ?? "more windows are needed."}` : ""}`;
  return (
    <span class={`interval${e.vague ? " vague" : ""}`} data-tip={tip}>
      <span class="interval-text">
        {show(value)}
        {!exact && <small> {open ? `≥ ${show(lo)}` : rangeOf(show(lo), show(hi))}</small>}
      </span>
      <svg class="interval-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect x="0" y="2" width={at(value)} height="2" class="bar" />
        {!exact && <rect x={at(lo)} y="0" width={Math.max(0.8, at(hi) - at(lo))} height="6" class={e.vague || open ? "band hatched" : "band"} />}
        <rect x={Math.max(0, at(value) - 0.7)} y="0" width="1.4" height="6" class="tick" />
      </svg>
    </span>
  );
}

export function Unknown({ why }: { why: string }) {
  return (
    <span class="unknown" data-tip={why} title={why}>
      not known
    </span>
  );
}

/** Shares of the classes: Strided blue, Irregular orange, Constant grey, everywhere. */
export function Classes({ strided, irregular, constant }: { strided: number | null; irregular: number | null; constant?: number | null }) {
  if (strided === null && irregular === null) return <Unknown why="No address of this row has a class." />;
  const s = Math.max(0, Math.min(100, strided ?? 0));
  const i = Math.max(0, Math.min(100 - s, irregular ?? 0));
  const tip = `Share of the footprint growth. Strided (a constant step, which prefetchers follow): ${s.toFixed(0)} %; irregular (addresses depend on data): ${i.toFixed(0)} %.${constant == null ? "" : ` Constant loads: ${constant.toFixed(0)} % of all.`}`;
  return (
    <span class="classes" data-tip={tip}>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect x="0" y="0" width="100" height="8" class="c-rest" />
        <rect x="0" y="0" width={s} height="8" class="c-strided" />
        <rect x={s} y="0" width={i} height="8" class="c-irregular" />
      </svg>
      <small>{s >= i ? `${s.toFixed(0)} % strided` : `${i.toFixed(0)} % irregular`}</small>
    </span>
  );
}

/** 64 bytes of a cache line, those in use filled. */
export function LineUse({ used }: { used: number | null }) {
  if (used === null) return <Unknown why="No line was fetched by this row in the windows." />;
  const width = Math.max(0, Math.min(64, used));
  return (
    <span class="classes" data-tip={`${used.toFixed(1)} of the 64 bytes of each fetched cache line are used.`}>
      <svg viewBox="0 0 64 8" preserveAspectRatio="none" aria-hidden="true">
        <rect x="0" y="0" width="64" height="8" class="c-rest" />
        <rect x="0" y="0" width={width} height="8" class="c-used" />
      </svg>
      <small>{used.toFixed(1)} of 64 B</small>
    </span>
  );
}
