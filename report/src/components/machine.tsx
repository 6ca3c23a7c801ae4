// Machine code of a line, on demand: instructions that were recorded are marked.
import type { Model } from "../data/model.ts";
import { list, num, objs, str } from "../data/values.ts";

/** Ranges of machine code that hold the line. */
export function Machine({ m, file, line }: { m: Model; file: string; line: number | null }) {
  const ranges = objs(m.code["ranges"]).filter((r) => str(r["file"]) === file && num(r["line"]) === line);
  if (!file || line === null) return null;
  if (ranges.length === 0) return <p class="note">{list(m.code["ranges"]).length > 0 ? "Machine code is embedded for the lines with the most loads only." : "The report has no machine code of this program."} All of it: <code>objdump -d -l PROGRAM</code></p>;
  return (
    <details class="machine">
      <summary>Machine code of line {line}</summary>
      {ranges.map((r, i) => (
        <div class="source" key={i} tabindex={0} role="region" aria-label={`Machine code in ${str(r["function"])}`}>
          <table>
            <thead><tr><th>address</th><th class="left">{str(r["function"])} in {str(r["module"])}</th><th class="left">class</th></tr></thead>
            <tbody>
              {objs(r["code"]).map((c, j) => (
                <tr key={j} class={num(c["line"]) === line && str(c["file"]) === file ? "selected" : ""}>
                  <td class="number">{str(c["address"])}</td>
                  <td class="left"><code>{str(c["text"])}</code></td>
                  <td class="left">{str(c["class"])}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ))}
      <p class="note">Marked rows are the loads of this line; the class of a load is what its code tells. The code is that of the program as it was before it was instrumented.</p>
    </details>
  );
}
