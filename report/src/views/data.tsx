// Objects: which data are loaded, from where they were allocated, and by which code.
import { DataTable, type Column } from "../components/data-table.tsx";
import { type Model } from "../data/model.ts";
import { findObject, objectNames } from "../data/object-names.ts";
import { greatest, num, objs, str, strs, type Obj } from "../data/values.ts";
import { base, bytes, count, percent, short } from "../format.ts";
import { go, place } from "../state.ts";
import { heat } from "../components/heat.ts";
import { Only } from "../part.tsx";
import { FunctionLink, metricColumns, Panel, Parts, Strides } from "./common.tsx";

export function Data({ m }: { m: Model }) {
  const t = m.tables.objects;
  const s = place.value.selection;
  if (t.rows === 0)
    return (
      <Panel title="Which data are loaded?">
        <p class="empty hatched">The trace knows no objects. Globals and stacks come with every recording of this version; blocks of the heap with <code>mgz run --heap</code>.</p>
      </Panel>
    );
  const wanted = s.obj ? findObject(t, s.obj) : -1;
  const names = objectNames(t);
  const selected = wanted >= 0 ? wanted : 0;
  const columns: Column[] = [
    { key: "object", head: "object", tip: "A variable, or the place where heap blocks were allocated.", width: 168, left: true, value: (i) => names[i] ?? "", cell: (i) => <span title={names[i]}>{short(base(names[i] ?? ""), 36)}</span> },
    { key: "kind", head: "kind", tip: "global, heap, stack, thread-local, file, anonymous or unknown.", width: 76, left: true, value: (i) => t.str("kind", i) },
    { key: "bytes", head: "size", width: 68, value: (i) => t.num("bytes", i), cell: (i) => bytes(t.num("bytes", i)) },
    { key: "instances", head: "lives", tip: "How often it came into being: blocks that were allocated there, or mappings of the file.", width: 42, value: (i) => t.num("instances", i), cell: (i) => count(t.num("instances", i)) },
    ...metricColumns(m, t),
  ];
  return (
    <div class="stack">
      <Panel title={m.trace["by_time"] === true ? "Which data take the time?" : "Which data are loaded?"} note={`Click a row: where it was allocated, how it is walked and which code loads it stand below. Objects by their ${m.trace["by_time"] === true ? "share of the time" : "loads"}. Heap blocks are grouped by the place that allocated them.`}>
        <DataTable name="objects" columns={columns} rows={t.all()} selected={selected} onSelect={(i) => go({ obj: names[i] })} most={10} />
      </Panel>
      <OneObject row={t.row(selected)} name={names[selected] ?? ""} block={num(m.summary["block"]) ?? 64} />
      <Matrix m={m} />
    </div>
  );
}

function OneObject({ row, name, block }: { row: Obj; name: string; block: number }) {
  const stack = strs(row["stack"]);
  return (
    <Panel title={`How is ${short(name, 80)} used?`}>
      {str(row["object"]) && <p><Only patch={{ only_obj: str(row["object"]), obj: undefined }}>Analyse these data alone</Only></p>}
      <div class="columns">
        <section>
          <h3 class="minor">{stack.length > 0 ? "Allocated by" : "What it is"}</h3>
          {stack.length > 0 ? <ol class="chain">{stack.map((f, i) => <li key={i} title={f}>{short(f, 70)}</li>)}</ol> : <p>{[str(row["kind"]), str(row["type"]), str(row["module"])].filter(Boolean).join(", ") || "not known"}</p>}
          <p>{lives(row)} Recorded loads touch {count(num(row["blocks"]))} {block === 64 ? "cache lines" : `blocks of ${bytes(block)}`}, each {num(row["A_per_block"]) === null ? "–" : (num(row["A_per_block"]) ?? 0).toFixed(1)} times; {percent(num(row["A_irr_pct"]))} of the loads are irregular.</p>
        </section>
        <section>
          <h3 class="minor">Steps from one address to the next</h3>
          <Strides rows={row["strides_hat"]} />
        </section>
        <Parts title="Functions that load it" rows={row["functions"]} name={(p) => <FunctionLink row={p} />} />
        <Parts title="Lines that load it" rows={row["lines"]} name={(p) => <FunctionLink row={p} />} />
      </div>
    </Panel>
  );
}

/** How many there were of an object, and how large they are together. */
function lives(row: Obj): string {
  const n = num(row["instances"]);
  const all = bytes(num(row["bytes"]));
  if (str(row["kind"]) !== "heap" || str(row["object"]).startsWith("[")) return `${all} large.`;
  return n === 1 ? `One block of ${all} was allocated there.` : `${count(n)} blocks were allocated there, ${all} together.`;
}

/** Which function loads which object. */
function Matrix({ m }: { m: Model }) {
  const t = m.tables.objects;
  const all = objectNames(t);
  const objects = t.all().slice(0, 12);
  const names = new Map<string, number>();
  for (const i of objects) for (const f of objs(t.value("functions", i))) names.set(str(f["function"]), (names.get(str(f["function"])) ?? 0) + (num(f["A"]) ?? 0));
  const functions = [...names].sort((a, b) => b[1] - a[1]).slice(0, 10).map(([n]) => n);
  if (functions.length === 0) return null;
  const cell = (i: number, f: string): number | null => num(objs(t.value("functions", i)).find((p) => str(p["function"]) === f)?.["A"]);
  const most = greatest(objects.flatMap((i) => functions.map((f) => cell(i, f))), 1);
  return (
    <Panel title="Which code loads which data?" note="Recorded loads; the more, the nearer to yellow.">
      <div class="twin" tabindex={0} role="region" aria-label="Objects by functions">
        <table class="matrix">
          <thead>
            <tr><th class="left">object</th>{functions.map((f) => <th key={f} title={f}>{short(f, 16)}</th>)}</tr>
          </thead>
          <tbody>
            {objects.map((i) => (
              <tr key={i}>
                <th scope="row" class="left" title={all[i]}>{short(base(all[i] ?? ""), 40)}</th>
                {functions.map((f) => {
                  const v = cell(i, f);
                  const h = heat(v === null ? 0 : Math.log1p(v) / Math.log1p(most));
                  return <td key={f} style={v === null ? {} : { background: h.css, color: h.ink }}>{v === null ? "" : count(v)}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
