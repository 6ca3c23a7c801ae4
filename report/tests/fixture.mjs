// Reports for tests: the viewer with data that are made up, as `mgz report` puts them in.
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const TABLES = ["functions", "lines", "loops", "objects"];
const PARTS = ["heat_map", "time_zoom", "location_zoom", "call_paths", "affinity", "disassembly", "measured"];

/** Rows by columns. */
export function table(rows) {
  const columns = {};
  rows.forEach((row, i) => {
    for (const [key, value] of Object.entries(row)) (columns[key] ??= Array(rows.length).fill(null))[i] = value;
  });
  return { rows: rows.length, columns };
}

/** Puts parts into the viewer. */
function filled(parts) {
  const viewer = readFileSync(new URL("../dist/report.html", import.meta.url), "utf8");
  const data = parts.map(([name, value]) => `<script type="application/octet-stream" id="mgz-${name}">${gzipSync(JSON.stringify(value)).toString("base64")}</script>\n`);
  return viewer.replace("<!--mgz-data-->", () => data.join(""));
}

/** A page of a kind of its own: `compare` or `ranks`. */
export function writePart(file, name, value) {
  writeFileSync(file, filled([[name, value]]));
  return `file://${file}`;
}

/** Puts an analysis into the viewer. */
export function page(analysis, manifest, sources) {
  const run = Object.fromEntries(Object.entries(analysis).filter(([key]) => !TABLES.includes(key) && !PARTS.includes(key)));
  const parts = [["run", { ...run, manifest }], ...TABLES.map((t) => [t, table(analysis[t] ?? [])]), ...PARTS.filter((p) => analysis[p]).map((p) => [p, analysis[p]]), ["sources", sources]];
  return filled(parts);
}

export function write(file, ...content) {
  writeFileSync(file, page(...content));
  return `file://${file}`;
}

const bins = (n) => Array.from({ length: n }, (_, i) => ({ from: i === 0 ? 0 : 2 ** (i - 1), to: i === 0 ? 0 : 2 ** i - 1, count: 1000 >> i }));

/** Metrics of a row with a share of `p` percent. */
const metrics = (p) => ({
  time_pct: p, time_pct_lo: p * 0.8, time_pct_hi: Math.min(100, p * 1.3 + 1), A_pct: null, A: Math.round(p * 1000), A_const: 0, A_const_pct: 0, F: 500, F_64: 100, line_bytes: 12.5,
  dF: 0.5, dF_str_pct: 60, dF_irr_pct: 40, D_mean: 7.5, D_max: 900, D_hist: bins(10), first_pct: 20, first_touches: 200, reuses: 800,
  F_64_hat: 1000, F_64_lo: 700, F_64_hi: 2000, F_undersampled: p < 5, undersampled: false, strides: [{ from: 8, to: 8, count: 5, pct: 70 }, { from: -512, to: -256, count: 2, pct: 30 }],
});

/**
 * Memory samples: the first function's L1 misses are predicted too high, its L2 misses too low, all
 * others agree. `drawn` from less than all loads, the two are not comparable.
 */
function samples(name, drawn, predictions) {
  const allLoads = drawn === "loads";
  const level = (level, measured, predicted) => ({ level, measured, predicted: predictions ? predicted : null, differs: predictions && predicted && allLoads ? predicted[0] > measured[2] || predicted[2] < measured[0] : null });
  const loads = (i) => ({
    samples: 9000 >> i, levels: [{ level: "L1", samples: 8000 >> i, share_pct: [85, 88, 91] }, { level: "fill buffer", samples: 90, share_pct: [0.8, 1, 1.3] }, { level: "memory", samples: 900 >> i, share_pct: [9, 11, 13] }],
    latency: i < 2 ? [40, 50, 60] : null, latency_samples: 900 >> i, tlb_miss_pct: i < 2 ? [1, 2, 3] : null, hitm_pct: [0, 0.01, 0.2], remote_pct: null, nodes: i ? [] : [{ node: 0, samples: 10, share_pct: [20, 30, 40] }],
    misses: [level("L1", [0.09, 0.11, 0.14], i ? [0.1, 0.2, 0.3] : [0.4, 0.5, 0.6]), level("L2", [0.08, 0.1, 0.12], i ? null : [0.01, 0.02, 0.03]), level("L3", [0, 0.01, 0.02], [0.01, 0.01, 0.01])],
  });
  const row = (i, more) => ({ function: "", module: "app", file: "", line: 0, object: "", kind: "", ...more, share_pct: [40 >> i, 50 >> i, 60 >> i], ...loads(i) });
  return {
    trace: name("trace", 0), drawn, of_all_loads: allLoads, others: 5, ...(predictions ? { of_recorded_code: 8000 } : {}), ...loads(0),
    functions: [0, 1, 2].map((i) => row(i, { function: name("function", i) })), lines: [0, 1, 2].map((i) => row(i, { function: name("function", i), file: `/src/${name("file", i % 2)}.c`, line: i + 3 })), objects: [0, 1].map((i) => row(i, { object: name("object", i), kind: "global" })),
  };
}

