// The report: one page with one selection. It shows the views of a run, or a comparison of two
// builds, or many ranks of a job.
import { render } from "preact";
import { Compared, titleOf } from "./compare/app.tsx";
import { Frame } from "./components/frame.tsx";
import { Search, searching } from "./components/search.tsx";
import { watchTips } from "./components/tip.tsx";
import { command, comparison, failure, job, load, model, placeOf, type Model } from "./data/model.ts";
import { short } from "./format.ts";
import { Part, watchPart } from "./part.tsx";
import { Job, jobTitle } from "./ranks/app.tsx";
import { COMPARED, go, place, RANKED, useViews, watchAddress, type Key } from "./state.ts";
import "./style.css";
import { Code } from "./views/code.tsx";
import { Data } from "./views/data.tsx";
import { Locality } from "./views/locality.tsx";
import { Measured } from "./views/measured.tsx";
import { Memory } from "./views/memory.tsx";
import { Overview } from "./views/overview.tsx";
import { Quality } from "./views/quality.tsx";
import { Threads } from "./views/threads.tsx";
import { Time } from "./views/time.tsx";

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

function Run({ m }: { m: Model }) {
  const when = (Shown: (p: { m: Model }) => preact.JSX.Element | null): preact.JSX.Element => (m.loading ? <p class="empty">Reading the tables.</p> : <Shown m={m} />);
  const views = {
    overview: { name: "Overview", show: () => <Overview m={m} /> },
    code: { name: "Code", show: () => when(Code) },
    data: { name: "Data", show: () => when(Data) },
    time: { name: "Time", show: () => when(Time) },
    memory: { name: "Memory", show: () => when(Memory) },
    locality: { name: "Locality", show: () => when(Locality) },
    threads: { name: "Threads", show: () => when(Threads) },
    ...(m.measured || place.value.view === "measured" ? { measured: { name: "Measured", show: () => when(Measured) } } : {}),
    quality: { name: "Data quality", show: () => when(Quality) },
  };
  const tools = (
    <button type="button" class="small" onClick={() => (searching.value = true)}>
      Search <kbd>Ctrl K</kbd>
    </button>
  );
  return (
    <>
      <Frame views={views} title={command(m)} first="overview" tools={tools} above={<><Crumbs /><Part m={m} /></>} />
      <Search m={m} />
    </>
  );
}

function App() {
  const m = model.value;
  if (failure.value) return <main><h1>mgz report</h1><p role="alert">The data of this report cannot be read: {failure.value}. Make it again: mgz report TRACE</p></main>;
  if (comparison.value) return <Compared c={comparison.value} />;
  if (job.value) return <Job j={job.value} />;
  if (!m) return <main><h1>mgz report</h1><p>Reading the data of the report.</p></main>;
  return <Run m={m} />;
}

watchAddress();
watchTips();
const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(<App />, root);
  const stop = model.subscribe((m) => {
    if (m) requestAnimationFrame(() => performance.mark("shown"));
  });
  comparison.subscribe((c) => {
    if (c) useViews(COMPARED);
  });
  job.subscribe((j) => {
    if (j) useViews(RANKED);
  });
  void load().then(() => stop()).then(() => {
    const title = comparison.value ? titleOf(comparison.value) : job.value ? jobTitle(job.value) : model.value ? command(model.value) : "";
    if (title) document.title = `mgz: ${short(title, 80)}`;
    watchPart();
    document.documentElement.dataset["ready"] = "yes";
  });
}
