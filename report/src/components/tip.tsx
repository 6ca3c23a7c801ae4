// Definitions on hover and on focus: one box for all of them.
import definitions from "virtual:definitions";
import { signal } from "@preact/signals";

/** The documentation's definition of a key. */
export function define(key: string): string {
  const known = definitions[key] ?? definitions[key.replace(/^\w+\./, "")];
  if (known) return [known.meaning, known.unit && `Unit: ${known.unit}.`, known.formula && known.formula !== "–" && `${known.symbol && known.symbol !== "–" ? `${known.symbol} = ` : ""}${known.formula}`].filter(Boolean).join("\n");
  const base = /^(\w+?)_(hat|lo|hi)$/.exec(key)?.[1];
  const of = base && definitions[base];
  return of ? `${of.meaning}\nEstimate for the whole run, with its 95 % interval.` : "";
}

const shown = signal<{ text: string; x: number; y: number; above: boolean } | null>(null);

function show(event: Event): void {
  const element = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
  const text = element?.getAttribute("data-tip");
  if (!element || !text) {
    shown.value = null;
    return;
  }
  const box = element.getBoundingClientRect();
  const above = box.bottom > innerHeight - 160;
  shown.value = { text, x: Math.max(8, Math.min(box.left, innerWidth - 340)), y: above ? box.top - 6 : box.bottom + 6, above };
}

export function watchTips(): void {
  for (const name of ["mouseover", "focusin"]) document.addEventListener(name, show);
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape") shown.value = null;
  });
  addEventListener("scroll", () => (shown.value = null), true);
}

export function TipBox() {
  const tip = shown.value;
  if (!tip) return null;
  const place = tip.above ? { left: tip.x, bottom: innerHeight - tip.y } : { left: tip.x, top: tip.y };
  return (
    <div role="tooltip" class="tip" style={place}>
      {tip.text}
    </div>
  );
}

/** A word with its definition. */
export function Term({ k, children, text }: { k?: string; text?: string; children: preact.ComponentChildren }) {
  const tip = text ?? (k ? define(k) : "");
  return tip ? (
    <span class="term" data-tip={tip} tabindex={0}>
      {children}
    </span>
  ) : (
    <span>{children}</span>
  );
}
