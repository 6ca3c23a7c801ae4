// Tables and pictures to take along.

/** Comma-separated values. Text that a spreadsheet would take for a formula is escaped. */
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
function standalone(svg: SVGSVGElement): { text: string; width: number; height: number } {
  const clone = svg.cloneNode(true) as SVGSVGElement;
  const from = [svg, ...svg.querySelectorAll("*")];
  const to = [clone, ...clone.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const key of STYLES) to[i]?.setAttribute(key, style.getPropertyValue(key));
    to[i]?.removeAttribute("data-tip");
    to[i]?.removeAttribute("style");
  });
  const box = svg.viewBox.baseVal;
  const [width, height] = [box.width || svg.clientWidth || 1, box.height || svg.clientHeight || 1];
  clone.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  clone.setAttribute("width", String(width));
  clone.setAttribute("height", String(height));
  return { text: new XMLSerializer().serializeToString(clone), width, height };
}

export function saveSvg(svg: SVGSVGElement, name: string): void {
  save(new Blob([standalone(svg).text], { type: "image/svg+xml" }), name);
}

/** The picture in points, twice as many as on the screen, on the page's ground. */
export async function savePng(svg: SVGSVGElement, name: string): Promise<void> {
  const { text, width, height } = standalone(svg);
  const image = new Image();
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  image.src = url;
  try {
    await image.decode();
    const canvas = document.createElement("canvas");
    // Browsers have no larger canvas than about 16,000 points.
    const scale = Math.min(2, 16_000 / Math.max(width, height));
    canvas.width = Math.ceil(width * scale);
    canvas.height = Math.ceil(height * scale);
    const to = canvas.getContext("2d");
    if (!to) return;
    to.fillStyle = getComputedStyle(svg.closest(".panel") ?? document.documentElement).backgroundColor;
    to.fillRect(0, 0, canvas.width, canvas.height);
    to.drawImage(image, 0, 0, canvas.width, canvas.height);
    await saveCanvas(canvas, name);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** A canvas as a file; one with few points is enlarged, so that cells can be seen. */
export async function saveCanvas(canvas: HTMLCanvasElement, name: string): Promise<void> {
  const times = Math.max(1, Math.floor(1200 / Math.max(1, canvas.width)));
  const large = document.createElement("canvas");
  large.width = canvas.width * times;
  large.height = canvas.height * (times > 1 ? Math.max(times, 28) : 1);
  const to = large.getContext("2d");
  if (!to) return;
  to.imageSmoothingEnabled = false;
  to.drawImage(canvas, 0, 0, large.width, large.height);
  const blob = await new Promise<Blob | null>((done) => large.toBlob(done, "image/png"));
  if (blob) save(blob, name);
}
