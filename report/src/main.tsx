// The report: one page, eight views, one selection.
import { render } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { Search, searching } from "./components/search.tsx";
import { TipBox, watchTips } from "./components/tip.tsx";
import { command, failure, load, model, placeOf, type Model } from "./data/model.ts";
import { short } from "./format.ts";
import { changed, go, place, VIEWS, watchAddress, write, type Key, type View } from "./state.ts";
import "./style.css";
import { Code } from "./views/code.tsx";
import { Data } from "./views/data.tsx";
import { Locality } from "./views/locality.tsx";
import { Memory } from "./views/memory.tsx";
import { Overview } from "./views/overview.tsx";
import { Quality } from "./views/quality.tsx";
import { Threads } from "./views/threads.tsx";
import { Time } from "./views/time.tsx";

const NAMES: Record<View, string> = { overview: "Overview", code: "Code", data: "Data", time: "Time", memory: "Memory", locality: "Locality", threads: "Threads", quality: "Data quality" };
const SHOWN: Record<View, (p: { m: Model }) => preact.JSX.Element | null> = { overview: Overview, code: Code, data: Data, time: Time, memory: Memory, locality: Locality, threads: Threads, quality: Quality };

function Crumbs() {
  const s = place.value.selection;
  const crumbs: [string, string, Key[]][] = [];
  if (s.fn) crumbs.push(["function", s.fn, ["fn", "mod", "file", "line", "loop"]]);
  if (s.line) crumbs.push(["line", placeOf(s.file ?? "", Number(s.line)), ["line", "file", "loop"]]);
  if (s.obj) crumbs.push(["data", s.obj, ["obj"]]);
  if (s.region) crumbs.push(["region", s.region, ["region"]]);
  if (s.node) crumbs.push(["interval", s.node, ["node"]]);
  if (s.thread) crumbs.push(["thread", s.thread, ["thread"]]);
  if (crumbs.length === 0) return null;
  return (
    <p class="selection">
      Selected:
      {crumbs.map(([kind, text, keys]) => (
        <button type="button" key={kind} class="chip" title={`${text}: take it out of the selection`} onClick={() => go(Object.fromEntries(keys.map((k) => [k, undefined])))}>
          {kind} {short(text, 40)} <span aria-hidden="true">×</span>
          <span class="hidden"> take out</span>
        </button>
      ))}
    </p>
  );
}

function View_({ m, view }: { m: Model; view: View }) {
  const [error, reset] = useErrorBoundary();
  useEffect(reset, [view]);
  if (error) return <p class="empty" role="alert">This view cannot show these data: {String(error)}</p>;
  const Shown = SHOWN[view];
  return <Shown m={m} />;
}

function App() {
  const m = model.value;
  const view = place.value.view;
  if (failure.value) return <main><h1>mgz report</h1><p role="alert">The data of this report cannot be read: {failure.value}. Make it again: mgz report TRACE</p></main>;
  if (!m) return <main><h1>mgz report</h1><p>Reading the data of the report.</p></main>;
  return (
    <>
      <header>
        <strong class="logo">mgz</strong>
        <nav aria-label="Views">
          {VIEWS.map((v) => (
            <a key={v} href={write({ ...changed({ tab: undefined }), view: v })} {...(v === view ? { "aria-current": "page" as const } : {})}>
              {NAMES[v]}
            </a>
          ))}
        </nav>
        <button type="button" class="small" onClick={() => (searching.value = true)}>
          Search <kbd>Ctrl K</kbd>
        </button>
      </header>
      <Crumbs />
      <main>
        {view !== "overview" && <h1 class="hidden">{NAMES[view]} of {command(m)}</h1>}
        <View_ key={view} m={m} view={view} />
      </main>
      <Search m={m} />
      <TipBox />
      <svg class="hidden" aria-hidden="true"><defs><pattern id="hatch" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="1.2" height="3" class="tick" /></pattern></defs></svg>
    </>
  );
}

watchAddress();
watchTips();
const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(<App />, root);
  void load().then(() => {
    if (model.value) document.title = `mgz: ${short(command(model.value), 80)}`;
    document.documentElement.dataset["ready"] = "yes";
  });
}
