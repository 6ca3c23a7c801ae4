// A part of the run: an interval, a thread, a function, data, addresses. `mgz serve` analyses it
// again; a report in a file shows the command for that.
import { effect, signal } from "@preact/signals";
import { model, modelOf, served, whole, type Model } from "./data/model.ts";
import { num, obj, str, strs } from "./data/values.ts";
import { command } from "./data/model.ts";
import { percent, seconds, short } from "./format.ts";
import { go, place, type Key, type Selection } from "./state.ts";

/** Keys of a part, their names in a request, and the option of the command line. */
const ASKED: [Key, string, string, string][] = [
  ["from", "from", "--from", "from"],
  ["to", "to", "--to", "to"],
  ["only_thread", "thread", "--thread", "thread"],
  ["only_fn", "function", "--function", "function"],
  ["only_obj", "object", "--object", "data"],
  ["addresses", "addresses", "--addresses", "addresses"],
  ["block", "block", "--block", "block"],
];

const busy = signal(false);
const problem = signal("");
/** A name of this page, so that a newer selection ends the older one's analysis. */
const tab = Math.random().toString(36).slice(2);

/** The request of a selection; empty for the whole run. */
export function queryOf(s: Selection): string {
  const query = new URLSearchParams();
  for (const [key, name] of ASKED) {
    const value = s[key];
    if (value) query.set(name, value);
  }
  return query.toString();
}

const quoted = (word: string): string => (/^[\w./:=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
const escaped = (name: string): string => `^${name.replace(/[\\.+*?()|[\]{}^$#&~-]/g, "\\$&")}$`;

/** The command that analyses a selection. */
export function commandOf(s: Selection): string {
  const words = ASKED.flatMap(([key, , option]) => {
    const value = s[key];
    return value ? [option, quoted(key === "only_fn" || key === "only_obj" ? escaped(value) : value)] : [];
  });
  return ["mgz analyze TRACE", ...words].join(" ");
}

let asked = "";
let running: AbortController | null = null;

async function ask(query: string): Promise<void> {
  running?.abort();
  running = null;
  problem.value = "";
  busy.value = false;
  if (query === "") {
    model.value = whole.value;
    return;
  }
  const mine = new AbortController();
  running = mine;
  busy.value = true;
  try {
    const answer = await fetch(`data?${query}&tab=${tab}`, { signal: mine.signal });
    const data = obj(await answer.json());
    if (running !== mine) return;
    if (answer.ok) model.value = { ...modelOf(data), affinity: whole.value?.affinity ?? null };
    else problem.value = str(data["error"]) || `the server has answered ${answer.status}`;
  } catch (error) {
    if (running !== mine) return;
    problem.value = error instanceof TypeError ? "the server does not answer; start it again: mgz serve TRACE" : String(error);
  }
  busy.value = false;
  running = null;
}

/** From now on selections are analysed, where there is a server. */
export function watchPart(): void {
  effect(() => {
    const query = served.value ? queryOf(place.value.selection) : "";
    if (query === asked) return;
    asked = query;
    void ask(query);
  });
}

/** Numbers of seconds as an address has them: three digits below a thousandth of the run are enough. */
export const shortSeconds = (x: number): string => String(Number(x.toPrecision(6)));

function textOf(key: Key, value: string): string {
  if (key === "from" || key === "to") return seconds(num(Number(value)));
  return short(value, 40);
}

/** Shows the selected part and its share of the run. */
export function Part({ m }: { m: Model }) {
  const s = place.value.selection;
  const chips = ASKED.filter(([key]) => s[key]);
  if (chips.length === 0) return null;
  const out = (key: Key): void => go({ [key]: undefined });
  const filter = obj(m.run["filter"]);
  const left = num(filter["time_pct"]) ?? num(filter["A_pct"]);
  const only = served.value || strs(m.run["command"]).length === 0 ? "TRACE" : command(m);
  return (
    <div class="selection part" role="status">
      <span>{served.value ? "Only this part is analysed:" : "A part is marked:"}</span>
      {chips.map(([key, , , name]) => (
        <button type="button" key={key} class="chip" title={`${s[key]}: take it out`} onClick={() => out(key)}>
          {name} {textOf(key, s[key] ?? "")} <span aria-hidden="true">×</span>
          <span class="hidden"> take out</span>
        </button>
      ))}
      {served.value && !busy.value && !problem.value && left !== null && <span>{percent(left)} of the {num(filter["time_pct"]) === null ? "loads" : "time"} of the run</span>}
      {busy.value && <span class="busy">analysing …</span>}
      {problem.value && <strong class="problem">{problem.value}</strong>}
      {!served.value && <span title={only}>All tables of it: <code>{commandOf(s)}</code>, or <code>mgz serve TRACE</code></span>}
      <button type="button" class="small" onClick={() => go(Object.fromEntries(ASKED.map(([key]) => [key, undefined])))}>whole run</button>
    </div>
  );
}

/** A button that looks at one thing alone; where there is no server, there is none. */
export function Only({ patch, children }: { patch: { [K in Key]?: string | undefined }; children: preact.ComponentChildren }) {
  if (!served.value) return null;
  return <button type="button" class="small only" onClick={() => go(patch)}>{children}</button>;
}