/** An analysis with everything in it. `measured` is what its memory samples are drawn from. `name` is put wherever a trace has a name. */
export function example({ name = (kind, i) => `${kind}_${i}`, rows = 6, caches = [], misses = false, measured = "" } = {}) {
  const share = (i) => 60 / (i + 1);
  const some = [0, 1, 2].filter((i) => i < rows);
  const predicted = { curve: [1024, 65536, 4 << 20].map((size, i) => ({ size, ratio: [0.3 / (i + 1), 0.5 / (i + 1), 0.6 / (i + 1)] })), levels: [{ level: "L1", size: 32768, ratio: [0.1, 0.2, 0.3], share: [0.4, 0.5, 0.7], count: null, prefetchable: 0.5 }, { level: "L2", size: 1048576, ratio: null, share: null }], stall_ns: null };
  const extra = misses ? { misses: predicted } : {};
  const functions = Array.from({ length: rows }, (_, i) => ({ function: name("function", i), module: "app", ...metrics(share(i)), ...extra }));
  const lines = Array.from({ length: rows }, (_, i) => ({ function: name("function", i), module: "app", file: `/src/${name("file", i % 2)}.c`, line: i + 3, inlined_into: [`${name("function", 0)} at a.c:1`], ...metrics(share(i)), ...extra, classes: [{ static: "irregular", observed: "strided", step: 8, sites: 2, steps: 10, pct: 80 }] }));
  const loops = some.map((i) => ({ function: name("function", i), module: "app", file: "/src/a.c", line: i + 3, address: `0x${(4096 + i).toString(16)}`, outer: null, depth: i + 1, inlined_into: "", ...metrics(share(i)) }));
  const part = (i) => ({ function: name("function", i), module: "app", file: "/src/a.c", line: 3, A: 100, A_pct: 50, D_mean: 2, D_max: 9 });
  const objects = some.map((i) => ({ object: name("object", i), kind: i ? "global" : "heap", type: "int", module: "app", stack: i ? [] : [name("function", 1), "main"], instances: 1, bytes: 4096 << i, blocks: 64, A_per_block: 3, A_irr_pct: 30, functions: [part(0), part(1)], lines: [part(0)], strides_hat: [{ from: 64, to: 64, pct: 90 }], ...metrics(share(i)) }));
  const node = (id, from, to, children = []) => ({ id, kind: id === "" ? "run" : "interval", samples: 10, from_ns: from * 1e9, to_ns: to * 1e9, process: null, thread: null, on_path: id === "1", exact: false, hot: true, functions: [part(0)], loops: [part(1)], strides_hat: [], ...metrics(100), children });
  const region = (id, i, children = []) => ({ id, process: null, start: `0x${(65536 * i).toString(16)}`, end: `0x${(65536 * i + 65535).toString(16)}`, bytes: 65536, blocks: 9, A_per_block: 2, functions: [part(0)], lines: [part(1)], objects: [{ object: name("object", 0), kind: "heap", A: 9, A_pct: 100 }], strides_hat: [], ...metrics(100 / (i + 1)), children });
  const columns = Array.from({ length: 12 }, (_, i) => ({ from_ns: i * 1e9, to_ns: (i + 1) * 1e9 }));
  return {
    analysis: {
      format: "mgz-analysis", version: 1,
      summary: { ...metrics(100), trace: { command: [name("command", 0), "--all"], started: "2026-01-01T00:00:00Z", backend: "soft", mode: "burst", state: "complete", program_status: "exit 0", by_time: true, wall_seconds: 12.5, loads_executed: null, dropped: { torn_loads: 3 }, truncated_windows: {}, caches, coverage: { time_samples: 100, generated_bytes: 4096, generated_samples: 3, files: [{ path: `/lib/${name("library", 0)}`, instrumented: false, needed: true, samples: 20, reads_for: ["memcpy"] }, { path: "/app", instrumented: true, needed: true, samples: null, reads_for: [] }], programs: [{ path: `/bin/${name("program", 0)}`, times: 2, why: "not instrumented" }] }, not_recorded: [name("sentence", 1)] }, block: 64, rows: 60000, samples: 60, sample_min: 900, sample_mean: 1000, sample_max: 1100, rho: 200, rho_source: "loads_executed_estimate", A_hat: 1e7, A_lo: 5e6, A_hi: 3e7, interval_hist: bins(12), doubtful: { unread: 2 }, ...extra },
      functions, lines, loops, objects,
      ...(measured ? { measured: samples(name, measured, misses), counters: { loads: 1e9, misses: [{ level: "L1", counted: [0.04, 0.05, 0.11], predicted: null }], tlb_miss_pct: 0.1 } } : {}),
      call_paths: { state: "recorded", whole: 50, partial: 6, unknown: 4, left_out: 0, calls: some.map((i) => ({ id: i + 1, parent: i, depth: i, function: name("function", i), module: "app", file: "/src/a.c", call_file: i ? "/src/a.c" : "", call_line: i ? i + 2 : 0, inlined: i === 2, own: i < 2, time_pct: 90 - i * 30, time_pct_lo: 80 - i * 30, time_pct_hi: 95 - i * 30, self_pct: 30, A_pct: 90 - i * 30, windows: 50 - i, A: 50000 - i, F: 900, F_64: 100, dF: 0.02 })) },
      windows: [16, 32, 64].map((W) => ({ W, windows: 5, F: W / 2, F_str: W / 3, F_irr: W / 6, D_mean: W / 9 })),
      growth: [16, 64, 256, 1024, 4096].map((W) => ({ W, F_hat: W / 2, F_lo: W / 3, F_hi: W, F_str_hat: W / 4, F_str_lo: W / 6, F_str_hi: W / 2, F_irr_hat: W / 4, F_irr_lo: W / 6, F_irr_hi: null, F_undersampled: W > 1000 })),
      inter_sample: { block: 4096, reuses: 50, first_touches: 7, interval_mean: 1e5, D_mean_hat: 30, interval_hist: bins(20) },
      findings: ["stride", "irregular", "streaming", "capacity", "sparse_pages", "interleave"].map((kind, i) => ({ kind, score: 10 - i, function: kind === "capacity" ? "" : name("function", 0), file: `/src/${name("file", 0)}.c`, line: 3, object: name("object", 0), finding: name("finding", i), advice: name("advice", i), ...(misses ? { title: name("title", i), time_pct: 30, time_pct_lo: 20, time_pct_hi: 45, A_pct: 20, misses_pct: 40, level: "L2", remedy: "split of it", saved_pct: 38, saved_pct_lo: 31, saved_pct_hi: 44, also: ["/src/a.c:7"], allocated: name("function", 2), working_set: 1 << 24 } : {}) })),
      heat_map: { columns, rows: [0, 1].map((r) => ({ region: `0.${r}`, start: "0x10000", end: "0x1ffff", label: name("object", r), A: columns.map((_, i) => i * 10), D_mean: columns.map((_, i) => (i % 3 ? i : null)) })) },
      time_zoom: { fanout: 8, path: ["1"], root: node("", 0, 12, [node("0", 0, 6), node("1", 6, 12, [node("1.0", 6, 9), node("1.1", 9, 12)])]) },
      affinity: affinity(),
      disassembly: { ranges: [{ file: `/src/${name("file", 0)}.c`, line: 3, function: name("function", 0), module: "app", code: [{ address: "0x1000", text: "lea rax, [rdi]", line: null, class: null }, { address: "0x1004", text: "movl (%rax, %rcx, 4), %edx", file: `/src/${name("file", 0)}.c`, line: 3, class: "strided, 4 bytes an iteration" }] }] },
      location_zoom: { block: 64, tau_pct: 10, pages: [4096], worst: "0.0", root: region("", 0, [region("0", 0, [region("0.0", 1)]), region("1", 2)]) },
      warnings: [name("sentence", 0)],
      ...(misses ? { threads: [0, 1, 2].map((i) => ({ process: 10, thread: i === 2 ? null : 10 + i, name: name("thread", i), samples: 5, ...metrics(share(i)) })), processes: [10, 20].map((process) => ({ process, name: name("process", 0), threads: 2, ...metrics(50) })) } : {}),
    },
    manifest: { tool: "mgz-record 0.1.0", host: "host", cpu: "CPU", overhead: 1, recording_seconds: 0.1, cpu_seconds: 10, trigger: "cpu time", trigger_why: "no PMU", threads: [1, 2, 3].map((t) => ({ process: 1, thread: t, rows: 100 * t, samples: t })), problems: [], totals: {} },
    sources: { [`/src/${name("file", 0)}.c`]: { lines: [[2, "int f(int *a) {"], [3, `  return a[0]; /* ${name("comment", 0)} */`], [4, "}"]], changed: false }, [`/src/${name("file", 1)}.c`]: { missing: "no such file" } },
  };
}

