// Typed access to values of the JSON. A report may come from another version, so a value that is
// missing or of another type is unknown.

/** An object of the JSON. */
export type Obj = Record<string, unknown>;

export const num = (v: unknown): number | null => (typeof v === "number" && Number.isFinite(v) ? v : null);
export const str = (v: unknown): string => (typeof v === "string" ? v : "");
export const obj = (v: unknown): Obj => (typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Obj) : {});
export const list = (v: unknown): unknown[] => (Array.isArray(v) ? v : []);
export const objs = (v: unknown): Obj[] => list(v).map(obj);
export const strs = (v: unknown): string[] => list(v).filter((s): s is string => typeof s === "string");

/** The greatest of values, at least `least`. (A spread of very many arguments would overflow the stack.) */
export function greatest(values: Iterable<number | null | undefined>, least: number): number {
  let most = least;
  for (const v of values) if (v !== null && v !== undefined && v > most) most = v;
  return most;
}

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

/**
 * The share of a row in `key`, in percent. Windows by time have an interval for it. In complete
 * traces it is exact. In other traces it has the relative uncertainty of the row's loads, of
 * `whole` loads in all; if these are unknown, so is the uncertainty.
 */
export function share(row: Obj, key: string, complete: boolean, whole: number | null): Estimate {
  const value = num(row[key]);
  if (value === null) return { value: null, lo: null, hi: null };
  const vague = row["undersampled"] === true;
  const [lo, hi] = [num(row[`${key}_lo`]), num(row[`${key}_hi`])];
  if (lo !== null || hi !== null) return { value, lo, hi, vague };
  if (complete) return { value: null, lo: value, hi: null, vague: false };
  const end = (loads: number | null): number | null => (loads === null || whole === null || whole <= 0 ? null : (100 * loads) / whole);
  const [least, most] = [end(num(row["A_lo"])), end(num(row["A_hi"]))];
  if (vague || least === null || most === null) return { value, lo: 0, hi: null, vague: true };
  return { value, lo: Math.min(value, least), hi: Math.max(value, Math.min(100, most)), vague: false };
}
