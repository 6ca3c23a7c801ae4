// What a value of the JSON is. Reports may come from other versions: whatever is not there, or is of another kind, is unknown.

/** An object of the JSON. */
export type Obj = Record<string, unknown>;

export const num = (v: unknown): number | null => (typeof v === "number" && Number.isFinite(v) ? v : null);
export const str = (v: unknown): string => (typeof v === "string" ? v : "");
export const obj = (v: unknown): Obj => (typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Obj) : {});
export const list = (v: unknown): unknown[] => (Array.isArray(v) ? v : []);
export const objs = (v: unknown): Obj[] => list(v).map(obj);
export const strs = (v: unknown): string[] => list(v).filter((s): s is string => typeof s === "string");

/** An estimate within its interval; an end that nothing bounds is null. */
export interface Estimate {
  value: number | null;
  lo: number | null;
  hi: number | null;
  /** Too few samples to act on. */
  vague?: boolean;
}

/** `NAME_hat` with its interval, else the exact `NAME`. */
export function estimate(row: Obj, name: string): Estimate {
  const hat = num(row[`${name}_hat`]);
  if (hat === null) {
    const exact = num(row[name]);
    return { value: null, lo: exact, hi: null, vague: false };
  }
  return { value: hat, lo: num(row[`${name}_lo`]), hi: num(row[`${name}_hi`]), vague: row["F_undersampled"] === true };
}

/** `[lo, value, hi]`, as predicted misses have it. */
export function triple(v: unknown): Estimate | null {
  const [lo, value, hi] = list(v).map(num);
  return value === undefined || value === null ? null : { value, lo: lo ?? null, hi: hi ?? null };
}