/** Places that are used together. */
function affinity(n = 8) {
  const at = (i) => 0x10000 + 64 * i;
  const cells = Array.from({ length: n * n }, (_, i) => ({ x: Math.floor(i / n), y: i % n, SA: Math.abs(Math.floor(i / n) - (i % n)) > 4 ? null : 1 / (1 + Math.abs(Math.floor(i / n) - (i % n))), saved: i }));
  return { summary: { A: 1e6, reach: 64, hot_share: 0.4 }, places: Array.from({ length: n }, (_, i) => ({ place: i, process: 1, address: at(i), bytes: 64, A: 1000 - i })), pairs: [{ x: 0, y: 1, address_x: at(0), address_y: at(1), saved: 900, saved_share: 0.3 }], matrix: cells };
}

/** A comparison with each verdict in it. `name` is put wherever a trace has a name. */
export function comparison({ name = (kind, i) => `${kind}_${i}`, same = false } = {}) {
  const cell = (value, off = 0.1) => ({ value, lo: value * (1 - off), hi: value * (1 + off) });
  const change = (kind, i, metric, base, fresh, verdict, more = {}) => ({
    kind, name: kind === "run" ? "" : name("function", i), metric, unit: metric, base: cell(base), new: cell(fresh), change_pct: base ? 100 * (fresh / base - 1) : null,
    change_lo: base ? 100 * (fresh / base - 1) - 8 : null, change_hi: base ? 100 * (fresh / base - 1) + 8 : null, p: 0.001, test: "intervals", verdict, weight: 30 / (i + 1),
    what: kind === "run" ? "the run" : `${name(kind === "object" ? "object" : "function", i)}`, sentence: `\`${name("function", i)}\` takes more`, news: verdict === "better" || verdict === "worse", ...more,
  });
  const calls = (shares) => [
    { id: 1, parent: 0, depth: 0, function: "main", module: "app", time_pct: 100, time_pct_lo: 98, time_pct_hi: 100, A_pct: 100 },
    ...shares.map(([i, pct]) => ({ id: i + 2, parent: 1, depth: 1, function: name("function", i), module: "app", time_pct: pct, time_pct_lo: Math.max(0, pct - 4), time_pct_hi: Math.min(100, pct + 4), A_pct: pct })),
    { id: 50, parent: 2, depth: 2, function: name("function", 9), module: "app", time_pct: 10, time_pct_lo: 7, time_pct_hi: 13, A_pct: 10 },
  ];
  const picture = (path, shares, times) => ({
    path, command: [name("command", 0), "--all"], started: "2026-01-01T00:00:00Z", mode: "burst", by_time: true, wall_seconds: 3, samples: 500, block: 64, first_touches: 300, caches: [{ level: 1, size: 32768, ways: 8, line: 64 }],
    D_hist: bins(10).map((b) => ({ ...b, count: b.count * times })), windows: [], growth: [16, 64, 256].map((W) => ({ W, F_hat: (W / 2) * times, F_lo: (W / 3) * times, F_hi: W * times })),
    call_paths: { state: "recorded", calls: calls(shares) }, lines: shares.map(([i, pct]) => ({ function: name("function", i), module: "app", file: `/src/${name("file", 0)}.c`, line: i + 3, pct, lo: pct - 4, hi: pct + 4 })),
  });
  const changes = same
    ? [change("run", 0, "loads", 1e7, 1e7, "same"), change("function", 0, "time", 40, 41, "unclear")]
    : [change("function", 0, "time", 30, 45, "worse"), change("function", 1, "time", 50, 25, "better"), change("run", 0, "loads", 1e7, 1.5e7, "worse"), change("line", 0, "time", 30, 45, "worse", { place: `${name("file", 0)}.c:3`, new_place: `${name("file", 0)}.c:5` }), change("object", 0, "F", 1e5, 2e5, "worse"), change("run", 0, "D90", 100, 130, "unclear", { new: { value: 130, lo: null, hi: null } }), change("run", 0, "F", 5e5, 5e5, "same"), change("function", 2, "loads", 0, 500, "unclear")];
  return {
    format: "mgz-comparison", version: 1, verdict: same ? ["no change was found (1 comparison cannot be told)"] : [`\`${name("function", 0)}\` takes 45% [41, 50] of the time instead of 30% [27, 33]`, "no other change was found (2 comparisons cannot be told)"],
    base: [`/runs/${name("base", 0)}/trace`], new: [`/runs/${name("new", 0)}/trace`], conditions: [], gate: same ? [] : [{ failed: true, text: "FAILED time.kernel>5%: it takes more" }, { failed: false, text: "passed F>10%" }], remarks: ["Of the run, changes of loads below 9% cannot be told from chance."], warnings: [],
    changes, only_base: same ? [] : [{ kind: "function", name: name("function", 7), weight: 3 }], only_new: [], tests: 12, too_few_runs: false,
    sources: {
      base: { [`/old/${name("file", 0)}.c`]: { lines: [[2, "{"], [3, "  old(); // </script>"], [4, "}"]], changed: false } },
      new: { [`/src/${name("file", 0)}.c`]: { lines: [[4, "{"], [5, "  fresh();"], [6, "}"]], changed: true } },
    },
    pictures: { base: [picture(`/runs/${name("base", 0)}/trace`, [[0, 30], [1, 50], [2, 10]], 1)], new: [picture(`/runs/${name("new", 0)}/trace`, same ? [[0, 31], [1, 49], [2, 11]] : [[0, 45], [1, 25], [3, 12]], 2)] },
  };
}

