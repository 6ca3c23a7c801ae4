// Cividis: light and dark alike with and without colour vision.
const STOPS: [number, number, number][] = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]];

/** The luminance of a colour. From 0.18 on, black text is easier to read on it than white text. */
function luminance(rgb: [number, number, number]): number {
  const [r, g, b] = rgb.map((c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4)) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** A colour from 0 to 1, as parts and as CSS, and the ink that can be read on it. */
export function heat(x: number): { rgb: [number, number, number]; css: string; ink: string } {
  const at = Math.max(0, Math.min(1, Number.isFinite(x) ? x : 0)) * (STOPS.length - 1);
  const i = Math.min(STOPS.length - 2, Math.floor(at));
  const [a, b] = [STOPS[i] ?? STOPS[0]!, STOPS[i + 1] ?? STOPS[0]!];
  const rgb = [0, 1, 2].map((c) => Math.round((a[c] ?? 0) + ((b[c] ?? 0) - (a[c] ?? 0)) * (at - i))) as [number, number, number];
  return { rgb, css: `rgb(${rgb.join(" ")})`, ink: luminance(rgb) > 0.18 ? "#000" : "#fff" };
}
