// A table by columns.
import { num, obj, str, type Obj } from "./values.ts";

export class Table {
  readonly rows: number;
  private readonly columns: Record<string, unknown[]>;

  constructor(data: unknown) {
    const { rows, columns } = obj(data);
    this.rows = Math.max(0, Math.floor(num(rows) ?? 0));
    this.columns = {};
    for (const [key, column] of Object.entries(obj(columns))) {
      if (Array.isArray(column)) this.columns[key] = column;
    }
  }

  has(key: string): boolean {
    return this.columns[key]?.some((v) => v !== null) ?? false;
  }

  value(key: string, row: number): unknown {
    return this.columns[key]?.[row] ?? null;
  }

  num(key: string, row: number): number | null {
    return num(this.value(key, row));
  }

  str(key: string, row: number): string {
    return str(this.value(key, row));
  }

  /** The row as an object. */
  row(row: number): Obj {
    const out: Obj = {};
    for (const [key, column] of Object.entries(this.columns)) out[key] = column[row] ?? null;
    return out;
  }

  keys(): string[] {
    return Object.keys(this.columns);
  }

  /** The first row for which it holds; -1 if there is none. */
  find(is: (row: number) => boolean): number {
    for (let i = 0; i < this.rows; i++) if (is(i)) return i;
    return -1;
  }

  all(): number[] {
    return Array.from({ length: this.rows }, (_, i) => i);
  }
}

/** A table of rows as objects. */
export function tableOf(rows: Obj[]): Table {
  const keys = new Set(rows.flatMap((r) => Object.keys(r)));
  return new Table({ rows: rows.length, columns: Object.fromEntries([...keys].map((k) => [k, rows.map((r) => r[k] ?? null)])) });
}

/** Rows in the order of a column; unknown ones last, whatever the direction. */
export function sorted(rows: number[], value: (row: number) => number | string | null, down: boolean): number[] {
  const keyed = rows.map((row) => ({ row, key: value(row) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null ? 1 : 0) - (b.key === null ? 1 : 0) || a.row - b.row;
    const order = typeof a.key === "number" && typeof b.key === "number" ? a.key - b.key : String(a.key) < String(b.key) ? -1 : String(a.key) > String(b.key) ? 1 : 0;
    return (down ? -order : order) || a.row - b.row;
  });
  return keyed.map((k) => k.row);
}
