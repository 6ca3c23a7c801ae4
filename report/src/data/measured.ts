// Memory samples of the processor, and the predicted misses beside them.
import { num, obj, objs, str, triple, type Estimate, type Obj } from "./values.ts";

/** Kinds of rows. */
export const KINDS = ["functions", "lines", "objects"] as const;
export type Kind = (typeof KINDS)[number];

/** How a measured number and a predicted one stand to each other. */
export type Verdict = "more" | "less" | "agree" | "not comparable" | "";

/** Misses of a level per 100 loads. */
export interface Compared {
  level: string;
  measured: Estimate;
  predicted: Estimate | null;
  verdict: Verdict;
}

const NOTHING: Estimate = { value: null, lo: null, hi: null };

/** A ratio in percent; one without uncertainty is exact. */
function percentOf(v: unknown): Estimate {
  const e = triple(v);
  if (e === null || e.value === null) return NOTHING;
  const times = (x: number | null): number | null => (x === null ? null : 100 * x);
  return e.lo === e.hi ? { value: null, lo: times(e.value), hi: null, vague: false } : { value: times(e.value), lo: times(e.lo), hi: times(e.hi), vague: false };
}

/** The value of an estimate, exact or not. */
export const valueOf = (e: Estimate | null): number | null => (e === null ? null : (e.value ?? (e.vague === false ? e.lo : null)));

/** `allLoads`: the samples are drawn from all loads, so that the two are comparable. */
export function comparedOf(row: Obj, allLoads: boolean): Compared[] {
  return objs(row["misses"]).map((m) => {
    const [measured, predicted] = [percentOf(m["measured"]), m["predicted"] == null ? null : percentOf(m["predicted"])];
    const more = (valueOf(predicted) ?? 0) > (valueOf(measured) ?? 0);
    const verdict: Verdict = predicted === null ? "" : !allLoads ? "not comparable" : m["differs"] === true ? (more ? "more" : "less") : m["differs"] === false ? "agree" : "";
    return { level: str(m["level"]), measured, predicted, verdict };
  });
}

/** Loads of 100 sampled ones of the run that hit in one of the two and miss in the other; 0 where they agree. */
export function disputed(row: Obj, level: string, allLoads: boolean): number | null {
  const of = comparedOf(row, allLoads).find((c) => c.level === level);
  const share = triple(row["share_pct"])?.value ?? null;
  const [measured, predicted] = [valueOf(of?.measured ?? null), valueOf(of?.predicted ?? null)];
  if (share === null || measured === null || predicted === null) return null;
  return of?.verdict === "more" || of?.verdict === "less" ? (share * Math.abs(predicted - measured)) / 100 : 0;
}

/** The samples of a run. */
export interface Measured {
  all: Obj;
  allLoads: boolean;
  /** Predictions stand beside at least one number. */
  compared: boolean;
  levels: string[];
  rows: Record<Kind, Obj[]>;
}

/** Null: the run has no memory samples. */
export function measuredOf(value: unknown): Measured | null {
  const all = obj(value);
  if ((num(all["samples"]) ?? 0) <= 0) return null;
  const allLoads = all["of_all_loads"] === true;
  const rows = { functions: objs(all["functions"]), lines: objs(all["lines"]), objects: objs(all["objects"]) };
  const has = (row: Obj): boolean => comparedOf(row, allLoads).some((c) => c.predicted !== null);
  return { all, allLoads, compared: has(all) || KINDS.some((k) => rows[k].some(has)), levels: comparedOf(all, allLoads).map((c) => c.level), rows };
}

/** What the samples are drawn from, in words. */
export function drawnIn(drawn: string): string {
  if (drawn === "loads" || drawn === "operations") return "drawn from all loads";
  if (drawn === "cycles") return "drawn by cycles, so that slow loads are met more often";
  if (drawn === "mixed") return "drawn in several ways";
  return drawn.startsWith("loads of ") ? `drawn from ${drawn}` : "what they are drawn from is not known";
}
