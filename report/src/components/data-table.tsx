// A table of any length: only the rows in sight are in the document.
import { useMemo, useRef, useState } from "preact/hooks";
import { sorted } from "../data/table.ts";
import { copy, csv } from "./csv.ts";
import { define } from "./tip.tsx";

/** A column. */
export interface Column {
  key: string;
  head: string;
  /** Definition, where the documentation has none of the key. */
  tip?: string;
  width: number;
  left?: boolean;
  /** The cell is a picture that begins on the left. */
  bar?: boolean;
  /** The value that sorts the column and that is copied. */
  value: (row: number) => number | string | null;
  cell?: (row: number) => preact.ComponentChildren;
}

const HEIGHT = 30;
const BEYOND = 5;

export function DataTable(props: {
  name: string;
  columns: Column[];
  rows: number[];
  most?: number;
  sort?: string;
  selected?: number;
  onSelect?: (row: number) => void;
  note?: string;
}) {
  const { columns, rows, name } = props;
  const [order, setOrder] = useState<{ key: string; down: boolean } | null>(props.sort ? { key: props.sort, down: true } : null);
  const [top, setTop] = useState(0);
  const [said, setSaid] = useState("");
  const body = useRef<HTMLDivElement>(null);
  const by = columns.find((c) => c.key === order?.key);
  const list = useMemo(() => (by && order ? sorted(rows, by.value, order.down) : rows), [rows, by?.key, order?.down, columns.length]);
  const visible = props.most ?? 14;
  const first = Math.max(0, Math.floor(top / HEIGHT) - BEYOND);
  const last = Math.min(list.length, first + visible + 2 * BEYOND);
  const grid = columns.map((c) => `${c.left ? `minmax(${c.width}px, 3fr)` : `minmax(${c.width}px, 1fr)`}`).join(" ");
  const wide = columns.reduce((sum, c) => sum + c.width, 0);
  const toCsv = (): void => {
    const text = csv(columns.map((c) => c.key), list.map((row) => columns.map((c) => c.value(row))));
    void copy(text, `${name.toLowerCase().replaceAll(" ", "-")}.csv`).then((how) => setSaid(how === "copied" ? "copied" : "saved as a file"));
  };
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: visible, PageUp: -visible, Home: -1e9, End: 1e9 }[event.key];
    if (step === undefined || !props.onSelect || list.length === 0) return;
    event.preventDefault();
    const at = props.selected === undefined ? -1 : list.indexOf(props.selected);
    const next = Math.max(0, Math.min(list.length - 1, at + step));
    props.onSelect(list[next] ?? 0);
    const view = body.current;
    if (!view) return;
    const y = next * HEIGHT;
    if (y < view.scrollTop) view.scrollTop = y;
    else if (y + 2 * HEIGHT > view.scrollTop + view.clientHeight) view.scrollTop = y + 2 * HEIGHT - view.clientHeight;
  };
  // Rows that stay in sight are the same nodes as before, so that they are not compared again.
  const kept = useRef<{ of: unknown[]; nodes: Map<number, preact.VNode> }>({ of: [], nodes: new Map() });
  const of = [columns, list, props.selected];
  if (of.some((v, i) => v !== kept.current.of[i])) kept.current = { of, nodes: new Map() };
  const shown = (row: number, at: number): preact.VNode => {
    const { nodes } = kept.current;
    const old = nodes.get(at);
    if (old) return old;
    if (nodes.size > 500) nodes.clear();
    const node = (
      <div
        role="row"
        key={row}
        aria-rowindex={at + 2}
        class={`tr${props.selected === row ? " selected" : ""}${props.onSelect ? " pick" : ""}`}
        style={{ gridTemplateColumns: grid, height: `${HEIGHT}px`, top: `${at * HEIGHT}px` }}
        onClick={() => props.onSelect?.(row)}
      >
        {columns.map((c) => (
          <div role="cell" key={c.key} class={c.left || c.bar ? "left" : ""}>
            {c.cell ? c.cell(row) : String(c.value(row) ?? "–")}
          </div>
        ))}
      </div>
    );
    nodes.set(at, node);
    return node;
  };
  return (
    <div class="table-box">
      <div class="table-tools">
        <span>{props.note ?? `${list.length.toLocaleString("en")} ${list.length === 1 ? "row" : "rows"}`}</span>
        <button type="button" class="small" onClick={toCsv}>
          Copy as CSV
        </button>
        <span role="status">{said}</span>
      </div>
      <div
        ref={body}
        class="table"
        role="table"
        aria-label={name}
        aria-rowcount={list.length + 1}
        tabindex={0}
        style={{ maxHeight: `${(visible + 1) * HEIGHT + 4}px` }}
        onScroll={(e) => setTop(e.currentTarget.scrollTop)}
        onKeyDown={move}
      >
        <div role="rowgroup" class="thead" style={{ minWidth: `${wide}px` }}>
          <div role="row" class="tr" aria-rowindex={1} style={{ gridTemplateColumns: grid, height: `${HEIGHT}px` }}>
            {columns.map((c) => (
              <div role="columnheader" key={c.key} class={c.left || c.bar ? "left" : ""} aria-sort={order?.key === c.key ? (order.down ? "descending" : "ascending") : "none"}>
                <button type="button" data-tip={c.tip ?? define(c.key)} onClick={() => setOrder({ key: c.key, down: order?.key === c.key ? !order.down : !c.left })}>
                  {c.head}
                  {order?.key === c.key ? (order.down ? " ▾" : " ▴") : ""}
                </button>
              </div>
            ))}
          </div>
        </div>
        <div role="rowgroup" class="tbody" style={{ height: `${list.length * HEIGHT}px`, minWidth: `${wide}px` }}>
          {list.slice(first, last).map((row, i) => shown(row, first + i))}
        </div>
      </div>
    </div>
  );
}
