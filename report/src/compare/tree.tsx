// The differential icicle: who called whom, or which lines, and what became more and less.
import { useMemo, useRef, useState } from "preact/hooks";
import { csv } from "../components/csv.ts";
import { Take } from "../components/picture.tsx";
import { objs, obj, type Obj } from "../data/values.ts";
import { percent, short } from "../format.ts";
import { go, place } from "../state.ts";
import { Panel } from "../views/common.tsx";
import { differs, flat, hasCalls, merged, renames, type Frame, type Kind, type Share } from "./merge.ts";

const W = 1100;
const ROW = 26;
/** Rows that are drawn at once. */
const DEEP = 22;

const points = (f: Frame): number => f.fresh.value - f.base.value;
const signed = (x: number): string => `${x > 0 ? "+" : x < 0 ? "−" : "±"}${Math.abs(x).toFixed(1)} points`;
const range = (s: Share): string => (s.lo === null || s.hi === null ? percent(s.value) : `${percent(s.value)} (${percent(s.lo)} to ${percent(s.hi)})`);

export function Tree({ c }: { c: Obj }) {
  const pictures = obj(c["pictures"]);
  const [base, fresh] = [objs(pictures["base"]), objs(pictures["new"])];
  const calls = hasCalls([...base, ...fresh]);
  const [wanted, setKind] = useState<Kind>("calls");
  const kind = calls ? wanted : "code";
  const root = useMemo(() => merged(base, fresh, kind, renames(objs(c["changes"]))), [c, kind]);
  const svg = useRef<SVGSVGElement>(null);
  const exact = [...base, ...fresh].every((p) => p["mode"] === "full");
  const all = useMemo(() => flat(root), [root]);
  const selected = all.find((f) => f.id === (place.value.selection.node ?? "")) ?? root;
  const parents = useMemo(() => new Map(all.flatMap((f) => f.children.map((child) => [child, f] as const))), [all]);
  const focus = selected.children.length > 0 ? selected : (parents.get(selected) ?? root);
  if (root.children.length === 0) return <Panel title="What became more, and what less?"><p class="empty hatched">No side has a line or a call with a share: the traces have no samples, or no code is named in them.</p></Panel>;
  const inside = flat(focus).filter((f) => f.depth - focus.depth < DEEP && f.w / focus.w > 0.0008);
  const rows = Math.max(...inside.map((f) => f.depth)) - focus.depth + 1;
  const most = Math.max(0.5, ...all.filter((f) => f !== root && differs(f, exact)).map((f) => Math.abs(points(f))));
  const x = (f: Frame): number => (W * (f.x - focus.x)) / focus.w;
  const path: Frame[] = [];
  for (let f = parents.get(focus); f; f = parents.get(f)) path.unshift(f);
  const pick = (f: Frame): void => go({ node: f.id || undefined });
  const move = (event: KeyboardEvent): void => {
    const parent = parents.get(selected);
    const around = parent?.children ?? [selected];
    const at = around.indexOf(selected);
    const next = { ArrowLeft: around[at - 1], ArrowRight: around[at + 1], ArrowUp: parent, ArrowDown: selected.children[0] }[event.key];
    if (!next) return;
    event.preventDefault();
    pick(next);
  };
  const shownRows = all.filter((f) => f !== root).slice(0, 2000);
  const table = (): string => csv(["depth", "name", "place", "base_pct", "base_lo", "base_hi", "new_pct", "new_lo", "new_hi", "apart"], shownRows.map((f) => [f.depth, f.name, f.detail, f.base.value, f.base.lo, f.base.hi, f.fresh.value, f.fresh.lo, f.fresh.hi, differs(f, exact) ? "yes" : "no"]));
  const word = base[0]?.["by_time"] === true ? "time" : "loads";
  return (
    <div class="stack">
      <Panel title="What became more, and what less?" note={`Each box is as wide as the mean of its share of the ${word} in both builds, over what it ${kind === "calls" ? "calls" : "holds"}. Orange has more of it in the new build, blue less. Click a box to zoom in; the row above it zooms out. Arrow keys move.`}>
        <div class="tabs" role="group" aria-label="Kind of tree">
          <button type="button" aria-pressed={kind === "calls"} disabled={!calls} title={calls ? "" : "A side was recorded without call paths."} onClick={() => { setKind("calls"); go({ node: undefined }); }}>who called whom</button>
          <button type="button" aria-pressed={kind === "code"} onClick={() => { setKind("code"); go({ node: undefined }); }}>functions and lines</button>
        </div>
        <p class="crumbs">{path.map((f) => <a key={f.id} href="#tree" onClick={(e) => { e.preventDefault(); pick(f); }}>{short(f === root ? "all" : f.name, 30)} ›</a>)} <strong>{focus === root ? "all" : short(focus.name, 60)}</strong></p>
        <svg ref={svg} class="icicle" viewBox={`0 0 ${W} ${rows * ROW + 2}`} role="img" aria-label="Both builds as one tree of shares; the table below has all of it." tabindex={0} onKeyDown={move}>
          {inside.map((f) => {
            const wide = Math.max(1, (W * f.w) / focus.w - 1);
            const apart = f !== root && differs(f, exact);
            const strength = Math.round(15 + 40 * Math.min(1, Math.abs(points(f)) / most));
            const fill = apart ? `color-mix(in srgb, var(${points(f) > 0 ? "--irregular" : "--strided"}) ${strength}%, var(--panel))` : undefined;
            const y = (f.depth - focus.depth) * ROW;
            const share = f === root ? "" : ` ${percent(f.base.value)} → ${percent(f.fresh.value)}`;
            const room = Math.floor((wide - 12) / 7.4);
            const text = room > share.length + 8 ? short(f === root ? `all the ${word}` : f.name, room - share.length) + share : room > 5 ? short(f.name, room) : "";
            return (
              <g key={f.id} class="pick" onClick={() => pick(f)}>
                <rect x={x(f)} y={y} width={wide} height={ROW - 2} {...(fill ? { style: { fill } } : { class: f === root ? "c-rest" : "hatched-rect" })} />
                {f === selected && <rect x={x(f) + 1} y={y + 1} width={Math.max(1, wide - 2)} height={ROW - 4} class="chosen" />}
                {text && <text x={x(f) + 6} y={y + 17} class="ink">{text}</text>}
                <title>{f === root ? "The whole run" : `${f.name}\n${f.detail}\nbase ${range(f.base)}\nnew ${range(f.fresh)}\n${signed(points(f))}${apart ? "" : ": intervals overlap, so that it may be chance"}`}</title>
              </g>
            );
          })}
        </svg>
        <p class="key"><span class="swatch less" /> less <span class="swatch more" /> more, the stronger the colour the more points, up to {most.toFixed(1)}; <span class="swatch hatched-swatch" /> {exact ? "the same" : "the intervals of both builds overlap: it may be chance. (This picture compares each box by itself; the table of changes allows for how many are compared.)"}</p>
        <Take name="differences" table={table} svg={svg} />
      </Panel>
      <Panel title={focus === root && selected === root ? "What differs most?" : `What differs inside ${short(selected.name, 80)}?`}>
        <div class="twin" tabindex={0} role="region" aria-label="Differences, table">
          <table>
            <thead><tr><th class="left">{kind === "calls" ? "function" : "code"}</th><th>base</th><th>new</th><th>difference</th><th class="left">what it is</th></tr></thead>
            <tbody>
              {[...(selected === root ? all.filter((f) => f !== root) : flat(selected))].sort((p, q) => Number(differs(q, exact)) - Number(differs(p, exact)) || Math.abs(points(q)) - Math.abs(points(p))).slice(0, 200).map((f) => (
                <tr key={f.id} class={f === selected ? "selected" : ""}>
                  <td class="left"><button type="button" class="link" onClick={() => pick(f)} title={f.name}>{short(f.name, 60)}</button></td>
                  <td>{range(f.base)}</td><td>{range(f.fresh)}</td><td>{signed(points(f))}</td>
                  <td class="left">{differs(f, exact) ? (points(f) > 0 ? "more" : "less") : exact ? "" : "may be chance"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
    </div>
  );
}
