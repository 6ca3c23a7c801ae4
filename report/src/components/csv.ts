// Tables and pictures to take along.

/** Comma-separated values; a text that a spreadsheet would take for a formula is made one that it does not. */
export function csv(head: string[], rows: (string | number | null)[][]): string {
  const cell = (v: string | number | null): string => {
    if (v === null) return "";
    const text = typeof v === "number" ? String(v) : /^[=+\-@\t\r]/.test(v) ? `'${v}` : v;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${[head, ...rows].map((row) => row.map(cell).join(",")).join("\n")}\n`;
}

/** Puts text on the clipboard; where that is not allowed (files opened from a disk), into a file. */
export async function copy(text: string, name: string): Promise<"copied" | "saved"> {
  try {
    await navigator.clipboard.writeText(text);
    return "copied";
  } catch {
    save(new Blob([text], { type: "text/csv" }), name);
    return "saved";
  }
}

export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "text-anchor", "opacity", "fill-opacity"];

/** A picture as it looks now, with its styles in it. */
export function saveSvg(svg: SVGSVGElement, name: string): void {
  const clone = svg.cloneNode(true) as SVGSVGElement;
  const from = [svg, ...svg.querySelectorAll("*")];
  const to = [clone, ...clone.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const key of STYLES) to[i]?.setAttribute(key, style.getPropertyValue(key));
    to[i]?.removeAttribute("data-tip");
  });
  clone.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  save(new Blob([new XMLSerializer().serializeToString(clone)], { type: "image/svg+xml" }), name);
}
