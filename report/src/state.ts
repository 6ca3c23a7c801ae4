// One selection, shared by all views, kept in the address so that it can be gone back to and sent on.
import { signal } from "@preact/signals";

export const VIEWS = ["overview", "code", "data", "time", "memory", "locality", "threads", "measured", "quality"] as const;
/** Views of a comparison, and of many ranks. */
export const COMPARED = ["verdict", "changes", "tree", "curves", "runs"] as const;
export const RANKED = ["spread", "code", "data", "ranks", "gaps"] as const;
export type View = (typeof VIEWS)[number] | (typeof COMPARED)[number] | (typeof RANKED)[number];

let views: readonly View[] = VIEWS;

/** Says which views this report has. */
export function useViews(known: readonly View[]): void {
  views = known;
  place.value = parse(location.hash);
}

/**
 * Keys of a selection. `from` and `to` are seconds of the run; `mgz serve` analyses these and the
 * keys that begin with `only` again. `fn` and `mod` name a function, `file` and `line` a line,
 * `loop` the address of a loop's head.
 */
export const KEYS = ["fn", "mod", "file", "line", "loop", "obj", "region", "node", "thread", "tab", "metric", "from", "to", "only_thread", "only_fn", "only_obj", "addresses", "block"] as const;
export type Key = (typeof KEYS)[number];
export type Selection = Partial<Record<Key, string>>;

export interface Place {
  view: View;
  selection: Selection;
}

/** Reads an address. Whatever it does not know, it leaves out. */
export function parse(hash: string): Place {
  const [name = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const view = views.find((v) => v === name) ?? views[0] ?? "overview";
  const selection: Selection = {};
  const given = new URLSearchParams(query);
  for (const key of KEYS) {
    const value = given.get(key);
    if (value) selection[key] = value;
  }
  return { view, selection };
}

export function write({ view, selection }: Place): string {
  const query = new URLSearchParams();
  for (const key of KEYS) {
    const value = selection[key];
    if (value) query.set(key, value);
  }
  const text = query.toString();
  return `#${view}${text ? `?${text}` : ""}`;
}

export const place = signal<Place>(parse(typeof location === "undefined" ? "" : location.hash));

/** The place after a change; undefined takes a key out. */
export function changed(patch: { [K in Key]?: string | undefined }, view?: View): Place {
  const selection: Selection = { ...place.value.selection };
  for (const key of Object.keys(patch) as Key[]) {
    const value = patch[key];
    if (value) selection[key] = value;
    else delete selection[key];
  }
  return { view: view ?? place.value.view, selection };
}

/**
 * Selects something, as a step that "back" undoes. It takes effect at once, because the next key
 * may come before the event of the new address.
 */
export function go(patch: { [K in Key]?: string | undefined }, view?: View): void {
  const next = write(changed(patch, view));
  if (next === location.hash) return;
  location.hash = next;
  place.value = parse(next);
}

export function watchAddress(): void {
  addEventListener("hashchange", () => {
    if (write(place.value) !== location.hash) place.value = parse(location.hash);
  });
}
