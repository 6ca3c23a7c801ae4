// Which places of memory are used together, and which pairs would gain from lying together.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { csv } from "../components/csv.ts";
import { Take } from "../components/picture.tsx";
import type { Model } from "../data/model.ts";
import { greatest, num, obj, objs, str, type Obj } from "../data/values.ts";
import { bytes, count, percent, short, base } from "../format.ts";
import { Panel } from "./common.tsx";
import { pixels } from "./memory.tsx";
import { Ramp } from "./time.tsx";

const hex = (x: number | null): string => (x === null ? "–" : `0x${x.toString(16)}`);

/** The smallest region of the location tree around an address, and its object. */
function owner(root: Obj, address: number): string {
  let name = "";
  let at: Obj | undefined = root;
  while (at) {
    name = str(objs(at["objects"])[0]?.["object"]) || name;
    at = objs(at["children"]).find((c) => Number(str(c["start"])) <= address && address <= Number(str(c["end"])));
  }
  return name;
}

export function Affinity({ m }: { m: Model }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [near, setNear] = useState<[number, number] | null>(null);
  const a = m.affinity;
  const places = objs(a?.["places"]);
  const n = places.length;
  const cells = useMemo(() => {
    const out = Array.from({ length: n }, () => Array.from({ length: n }, (): number | null => null));
    for (const c of objs(a?.["matrix"])) {
      const row = out[num(c["x"]) ?? -1];
      if (row) row[num(c["y"]) ?? 0] = num(c["SA"]);
    }
    return out;
  }, [a]);
  const most = greatest(cells.flatMap((row, i) => row.filter((_, j) => i !== j)), 1e-9);
  useEffect(() => {
    const to = canvas.current?.getContext("2d");
    if (!canvas.current || !to || n === 0) return;
    canvas.current.width = n;
    canvas.current.height = n;
    to.putImageData(pixels(cells.map((row) => row.map((v) => (v === null ? null : v / most))), n), 0, 0);
  }, [cells]);
  if (!a || n === 0)
    return null;
  const label = (i: number): string => {
    const first = num(places[i]?.["address"]);
    const name = first === null ? "" : owner(obj(m.location["root"]), first);
    return `${hex(first)}${name ? ` ${base(name)}` : ""}`;
  };
  const at = (e: MouseEvent): [number, number] => {
    const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
    const of = (x: number, all: number): number => Math.max(0, Math.min(n - 1, Math.floor((x * n) / all)));
    return [of(e.clientX - box.left, box.width), of(e.clientY - box.top, box.height)];
  };
  const pairs = objs(a["pairs"]).slice(0, 40);
  const table = (): string => csv(["x", "y", "affinity"], cells.flatMap((row, i) => row.map((v, j) => [label(i), label(j), v])));
  return (
    <Panel title="What is used together?" note={`The ${n} places of ${bytes(num(places[0]?.["bytes"]))} with the most loads. Bright: after a load of the place on the left, the one above it is loaded within ${count(num(obj(a["summary"])["reach"]))} loads.`}>
      <div class="affinity">
        <div>
          <canvas ref={canvas} role="img" aria-label="Matrix of places that are used together; copy it as CSV for its numbers." onMouseMove={(e) => setNear(at(e))} onMouseLeave={() => setNear(null)} />
          <p class="key"><Ramp /> 0 to {most.toPrecision(2)} <Take name="affinity" canvas={canvas} table={table} /></p>
          <p class="key near-text">{near ? `${short(label(near[1]), 44)} then ${short(label(near[0]), 44)}: ${cells[near[1]]?.[near[0]]?.toPrecision(2) ?? "never"}` : "Point at a cell."}</p>
        </div>
        <section>
          <h3 class="minor">Pairs worth placing together</h3>
          {pairs.length === 0 ? <p class="empty">No two of these places are loaded near each other.</p> : (
            <div class="twin" tabindex={0} role="region" aria-label="Pairs">
              <table>
                <thead><tr><th class="left">place</th><th class="left">and</th><th>loads that would find it at hand</th><th>of these loads</th></tr></thead>
                <tbody>{pairs.map((p, i) => <tr key={i}><td class="left" title={label(num(p["x"]) ?? 0)}>{short(label(num(p["x"]) ?? 0), 40)}</td><td class="left" title={label(num(p["y"]) ?? 0)}>{short(label(num(p["y"]) ?? 0), 40)}</td><td>{count(num(p["saved"]))}</td><td>{percent(100 * (num(p["saved_share"]) ?? 0))}</td></tr>)}</tbody>
              </table>
            </div>
          )}
        </section>
      </div>
    </Panel>
  );
}
