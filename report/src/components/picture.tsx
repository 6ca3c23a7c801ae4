// Buttons that take a picture or a table along.
import type { RefObject } from "preact";
import { useState } from "preact/hooks";
import { copy, saveCanvas, savePng, saveSvg } from "./csv.ts";

/** Takes the numbers and the picture of a view along, as `name` with the ending of the kind. */
export function Take({ name, table, svg, canvas }: { name: string; table?: () => string; svg?: RefObject<SVGSVGElement | null>; canvas?: RefObject<HTMLCanvasElement | null> }) {
  const [said, setSaid] = useState("");
  return (
    <span class="take">
      {table && (
        <button type="button" class="small" onClick={() => void copy(table(), `${name}.csv`).then((how) => setSaid(how === "copied" ? "copied" : "saved as a file"))}>
          Copy as CSV
        </button>
      )}
      {svg && (
        <button type="button" class="small" onClick={() => svg.current && saveSvg(svg.current, `${name}.svg`)}>
          Save as SVG
        </button>
      )}
      {(svg || canvas) && (
        <button type="button" class="small" onClick={() => void (canvas?.current ? saveCanvas(canvas.current, `${name}.png`) : svg?.current ? savePng(svg.current, `${name}.png`) : undefined)}>
          Save as PNG
        </button>
      )}
      <span role="status">{said}</span>
    </span>
  );
}