/** Ranks of a job: the last one has most to do, one has died. */
export function job({ name = (kind, i) => `${kind}_${i}`, ranks = 8 } = {}) {
  const loads = (r) => (r === ranks - 1 ? 4e7 : 1e7 + r * 1e4);
  const spread = (i) => ({ ranks, loads_min: 1e6 / (i + 1), loads_median: 2e6 / (i + 1), loads_mean: 3e6 / (i + 1), loads_max: 9e6 / (i + 1), max_rank: `rank ${ranks - 1}`, imbalance: 3 / (i + 1) + 1, footprint_median: 1000, footprint_max: 5000, distance_median: 3.5, distance_max: 90 });
  const metric = (key, min, median, mean, max) => ({ metric: key, ranks, min, min_rank: "rank 0", median, mean, max, max_rank: `rank ${ranks - 1}`, imbalance: max / mean });
  return {
    schema: "mgz-models-1", command: "ranks", summary: { ranks, world_size: ranks + 1, loads: 1.1e8, imbalance: 2.9, missing_ranks: String(ranks), gaps: 1 },
    findings: [{ kind: "imbalance", title: "one rank has more to do than the others", rank: `rank ${ranks - 1}`, function: name("function", 0), file: `/src/${name("file", 0)}.c`, line: 10, object: "", ranks, score_mean_pct: 20, score_max_pct: 56, finding: name("finding", 0), advice: name("advice", 0) }, { kind: "streaming", title: "streaming through memory", rank: "rank 1", function: name("function", 1), file: "", line: 0, object: name("object", 0), ranks: 3, score_mean_pct: 9, score_max_pct: 15, finding: name("finding", 1), advice: "" }],
    gaps: [{ input: `trace.${ranks}`, why: name("sentence", 0) }],
    metrics: [metric("loads", 1e7, 1.0003e7, 1.4e7, 4e7), metric("footprint", 2e5, 2.4e5, 4.5e5, 1.1e6), metric("cpu_seconds", 0.07, 0.08, 0.1, 0.13)],
    functions: [0, 1, 2, 3].map((i) => ({ function: name("function", i), module: "app", ...spread(i) })), lines: [0, 1, 2].map((i) => ({ function: name("function", i), module: "app", file: `/src/${name("file", 0)}.c`, line: i + 3, ...spread(i) })),
    objects: [0, 1].map((i) => ({ object: name("object", i), kind: "heap", ...spread(i) })), outliers: [{ rank: `rank ${ranks - 1}`, host: name("host", 0), metric: "loads", value: 4e7, median: 1e7, times: 4 }],
    clusters: [{ cluster: 0, size: ranks - 1, members: `0-${ranks - 2}`, loads: 1e7, footprint: 2e5 }, { cluster: 1, size: 1, members: String(ranks - 1), loads: 4e7, footprint: 1e6 }],
    ranks: Array.from({ length: ranks }, (_, r) => ({ rank: r, host: name("host", r % 2), trace: `trace.${r}`, state: "complete", program: "exit 0", loads: loads(r), footprint: 2e5 + r, distance_mean: 3.5, miss_ratio: null, cpu_seconds: 0.07 + r / 100, wall_seconds: 1, cluster: r === ranks - 1 ? 1 : 0 })),
    heat_map: [0, 1].flatMap((i) => Array.from({ length: 16 }, (_, c) => ({ label: name("object", i), column: c, loads: c * 10 * i, distance_mean: null }))), warnings: [name("sentence", 1)],
  };
}
