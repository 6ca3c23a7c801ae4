// Source lines that were hit, with their numbers beside them.
import { highlightCode, classHighlighter } from "@lezer/highlight";
import { parser as cpp } from "@lezer/cpp";
import { parser as python } from "@lezer/python";
import { parser as rust } from "@lezer/rust";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Model } from "../data/model.ts";
import { shareKey, shareWord } from "../data/model.ts";
import { greatest, list, num, obj, objs, str } from "../data/values.ts";
import { count, percent } from "../format.ts";

const PARSERS: [RegExp, { parse: (text: string) => import("@lezer/common").Tree }][] = [
  [/\.(c|cc|cpp|cxx|h|hh|hpp|hxx|cu|inl|m|java|js)$/i, cpp],
  [/\.rs$/i, rust],
  [/\.pyx?$/i, python],
];

type Piece = { text: string; cls: string };

/** Pieces of each line, with the classes of the highlighter. */
export function coloured(file: string, text: string): Piece[][] {
  const lines: Piece[][] = [[]];
  const put = (piece: string, cls: string): void => {
    lines[lines.length - 1]?.push({ text: piece, cls });
  };
  const parser = PARSERS.find(([end]) => end.test(file))?.[1];
  if (!parser) return text.split("\n").map((line) => [{ text: line, cls: "" }]);
  highlightCode(text, parser.parse(text), classHighlighter, put, () => lines.push([]));
  return lines;
}

export function Source({ m, file, line }: { m: Model; file: string; line: number | null }) {
  const found = m.sources === null ? null : obj(m.sources[file]);
  const rows = useMemo(() => list(found?.["lines"]).map((l) => ({ number: num(list(l)[0]) ?? 0, text: str(list(l)[1]) })), [found]);
  const pieces = useMemo(() => coloured(file, rows.map((r) => r.text).join("\n")), [rows, file]);
  const t = m.tables.lines;
  const hits = useMemo(() => {
    const by = new Map<number, { share: number; loads: number; used: number | null; d: number | null; irregular: number | null }>();
    for (let i = 0; i < t.rows; i++) {
      if (t.str("file", i) !== file) continue;
      const n = t.num("line", i) ?? 0;
      const old = by.get(n);
      const share = t.num(shareKey(m), i) ?? 0;
      const loads = t.num("A", i) ?? 0;
      if (old) {
        old.share += share;
        old.loads += loads;
      } else by.set(n, { share, loads, used: t.num("line_bytes", i), d: t.num("D_mean", i), irregular: t.num("dF_irr_pct", i) });
    }
    return by;
  }, [file, m]);
  const here = useRef<HTMLTableRowElement>(null);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (here.current && box.current) box.current.scrollTop = Math.max(0, here.current.offsetTop - 90);
  }, [file, line]);
  if (!file) return <p class="empty hatched">No source line is known for this code: its file has no debug information for it. Build it with <code>-g</code>, or install the package with its debug information, and run again.</p>;
  if (m.sources === null) return <p class="empty">The report was made without source (--no-source).</p>;
  if (rows.length === 0) return <p class="empty">{file}: no source here ({str(found?.["missing"]).replace(/ \(os error \d+\)/, "") || "not embedded"}). Make the report where the file lies.</p>;
  const most = greatest([...hits.values()].map((h) => h.share), 1e-9);
  return (
    <div>
      {inlinedHere(m, file, line, hits.get(line ?? 0)?.share ?? 0) && <p class="note">Most of what is slow here is in code that was inlined into line {line}: its time stands at its own lines (tab “lines”).</p>}
      {found?.["changed"] === true && <p class="doubt">This file was changed after the recording: lines may have moved.</p>}
      <div class="source" ref={box} tabindex={0} role="region" aria-label={`Source of ${file}`}>
        <table>
          <thead>
            <tr>
              <th data-tip="Of the line alone: without the functions that it calls, and without code that was inlined there, which has lines of its own.">{shareWord(m)} of the line</th>
              <th>used</th>
              <th>line</th>
              <th class="left">{file}</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, i) => {
              const hit = hits.get(row.number);
              const gap = i > 0 && row.number !== (rows[i - 1]?.number ?? 0) + 1;
              return (
                <tr key={row.number} ref={row.number === line ? here : null} class={`${row.number === line ? "selected" : ""}${gap ? " gap" : ""}`}>
                  <td class="heat" data-tip={hit ? `${count(hit.loads)} recorded loads${hit.irregular === null ? "" : `, ${hit.irregular.toFixed(0)} % of the growth irregular`}${hit.d === null ? "" : `, mean D ${count(hit.d)}`}` : undefined}>
                    {hit && (
                      <>
                        <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                          <rect width={(100 * hit.share) / most} height="10" class={(hit.irregular ?? 0) > 50 ? "c-irregular" : "c-strided"} />
                        </svg>
                        <span>{percent(hit.share)}</span>
                      </>
                    )}
                  </td>
                  <td>{hit?.used == null ? "" : `${hit.used.toFixed(0)} B`}</td>
                  <td class="number">{row.number}</td>
                  <td class="left">
                    <code>{(pieces[i] ?? []).map((p, j) => (p.cls ? <span key={j} class={p.cls}>{p.text}</span> : p.text))}</code>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </div>
  );
}

/** Tells whether a finding is at a line that takes little of the time by itself. */
function inlinedHere(m: Model, file: string, line: number | null, share: number): boolean {
  return line !== null && objs(m.run["findings"]).some((v) => str(v["file"]) === file && num(v["line"]) === line && (num(v["score"]) ?? 0) > 2 * share);
}
