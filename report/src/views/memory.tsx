// The address space: regions inside regions, and a heat map of the hottest ones in time.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { csv } from "../components/csv.ts";
import { Take } from "../components/picture.tsx";
import { heat } from "../components/heat.ts";
import { Classes, LineUse } from "../components/interval.tsx";
import type { Model } from "../data/model.ts";
import { greatest, list, num, obj, objs, str, type Obj } from "../data/values.ts";
import { address, base, bytes, count, percent, seconds, short } from "../format.ts";
import { go, place } from "../state.ts";
import { Footprint, FunctionLink, ObjectLink, Panel, Parts, Share, Strides, Word } from "./common.tsx";
import { Only } from "../part.tsx";
import { Ramp } from "./time.tsx";

interface Region {
  row: Obj;
  id: string;
  depth: number;
  children: Region[];
  /** Place in the icicle, 0 to 1, by loads. */
  x: number;
  w: number;
}

/** Regions side by side by their loads, each over its parts. */
export function layout(row: Obj, x = 0, w = 1, depth = 0): Region {
  const children = depth > 40 ? [] : objs(row["children"]);
  const all = num(row["A"]) ?? 0;
  let at = x;
  const placed = children.map((c) => {
    const wide = all > 0 ? (w * Math.min(all, num(c["A"]) ?? 0)) / all : 0;
    const region = layout(c, at, wide, depth + 1);
    at += wide;
    return region;
  });
  return { row, id: str(row["id"]), depth, children: placed, x, w };
}

const flat = (r: Region): Region[] => [r, ...r.children.flatMap(flat)];
const W = 1100;

/** The smallest region that holds most of the loads of an object. */
function holding(all: Region[], object: string): Region | undefined {
  const loads = (r: Region): number => num(objs(r.row["objects"]).find((o) => str(o["object"]) === object)?.["A"]) ?? 0;
  const most = greatest(all.filter((r) => r.depth > 0).map(loads), 0);
  return most === 0 ? undefined : all.filter((r) => loads(r) >= 0.5 * most).sort((a, b) => b.depth - a.depth)[0];
}

function nameOf(row: Obj): string {
  const first = objs(row["objects"])[0];
  // A region of many objects is none of them.
  const top = first && 2 * (num(first["A"]) ?? 0) >= (num(row["A"]) ?? 0) ? first : undefined;
  const range = `${address(str(row["start"]))}…`;
  return top ? `${short(base(str(top["object"])), 40)} (in ${bytes(num(row["bytes"]))})` : num(row["bytes"]) === null ? range : `${range} ${bytes(num(row["bytes"]))}`;
}

