// The source line that a row of a comparison is of, as it is in both builds.
import { coloured } from "../components/source.tsx";
import { list, num, obj, objs, str, type Obj } from "../data/values.ts";
import { Panel } from "../views/common.tsx";

/** Lines shown on either side. */
const AROUND = 4;

interface Excerpt {
  path: string;
  line: number;
  rows: { number: number; text: string }[];
  missing: string;
  changed: boolean;
}

const lastPart = (path: string): string => path.split("/").pop() ?? path;

/**
 * A side's excerpt for `file:line`. Of several files of that name, it takes the one with a line of
 * that function.
 */
function excerpt(c: Obj, side: "base" | "new", at: string, name: string): Excerpt | null {
  const colon = at.lastIndexOf(":");
  const [file, line] = [at.slice(0, colon), Number(at.slice(colon + 1))];
  const files = obj(obj(c["sources"])[side]);
  const paths = Object.keys(files).filter((path) => lastPart(path) === file);
  const lines = objs(obj(c["pictures"])[side]).flatMap((p) => objs(p["lines"]));
  const known = lines.find((l) => num(l["line"]) === line && paths.includes(str(l["file"])) && str(l["function"]) !== "" && name.startsWith(str(l["function"])));
  const path = known ? str(known["file"]) : paths[0];
  if (colon < 0 || path === undefined) return null;
  const found = obj(files[path]);
  const all = list(found["lines"]).map((l) => ({ number: num(list(l)[0]) ?? 0, text: str(list(l)[1]) }));
  return { path, line, rows: all.filter((l) => Math.abs(l.number - line) <= AROUND), missing: str(found["missing"]), changed: found["changed"] === true };
}

function Side({ title, e }: { title: string; e: Excerpt | null }) {
  if (!e || e.rows.length === 0) return <section><h3 class="minor">{title}</h3><p class="empty">No source here{e ? ` (${e.path}: ${e.missing || "not embedded"})` : ""}.</p></section>;
  const pieces = coloured(e.path, e.rows.map((r) => r.text).join("\n"));
  return (
    <section>
      <h3 class="minor">{title}</h3>
      {e.changed && <p class="doubt">This file was changed after the recording: lines may have moved.</p>}
      <div class="source" tabindex={0} role="region" aria-label={`Source: ${title}`}>
        <table>
          <thead><tr><th>line</th><th class="left">{e.path}</th></tr></thead>
          <tbody>
            {e.rows.map((row, i) => (
              <tr key={row.number} class={row.number === e.line ? "selected" : ""}>
                <td class="number">{row.number}</td>
                <td class="left"><code>{(pieces[i] ?? []).map((p, j) => (p.cls ? <span key={j} class={p.cls}>{p.text}</span> : p.text))}</code></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

export function Lines({ c, row }: { c: Obj; row: Obj }) {
  const [old, fresh] = [str(row["place"]), str(row["new_place"]) || str(row["place"])];
  if (!old) return <Panel title="Which source line is it?"><p class="empty hatched">No source line is known for this row: a build has no debug information for it.</p></Panel>;
  if (!c["sources"]) return <Panel title="Which source line is it?"><p class="empty">The report was made without source (--no-source).</p></Panel>;
  const name = str(row["name"]);
  const [base, now] = [excerpt(c, "base", old, name), excerpt(c, "new", fresh, str(row["new_name"]) || name)];
  const text = (e: Excerpt | null): string => (e?.rows ?? []).map((r) => r.text).join("\n");
  const same = text(base) !== "" && text(base) === text(now);
  return (
    <Panel title={`How did the source of ${str(row["what"])} change?`} note={same ? "The lines are the same in both builds." : "The new build, and beside it the base where it is known and differs."}>
      {same ? <Side title={`new: ${fresh}${old === fresh ? "" : `, in the base ${old}`}`} e={now} /> : <div class="columns"><Side title={`new: ${fresh}`} e={now} /><Side title={`base: ${old}`} e={base} /></div>}
    </Panel>
  );
}
