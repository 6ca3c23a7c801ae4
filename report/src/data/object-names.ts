// Names of data objects, distinct for distinct rows.
import type { Table } from "./table.ts";
import { strs } from "./values.ts";

const known = new WeakMap<Table, string[]>();

/** The names of a table of objects. Rows with equal names get their type, then their module or the caller of their allocation, then a number. */
export function objectNames(t: Table): string[] {
  let names = known.get(t);
  if (names === undefined) {
    names = t.all().map((i) => t.str("object", i));
    const caller = (i: number): string => strs(t.value("stack", i))[1] ?? "";
    distinguish(names, (i) => t.str("type", i), (type) => ` (${type})`);
    distinguish(names, (i) => t.str("module", i), (module) => ` [${module}]`);
    distinguish(names, caller, (by) => ` by ${by}`);
    for (const group of alike(names)) group.forEach((i, n) => (names![i] += ` #${n + 1}`));
    known.set(t, names);
  }
  return names;
}

/** Appends a text to the names of rows that share one, if the texts of these rows differ. */
function distinguish(names: string[], text: (row: number) => string, shown: (text: string) => string): void {
  for (const group of alike(names)) {
    const texts = group.map(text);
    if (texts.every((t) => t === texts[0])) continue;
    group.forEach((i, n) => (names[i] += texts[n] ? shown(texts[n]) : ""));
  }
}

/** Rows that share a name, by name. */
function alike(names: string[]): number[][] {
  const groups = new Map<string, number[]>();
  names.forEach((name, i) => groups.set(name, [...(groups.get(name) ?? []), i]));
  return [...groups.values()].filter((g) => g.length > 1);
}

/** The row of an object by its name here, in a finding (`name (type)`, perhaps ` and 2 other objects`) or in another table; -1 if there is none. */
export function findObject(t: Table, name: string): number {
  const names = objectNames(t);
  const typed = (i: number): string => `${t.str("object", i)} (${t.str("type", i)})`;
  const is = [
    (i: number) => names[i] === name,
    (i: number) => typed(i) === name,
    (i: number) => name.startsWith(`${typed(i)} and `),
    (i: number) => t.str("object", i) === name,
    (i: number) => t.str("object", i) !== "" && name.startsWith(`${t.str("object", i)} and `),
  ];
  for (const fits of is) {
    const row = t.find(fits);
    if (row >= 0) return row;
  }
  return -1;
}