export function Memory({ m }: { m: Model }) {
  const svg = useRef<SVGSVGElement>(null);
  const root = useMemo(() => (m.location["root"] ? layout(obj(m.location["root"])) : null), [m]);
  if (!root) return <Panel title="Which memory is loaded?"><p class="empty hatched">The trace has no samples, so that there is nothing to show here. Why, and what makes some, stands in the view <a href="#quality">Data quality</a>.</p></Panel>;
  const all = flat(root);
  const wanted = place.value.selection.region;
  const object = place.value.selection.obj;
  const selected = all.find((r) => r.id === wanted) ?? (wanted === "root" ? root : undefined) ?? (object ? holding(all, object) : undefined) ?? all.find((r) => r.id === str(m.location["worst"])) ?? root;
  const most = greatest(all.slice(1).map((r) => num(r.row["first_pct"])), 1e-9);
  const rows = greatest(all.map((r) => r.depth), 0) + 1;
  const H = rows * 30;
  const parentOf = (r: Region): Region | undefined => all.find((p) => p.children.includes(r));
  const move = (event: KeyboardEvent): void => {
    const parent = parentOf(selected);
    const around = parent?.children ?? [selected];
    const at = around.indexOf(selected);
    const next = { ArrowLeft: around[at - 1], ArrowRight: around[at + 1], ArrowUp: parent, ArrowDown: selected.children[0] }[event.key];
    if (!next) return;
    event.preventDefault();
    go({ region: next.id || "root" });
  };
  const table = (): string => csv(["id", "start", "end", "bytes", "A", "A_pct", "first_pct", "D_mean", "object"], all.map((r) => [r.id, str(r.row["start"]), str(r.row["end"]), num(r.row["bytes"]), num(r.row["A"]), num(r.row["A_pct"]), num(r.row["first_pct"]), num(r.row["D_mean"]), str(objs(r.row["objects"])[0]?.["object"])]));
  const row = selected.row;
  return (
    <div class="stack">
      <Panel title="Which memory is loaded?" note="The address space, divided into the regions that are loaded most. Width is the number of loads; colour is the share of first touches: data that a window had not used before.">
        <svg ref={svg} class="icicle" viewBox={`0 0 ${W} ${H}`} role="img" aria-label="Regions of memory, one inside the other; the table below has them all." tabindex={0} onKeyDown={move}>
          {all.map((r) => {
            const v = num(r.row["first_pct"]);
            const h = heat((v ?? 0) / most);
            const wide = Math.max(1, W * r.w - 1);
            const text = r === root ? "all memory" : nameOf(r.row);
            return (
              <g key={r.id || "root"} class="pick" onClick={() => go({ region: r.id || "root" })}>
                <rect x={W * r.x} y={r.depth * 30} width={wide} height={28} {...(v === null ? { class: "hatched-rect" } : { style: { fill: h.css } })} />
                {r === selected && <rect x={W * r.x + 1} y={r.depth * 30 + 1} width={Math.max(1, wide - 2)} height={26} class="chosen" />}
                {wide > 60 && <text x={W * r.x + 6} y={r.depth * 30 + 19} style={{ fill: v === null ? "currentColor" : h.ink }}>{short(text, Math.floor((wide - 10) / 7.6))}</text>}
                <title>{`${address(str(r.row["start"]))} to ${address(str(r.row["end"]))}\n${percent(num(r.row["A_pct"]) ?? num(r.row["time_pct"]))} of all\nfirst touches ${percent(v)}`}</title>
              </g>
            );
          })}
        </svg>
        <p class="key"><Ramp /> first touches, 0 to {percent(most)}</p>
        <details>
          <summary>Table</summary>
          <Take name="memory" table={table} svg={svg} />
          <div class="twin" tabindex={0} role="region" aria-label="Regions, table">
            <table>
              <thead><tr><th class="left">region</th><th class="left">from</th><th>size</th><th>loads seen</th><th>first%</th><th>D</th><th class="left">object</th></tr></thead>
              <tbody>
                {all.slice(0, 500).map((r) => (
                  <tr key={r.id || "root"} class={r === selected ? "selected" : ""}>
                    <td class="left"><button type="button" class="link" onClick={() => go({ region: r.id || "root" })}>{"\u00a0".repeat(2 * r.depth)}{r.id || "all"}</button></td>
                    <td class="left">{address(str(r.row["start"]))}</td>
                    <td>{bytes(num(r.row["bytes"]))}</td>
                    <td>{count(num(r.row["A"]))}</td>
                    <td>{percent(num(r.row["first_pct"]))}</td>
                    <td>{count(num(r.row["D_mean"]))}</td>
                    <td class="left">{objs(r.row["objects"]).slice(0, 2).map((o) => short(str(o["object"]), 40)).join(", ")}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      </Panel>
      <HeatMap m={m} />
      <Panel title={selected === root ? "What is in all of it?" : `What is in ${address(str(row["start"]))} to ${address(str(row["end"]))}?`}>
        {selected !== root && str(row["end"]) !== "" && <p><Only patch={{ addresses: `${str(row["start"])}-${str(row["end"])}`, region: undefined }}>Analyse this region alone</Only></p>}
        <div class="columns">
          <section>
            <dl class="facts">
              <div><dt><Word>share of the run</Word></dt><dd><Share m={m} row={row} /></dd></div>
              <div><dt><Word>size</Word></dt><dd>{bytes(num(row["bytes"]))}</dd></div>
              <div><dt><Word>footprint</Word></dt><dd><Footprint m={m} row={row} max={num(row["F_64_hi"]) ?? num(row["F_64_hat"]) ?? num(row["F_64"]) ?? 1} /></dd></div>
              <div><dt><Word>pattern</Word></dt><dd><Classes strided={num(row["dF_str_pct"])} irregular={num(row["dF_irr_pct"])} /></dd></div>
              <div><dt><Word>line use</Word></dt><dd><LineUse used={num(row["line_bytes"])} /></dd></div>
              <div><dt><Word>blocks</Word></dt><dd>{count(num(row["blocks"]))}, {num(row["A_per_block"]) === null ? "–" : (num(row["A_per_block"]) ?? 0).toFixed(1)} recorded loads for each</dd></div>
            </dl>
          </section>
          <Parts title="Objects in it" rows={row["objects"]} name={(p) => <ObjectLink name={str(p["object"])} />} />
          <Parts title="Functions that load it" rows={row["functions"]} name={(p) => <FunctionLink row={p} />} />
          <Parts title="Lines that load it" rows={row["lines"]} name={(p) => <FunctionLink row={p} />} />
          <section>
            <h3 class="minor">Steps from one address to the next</h3>
            <Strides rows={row["strides_hat"]} />
          </section>
        </div>
      </Panel>
    </div>
  );
}

/** Draws cells of 0 to 1, or null, as pixels: a million take 14 ms. */
export function pixels(cells: (number | null)[][], columns: number): ImageData {
  const image = new ImageData(Math.max(1, columns), Math.max(1, cells.length));
  cells.forEach((row, y) => {
    for (let x = 0; x < columns; x++) {
      const v = row[x] ?? null;
      const at = 4 * (y * image.width + x);
      const [r, g, b] = v === null ? [128, 128, 128] : heat(v).rgb;
      image.data[at] = r;
      image.data[at + 1] = g;
      image.data[at + 2] = b;
      image.data[at + 3] = v === null ? 40 : 255;
    }
  });
  return image;
}

function HeatMap({ m }: { m: Model }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [by, setBy] = useState<"A" | "D_mean">("A");
  const [near, setNear] = useState<[number, number] | null>(null);
  const columns = objs(m.heat["columns"]);
  const rows = objs(m.heat["rows"]);
  const values = rows.map((r) => list(r[by]).map(num));
  const most = greatest(values.flat(), 1);
  const cells = values.map((r) => r.map((v) => (v === null ? null : Math.log1p(v) / Math.log1p(most))));
  useEffect(() => {
    const c = canvas.current;
    const to = c?.getContext("2d");
    if (!c || !to || columns.length === 0) return;
    c.width = columns.length;
    c.height = Math.max(1, rows.length);
    to.putImageData(pixels(cells, columns.length), 0, 0);
  }, [m, by]);
  if (columns.length === 0 || rows.length === 0) return null;
  const start = num(columns[0]?.["from_ns"]) ?? 0;
  const time = (i: number): string => seconds(((num(columns[i]?.["from_ns"]) ?? 0) - start) / 1e9);
  const selected = place.value.selection.region;
  const at = (e: MouseEvent): [number, number] => {
    const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
    return [Math.min(columns.length - 1, Math.floor(((e.clientX - box.left) * columns.length) / box.width)), Math.min(rows.length - 1, Math.floor(((e.clientY - box.top) * rows.length) / box.height))];
  };
  const table = (): string => csv(["region", "label", ...columns.map((_, i) => time(i))], rows.map((r, i) => [str(r["region"]), str(r["label"]), ...(values[i] ?? [])]));
  return (
    <Panel title="When is which memory loaded?" note="The regions that are loaded most, over the run. Columns are equally many windows.">
      <div class="tabs" role="group" aria-label="Colour">
        <button type="button" aria-pressed={by === "A"} onClick={() => setBy("A")}>loads seen</button>
        <button type="button" aria-pressed={by === "D_mean"} onClick={() => setBy("D_mean")}>reuse distance</button>
      </div>
      <div class="heat-map">
        <div class="heat-labels">
          {rows.map((r, i) => (
            <button key={i} type="button" class={`link${selected === str(r["region"]) ? " selected" : ""}`} title={`${str(r["start"])} to ${str(r["end"])}`} onClick={() => go({ region: str(r["region"]) || undefined })}>
              {short(base(str(r["label"])) || str(r["start"]), 34)}
            </button>
          ))}
        </div>
        <canvas ref={canvas} role="img" aria-label="Heat map of regions in time; the table below has its numbers." style={{ height: `${28 * rows.length}px` }} onMouseMove={(e) => setNear(at(e))} onMouseLeave={() => setNear(null)} onClick={(e) => go({ region: str(rows[at(e)[1]]?.["region"]) || undefined })} />
      </div>
      <p class="key">
        <Ramp /> {by === "A" ? "loads seen" : "mean D"}, 0 to {count(most)} (logarithmic); grey: none. {near ? `${str(rows[near[1]]?.["label"])}, at ${time(near[0])}: ${count(values[near[1]]?.[near[0]] ?? null)}` : ""}
      </p>
      <details>
        <summary>Table</summary>
        <Take name="heat-map" table={table} canvas={canvas} />
        <div class="twin" tabindex={0} role="region" aria-label="Regions in time, table">
          <table>
            <thead><tr><th class="left">region</th>{columns.map((_, i) => <th key={i}>{time(i)}</th>)}</tr></thead>
            <tbody>{rows.map((r, i) => <tr key={i}><td class="left">{short(str(r["label"]), 40)}</td>{(values[i] ?? []).map((v, j) => <td key={j}>{count(v)}</td>)}</tr>)}</tbody>
          </table>
        </div>
      </details>
    </Panel>
  );
}
