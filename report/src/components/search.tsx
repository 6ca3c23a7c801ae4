// Ctrl-K: everything that has a name.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { placeOf, shareKey, type Model } from "../data/model.ts";
import { objectNames } from "../data/object-names.ts";
import { percent, short } from "../format.ts";
import { go } from "../state.ts";

export const searching = signal(false);

interface Hit {
  kind: string;
  text: string;
  share: number | null;
  open: () => void;
}

/** Names that hold all the words, the largest share first. */
export function find(m: Model, text: string, most = 30): Hit[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const fits = (name: string): boolean => {
    const low = name.toLowerCase();
    return words.every((w) => low.includes(w));
  };
  const key = shareKey(m);
  const hits: Hit[] = [];
  const { functions: f, objects: o, lines: l } = m.tables;
  for (let i = 0; i < f.rows; i++) {
    const name = f.str("function", i);
    if (fits(name)) hits.push({ kind: "function", text: name, share: f.num(key, i), open: () => go({ fn: name, mod: f.str("module", i) || undefined, file: undefined, line: undefined, tab: "functions" }, "code") });
  }
  for (let i = 0; i < o.rows; i++) {
    const name = objectNames(o)[i] ?? "";
    if (fits(name)) hits.push({ kind: "object", text: name, share: o.num(key, i), open: () => go({ obj: name }, "data") });
  }
  for (let i = 0; i < l.rows; i++) {
    const line = l.num("line", i);
    const name = `${l.str("file", i)}:${line ?? 0}`;
    if (line && fits(name)) hits.push({ kind: "line", text: `${placeOf(l.str("file", i), line)} ${l.str("function", i)}`, share: l.num(key, i), open: () => go({ fn: l.str("function", i) || undefined, file: l.str("file", i), line: String(line), tab: "lines" }, "code") });
  }
  return hits.sort((a, b) => (b.share ?? 0) - (a.share ?? 0)).slice(0, most);
}

export function Search({ m }: { m: Model }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const box = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const keys = (e: KeyboardEvent): void => {
      const typing = e.target instanceof HTMLInputElement;
      if ((e.key === "k" && (e.ctrlKey || e.metaKey)) || (e.key === "/" && !typing)) {
        e.preventDefault();
        searching.value = true;
        // At once, not with the next picture: what is typed meanwhile would go nowhere.
        if (box.current && !box.current.open) box.current.showModal();
      }
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  useEffect(() => {
    if (searching.value && box.current && !box.current.open) box.current.showModal();
    if (!searching.value && box.current?.open) box.current.close();
  }, [searching.value]);
  const hits = searching.value ? find(m, text) : [];
  const open = (hit: Hit | undefined): void => {
    if (!hit) return;
    searching.value = false;
    setText("");
    if (input.current) input.current.value = "";
    hit.open();
  };
  const move = (e: KeyboardEvent): void => {
    if (e.key === "ArrowDown") setAt(Math.min(hits.length - 1, at + 1));
    else if (e.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (e.key === "Enter" && e.target === input.current) {
      // The list may still be that of fewer letters.
      const typed = input.current?.value ?? "";
      open(typed === text ? hits[at] : find(m, typed)[0]);
    } else return;
    e.preventDefault();
  };
  return (
    <dialog ref={box} class="search" aria-label="Search" onClose={() => (searching.value = false)} onKeyDown={move}>
      <input ref={input} autofocus type="search" aria-label="Function, line or object" placeholder="Function, line or object" value={text} onInput={(e) => { setText(e.currentTarget.value); setAt(0); }} />
      <ul>
        {hits.map((h, i) => (
          <li key={i}>
            <button type="button" class={i === at ? "selected" : ""} title={h.text} onClick={() => open(h)}>
              <small>{h.kind}</small> <span>{short(h.text, 70)}</span> <small>{percent(h.share)}</small>
            </button>
          </li>
        ))}
      </ul>
      {text && hits.length === 0 && <p class="empty">Nothing of that name was loaded from or executed.</p>}
    </dialog>
  );
}
