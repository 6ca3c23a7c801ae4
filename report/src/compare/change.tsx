// One comparison: both sides with their intervals, the change with its own, and what is said of it.
import { Interval } from "../components/interval.tsx";
import { num, obj, str, type Estimate, type Obj } from "../data/values.ts";
import { count, percent } from "../format.ts";

export type Verdict = "better" | "worse" | "same" | "unclear";

const WORDS: Record<Verdict, string> = { better: "▼ better", worse: "▲ worse", same: "= the same", unclear: "? cannot be told" };

const MEANING: Record<Verdict, string> = {
  better: "Smaller, and not by chance.",
  worse: "Greater, and not by chance.",
  same: "The interval of the change lies within 10 % of the base, or the difference is too small to matter.",
  unclear: "Neither a change nor the same can be told from these runs. More runs a side, or longer ones, narrow the intervals.",
};

export const verdictOf = (row: Obj): Verdict => (["better", "worse", "same"] as const).find((v) => v === row["verdict"]) ?? "unclear";

export function Word({ row }: { row: Obj }) {
  const v = verdictOf(row);
  return <span class={`word ${v}`} data-tip={MEANING[v]} tabindex={0}>{WORDS[v]}</span>;
}

const METRICS: Record<string, [string, string]> = {
  time: ["time", "CPU seconds, or the share of the CPU time where seconds are unknown."],
  share: ["share of loads", "Share of the loads."],
  cpu: ["CPU seconds", "CPU time of the program."],
  loads: ["loads", "Executed loads."],
  F: ["footprint", "Distinct addresses that the run touches."],
  growth: ["growth", "New addresses per load."],
};

/** Name and definition of a number. */
export function metricName(metric: string): [string, string] {
  const known = METRICS[metric];
  if (known) return known;
  const distance = /^D(\d+)$/.exec(metric);
  if (distance) return [`distance, ${distance[1]} %`, `${distance[1]} % of the reuses have at most this distance: distinct blocks between two uses.`];
  const level = /^misses\.(.+)$/.exec(metric);
  if (level) return [`${level[1]} misses`, `Misses of the ${level[1]} cache, predicted or, of full traces, counted.`];
  return [metric.replaceAll("_", " "), "A number that is compared."];
}

/** Returns the formatter for the number of a row. */
export const shower = (row: Obj): ((x: number | null) => string) => (str(row["unit"]).startsWith("%") ? percent : count);

export function cell(v: unknown): Estimate {
  const c = obj(v);
  const [value, lo, hi] = [num(c["value"]), num(c["lo"]), num(c["hi"])];
  if (value !== null && lo === value && hi === value) return { value: null, lo: value, hi: null, vague: false };
  return { value, lo, hi };
}

export const valueOf = (v: unknown): number | null => num(obj(v)["value"]);

/** The greatest number of both sides: what their bars have as scale. */
export function scaleOf(row: Obj): number {
  const ends = [row["base"], row["new"]].flatMap((v) => [valueOf(v), num(obj(v)["hi"])]);
  return Math.max(1e-300, ...ends.filter((x): x is number => x !== null));
}

export function Side({ row, side }: { row: Obj; side: "base" | "new" }) {
  const { value, lo, hi } = cell(row[side]);
  if (value !== null && lo === null && hi === null)
    return (
      <span class="interval" data-tip="How far this number may be off is not known: one run has no interval for it. More runs a side have one.">
        <span class="interval-text">{shower(row)(value)}<small> interval not known</small></span>
        <svg class="interval-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect y="2" width={Math.max(0, Math.min(100, (100 * value) / scaleOf(row)))} height="2" class="bar" /></svg>
      </span>
    );
  return <Interval e={cell(row[side])} max={scaleOf(row)} show={shower(row)} why="This side does not know that number." />;
}

const signed = (x: number): string => `${x > 0 ? "+" : x < 0 ? "−" : ""}${Math.abs(x) >= 9.95 ? Math.abs(x).toFixed(0) : Math.abs(x).toFixed(1)} %`;

/** Text of the change. */
export function changeText(row: Obj): string {
  const pct = num(row["change_pct"]);
  if (pct !== null) return pct === 0 ? "0 %" : signed(pct);
  return valueOf(row["base"]) === 0 && valueOf(row["new"]) === 0 ? "0 %" : "new";
}

/** A bar from no change to the change, with its interval; the ends are half and double. */
export function Change({ row }: { row: Obj }) {
  const [pct, low, hi] = [num(row["change_pct"]), num(row["change_lo"]), num(row["change_hi"])];
  // No number is below zero.
  const lo = low === null ? null : Math.max(-100, low);
  // Half and double lie equally far from no change.
  const at = (p: number): number => Math.max(1, Math.min(99, 50 + (50 * Math.log2(Math.max(0.02, 1 + p / 100))) / 1.2));
  const v = verdictOf(row);
  const range = lo !== null && hi !== null && (lo !== pct || hi !== pct) ? ` ${signed(lo)} to ${signed(hi)}` : "";
  return (
    <span class={`interval change ${v}`} data-tip={`Change in percent of the base.${range ? ` 95 % interval: ${range}.` : " No interval is known, or the numbers are exact."}\nThe line in the middle is no change, the ends are half and double.`}>
      <span class="interval-text">{changeText(row)}<small>{range}</small></span>
      <svg class="interval-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <line x1="50" x2="50" y1="0" y2="6" class="middle" />
        {pct !== null && <rect x={Math.min(50, at(pct))} y="2" width={Math.max(0.6, Math.abs(at(pct) - 50))} height="2" class="change-bar" />}
        {lo !== null && hi !== null && <rect x={at(lo)} y="0" width={Math.max(0.8, at(hi) - at(lo))} height="6" class={v === "unclear" ? "band hatched" : "change-band"} />}
        {pct !== null && <rect x={at(pct) - 0.7} y="0" width="1.4" height="6" class="tick" />}
      </svg>
    </span>
  );
}
