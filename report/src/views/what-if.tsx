// Sliders for the caches, and what they change.
import { useState } from "preact/hooks";
import { Interval } from "../components/interval.tsx";
import { caches, isComplete, served, type Model } from "../data/model.ts";
import { num, obj, objs, type Obj } from "../data/values.ts";
import { missShare, predictedShare } from "../data/what-if.ts";
import { bytes, percent } from "../format.ts";
import { go, place } from "../state.ts";
import { bins, Panel } from "./common.tsx";

/** Steps of a slider: a quarter of a power of two. */
const STEPS = 4;
const LEAST = 10;
const MOST = 30;

interface Level {
  name: string;
  bytes: number;
  ways: number;
}

const position = (x: number): number => Math.round(STEPS * Math.log2(Math.max(1, x)));

export function WhatIf({ m, row, name }: { m: Model; row: Obj | null; name: string }) {
  const known = caches(m);
  const told = objs(m.trace["caches"] ?? m.manifest["caches"]);
  const real: Level[] = known.list.map((c, i) => ({ name: c.name, bytes: c.bytes, ways: known.known ? (num(told[i]?.["ways"]) ?? 0) : [8, 16, 16][i] ?? 0 }));
  const [levels, setLevels] = useState<Level[]>(real);
  const block = num(m.summary["block"]) ?? 64;
  const complete = isComplete(m);
  const of = row ?? m.summary;
  const shares = (l: Level) => ({ bound: missShare(bins(of["D_hist"]), num(of["first_touches"]) ?? 0, block, l, complete), guess: predictedShare(obj(of), l.bytes) });
  const change = (i: number, patch: Partial<Level>): void => setLevels(levels.map((l, j) => (j === i ? { ...l, ...patch } : l)));
  const same = levels.every((l, i) => l.bytes === real[i]?.bytes && l.ways === real[i]?.ways);
  const line = place.value.selection.block;
  return (
    <Panel title="What if the caches were others?" note={`Move a slider: what ${name || "the whole run"} would miss in a cache of that size and associativity. Each level is taken by itself, with LRU, for all loads; blocks are taken as dealt to sets by chance.`}>
      <div class="what-if">
        {levels.map((l, i) => {
          const was = real[i];
          const [now, before] = [shares(l), was ? shares(was) : shares(l)];
          return (
            <fieldset key={l.name}>
              <legend>{l.name}{known.known ? "" : " (typical)"}</legend>
              <label>
                size <output>{bytes(l.bytes)}</output>
                <input type="range" min={LEAST * STEPS} max={MOST * STEPS} value={position(l.bytes)} aria-valuetext={bytes(l.bytes)} onInput={(e) => { const at = Number(e.currentTarget.value); change(i, { bytes: was && at === position(was.bytes) ? was.bytes : Math.round(2 ** (at / STEPS) / block) * block || block }); }} />
              </label>
              <label>
                ways <output>{l.ways === 0 ? "all" : l.ways}</output>
                <input type="range" min={0} max={32} value={l.ways} aria-valuetext={l.ways === 0 ? "fully associative" : String(l.ways)} onInput={(e) => change(i, { ways: Number(e.currentTarget.value) })} />
              </label>
              <div class="would">
                <span><small>as it is</small><Interval e={before.bound} max={100} show={percent} bounds={complete ? BINS : VAGUE} /></span>
                <span><small>then</small><Interval e={now.bound} max={100} show={percent} bounds={complete ? BINS : VAGUE} /></span>
                {now.guess && <span><small>predicted, fully associative</small><Interval e={now.guess} max={100} show={percent} /></span>}
              </div>
            </fieldset>
          );
        })}
      </div>
      <p class="note">
        Misses of 100 touches of {bytes(block)} blocks. {complete ? "From all reuse distances of the run, which are known up to the bins of their histogram." : "Between all first touches of the windows hitting and all of them missing: windows do not tell. Longer windows, or the whole run (mgz run --full), narrow that."}{" "}
        {!same && <button type="button" class="small" onClick={() => setLevels(real)}>{known.known ? "this machine's caches" : "typical caches"}</button>}
      </p>
      {served.value ? (
        <div class="tabs" role="group" aria-label="Bytes of a line">
          <span>bytes of a line:</span>
          {["16", "32", "64", "128", "256"].map((b) => <button type="button" key={b} aria-pressed={(line ?? "64") === b} onClick={() => go({ block: b === "64" ? undefined : b })}>{b}</button>)}
        </div>
      ) : (
        <p class="note">Lines of another length: <code>mgz analyze TRACE --block 128</code>, or choose them with <code>mgz serve TRACE</code>.</p>
      )}
    </Panel>
  );
}

const BINS = "Distances are known up to the width of the bins of their histogram.";
const VAGUE = `First touches of a window are counted as misses at the upper end, and as hits at the lower. ${BINS}`;
