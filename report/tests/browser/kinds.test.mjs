// Reports of comparisons and of ranks; what is marked, tried and taken along in a report of one run; and `mgz serve`. MGZ is the command, TRACE a
// trace of a program that runs for some tenths of a second.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { comparison, example, job, write, writePart } from "../fixture.mjs";
import { axe, clean, fits, folder, open, show } from "./harness.mjs";

const COMPARED = ["verdict", "changes", "changes?tab=line", "tree", "curves", "runs"];
const RANKED = ["spread", "code", "code?tab=lines", "data", "ranks", "gaps"];

async function walk(page, views, what) {
  for (const view of views) {
    await show(page, view);
    assert.equal(await page.locator("nav a[aria-current=page]").count(), 1);
    assert.equal(await page.locator("main [role=alert]").count(), 0, `${what} ${view}: ${(await page.locator("main").innerText()).slice(0, 300)}`);
    assert.ok((await page.locator("main").innerText()).length > 60, `${what} ${view}`);
    assert.ok(await fits(page), `${what} ${view} is wider than the window`);
    assert.doesNotMatch(await page.locator("main").innerText(), /undefined|NaN|\[object/, `${what} ${view}`);
    assert.equal(await page.locator("main img, main script").count(), 0, `${what} ${view}`);
  }
}

test("a comparison says first what changed, draws both sides, and asks for nothing", async () => {
  const { page, seen } = await open(writePart(join(folder, "compare.html"), "compare", comparison()));
  await walk(page, COMPARED, "comparison");
  await show(page, "verdict");
  const text = await page.locator("main").innerText();
  assert.match(text, /base_0 → new_0\s+1 better, 4 worse\s+function_0 takes 45% \[41, 50\] of the time instead of 30%/);
  assert.match(text, /FAILED time\.kernel/);
  // An interval that is not known is not drawn.
  assert.match(await page.locator(".tr", { hasText: "distance, 90 %" }).innerText(), /130 interval not known/);
  // The two sides of a row have one scale.
  const bands = await page.locator(".tr", { hasText: "time" }).first().locator(".interval-bar .band").evaluateAll((all) => all.slice(0, 2).map((r) => Number(r.getAttribute("x")) + Number(r.getAttribute("width"))));
  assert.ok(Math.abs(bands[0] / bands[1] - 33 / 49.5) < 0.01, String(bands));
  await page.locator(".tbody .tr", { hasText: "function_1" }).first().click();
  assert.match(await page.evaluate(() => location.hash), /^#changes\?tab=function/);
  clean(seen);
  await page.close();
});

test("a changed line is shown as it is in both builds", async () => {
  const { page, seen } = await open(writePart(join(folder, "lines.html"), "compare", comparison()));
  await show(page, "changes?tab=line");
  const fresh = page.getByRole("region", { name: /^Source: new: file_0\.c:5/ });
  const base = page.getByRole("region", { name: /^Source: base: file_0\.c:3/ });
  assert.match(await fresh.locator("tr.selected").innerText(), /5\s+fresh\(\);/);
  assert.match(await base.locator("tr.selected").innerText(), /3\s+old\(\); \/\/ <\/script>/);
  assert.match(await page.locator("main").innerText(), /changed after the recording/);
  // Nothing differs: one side is enough. And a report that was made without source says so.
  const same = comparison();
  const files = same.sources.new;
  same.sources = { base: files, new: files };
  Object.assign(same.changes.find((r) => r.kind === "line"), { place: "file_0.c:5" });
  const { sources: _, ...without } = comparison();
  for (const [data, count, says] of [[same, 1, /the same in both builds/], [without, 0, /made without source/]]) {
    const other = await open(writePart(join(folder, "lines-2.html"), "compare", data));
    await show(other.page, "changes?tab=line");
    assert.equal(await other.page.getByRole("region", { name: /^Source: / }).count(), count);
    assert.match(await other.page.locator("main").innerText(), says);
    await other.page.close();
  }
  clean(seen);
  await page.close();
});

test("what is missing is said with its remedy", async () => {
  const { analysis, manifest, sources } = example();
  const trace = analysis.summary.trace;
  const hint = "`--libs=libsql` takes that library in as well";
  trace.not_recorded = [`30% of the time was in libsql.so.0; ${hint}`];
  const given = { ...analysis, command: ["./app", "a b"] };
  const first = await open(write(join(folder, "missing.html"), given, manifest, sources));
  const doubts = first.page.locator(".doubts");
  assert.match(await doubts.innerText(), /^Not all is recorded: 30% of the time was in libsql\.so\.0; --libs=libsql takes/);
  assert.equal(await doubts.locator("code").innerText(), "--libs=libsql");
  await first.page.close();
  // Without a sample the way out comes first, without the recorder's own commands.
  trace.not_recorded = ["no samples: none of 9 triggers met instrumented code (the time went to /lib/libsql.so.0 80%, /lib/libc.so.6 20%); `mgz-record --hot -- /cache/app` shows where", `9 of 9 triggers came where no window can begin; ${hint}`];
  trace.missing_libraries = ["libsql"];
  analysis.summary.samples = 0;
  const { page, seen } = await open(write(join(folder, "elsewhere.html"), { ...given, findings: [] }, manifest, sources));
  const text = await page.locator("main").innerText();
  assert.match(text, /the time went to libraries, which are left out unless they are asked for/);
  assert.match(text, /mgz run --libs=libsql -- \.\/app 'a b'/);
  assert.doesNotMatch(text, /--hot/);
  clean(seen);
  await page.close();
});

test("the differential icicle tells what is more and less, and what may be chance", async () => {
  const { page, seen } = await open(writePart(join(folder, "tree.html"), "compare", comparison()));
  await show(page, "tree");
  const boxes = await page.locator(".icicle g").evaluateAll((all) => all.map((g) => ({ text: g.querySelector("title").textContent, fill: getComputedStyle(g.querySelector("rect")).fill, hatched: g.querySelector("rect").classList.contains("hatched-rect") })));
  const box = (name) => boxes.find((b) => b.text.startsWith(`${name}\n`));
  assert.match(box("function_0").text, /base 30\.0 % \(26\.0 % to 34\.0 %\)\nnew 45\.0 %.*\n\+15\.0 points$/);
  assert.ok(box("main").hatched && /may be chance/.test(box("main").text));
  assert.ok(!box("function_0").hatched && !box("function_1").hatched && box("function_0").fill !== box("function_1").fill);
  await page.locator(".icicle").focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowRight"]) await page.keyboard.press(key);
  assert.match(await page.evaluate(() => location.hash), /node=0\.1/);
  await page.getByRole("button", { name: "functions and lines" }).click();
  assert.match(await page.locator(".icicle").innerHTML(), /file_0\.c:3/);
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save as PNG" }).click()]);
  const bytes = readFileSync(await file.path());
  assert.deepEqual([...bytes.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
  assert.equal(bytes.readUInt32BE(16), 2200);
  clean(seen);
  await page.close();
});

test("where nothing changed, that is said", async () => {
  const { page, seen } = await open(writePart(join(folder, "same.html"), "compare", comparison({ same: true })));
  assert.match(await page.locator("main").innerText(), /No change was found/);
  clean(seen);
  await page.close();
});

test("ranks: who has most to do, spreads, the matrix, outliers, groups, gaps", async () => {
  const { page, seen } = await open(writePart(join(folder, "ranks.html"), "ranks", job()));
  await walk(page, RANKED, "ranks");
  await show(page, "spread");
  assert.match(await page.locator("main").innerText(), /8 ranks of 9[^]*one rank has more to do than the others\s+function_0 file_0\.c:10/);
  await show(page, "ranks");
  const text = await page.locator("main").innerText();
  assert.match(text, /Which ranks are unlike the others\?[^]*rank 7\s+host_0\s+loads\s+40\.0M\s+10\.0M\s+4\.00/);
  const box = await page.locator("canvas").boundingBox();
  await page.mouse.click(box.x + box.width - 3, box.y + 5);
  assert.match(await page.evaluate(() => location.hash), /thread=rank(\+|%20)7/);
  assert.equal(await page.locator(".tbody .tr.selected").count(), 1);
  await show(page, "gaps");
  assert.match(await page.locator("main").innerText(), /trace\.8: sentence_0/);
  clean(seen);
  await page.close();
});

test("10,000 ranks are drawn", async () => {
  const { page, seen } = await open(writePart(join(folder, "many.html"), "ranks", job({ ranks: 10_000 })));
  await show(page, "ranks");
  assert.ok((await page.locator(".tbody .tr").count()) < 80);
  assert.equal(await page.locator("canvas").evaluate((c) => c.width), 10_000);
  clean(seen);
  await page.close();
});

test("hostile names are text in comparisons and ranks as well", async () => {
  const evil = ['<img src=x onerror="document.title=\'evil\'">', "</script><script>document.title='evil'</script>", "x".repeat(5000), "javascript:alert(1)"];
  const name = (kind, i) => `${evil[(kind.length + i) % evil.length]} ${kind} ${i}`;
  const broken = comparison({ name });
  broken.changes.push(null, { kind: "run", base: "x", new: [], metric: 7, change_pct: "NaN" }, { kind: "function", metric: "loads", base: { value: 1e308 }, new: { value: -1, lo: null } });
  broken.pictures.new[0].call_paths.calls.push({ id: 2, parent: 2 }, "x");
  const ranks = job({ name });
  ranks.ranks.push(null, { rank: "x", loads: "y" });
  ranks.metrics.push({}, 3);
  for (const [kind, value, views] of [["compare", broken, COMPARED], ["ranks", ranks, RANKED]]) {
    const { page, seen } = await open(writePart(join(folder, `hostile-${kind}.html`), kind, value));
    for (const view of views) {
      await show(page, view);
      assert.equal(await page.locator("main [role=alert]").count(), 0, `${kind} ${view}: ${(await page.locator("main").innerText()).slice(0, 300)}`);
      assert.equal(await page.locator("main img, main script").count(), 0, view);
      assert.ok(await fits(page), `${kind} ${view} is wider than the window`);
    }
    assert.doesNotMatch(await page.title(), /^evil/);
    clean(seen);
    await page.close();
  }
});

test("axe finds nothing in comparisons and ranks, light and dark", async () => {
  for (const colorScheme of ["light", "dark"])
    for (const [kind, value, views] of [["compare", comparison(), COMPARED], ["ranks", job(), RANKED]]) {
      const { page } = await open(writePart(join(folder, `axe-${kind}.html`), kind, value), { colorScheme });
      await axe(page, views, `${kind} ${colorScheme}`);
      await page.close();
    }
});

function report(name, options) {
  const { analysis, manifest, sources } = example(options);
  return write(join(folder, `${name}.html`), analysis, manifest, sources);
}

test("a stretch of the run is marked with the pointer or with numbers, and what the report knows of it is told", async () => {
  const { page, seen } = await open(report("brush", {}));
  await show(page, "time");
  const box = await page.locator(".lanes").boundingBox();
  // The axis goes from 130 to 1090 of 1100, and shows 12 s.
  const x = (s) => box.x + (box.width * (130 + (960 * s) / 12)) / 1100;
  await page.mouse.move(x(6), box.y + 60);
  await page.mouse.down();
  await page.mouse.move(x(8), box.y + 60);
  await page.mouse.move(x(9), box.y + 60);
  await page.mouse.up();
  const hash = new URLSearchParams((await page.evaluate(() => location.hash)).split("?")[1]);
  assert.ok(Math.abs(Number(hash.get("from")) - 6) < 0.1 && Math.abs(Number(hash.get("to")) - 9) < 0.1, String(hash));
  // It is no click.
  assert.equal(hash.get("node"), null);
  assert.match(await page.locator("main").innerText(), /Regions that are loaded most here\s+object_0/);
  assert.match(await page.locator(".part").innerText(), /mgz analyze TRACE --from [\d.]+ --to [\d.]+/);
  await page.getByLabel("to", { exact: true }).fill("12");
  await page.getByLabel("to", { exact: true }).press("Enter");
  assert.match(await page.evaluate(() => location.hash), /to=12(&|$)/);
  await page.locator(".part").getByRole("button", { name: "whole run" }).click();
  assert.equal(await page.locator(".part").count(), 0);
  await page.goBack();
  await page.waitForSelector(".part");
  clean(seen);
  await page.close();
});

test("sliders of caches change what is predicted, within bounds", async () => {
  const { page, seen } = await open(report("what-if", { misses: true, caches: [{ level: 1, size: 49152, ways: 12, line: 64 }] }));
  await show(page, "locality");
  const level = page.locator(".what-if fieldset").first();
  assert.match(await level.innerText(), /48\.0 KiB/);
  const then = level.locator(".would > span").nth(1);
  const before = await then.innerText();
  const size = level.locator("input").first();
  await size.focus();
  await page.keyboard.press("Home");
  assert.match(await level.innerText(), /1\.00 KiB/);
  assert.notEqual(await then.innerText(), before);
  assert.match(await then.locator("[data-tip]").getAttribute("data-tip"), /^Bounds:/);
  assert.match(await level.locator(".would > span").nth(2).innerText(), /50\.0 % 30\.0–60\.0 %/);
  await page.getByRole("button", { name: "this machine's caches" }).click();
  assert.equal(await then.innerText(), before);
  clean(seen);
  await page.close();
});

test("places that are used together, and the machine code of a line", async () => {
  const { page, seen } = await open(report("together", {}));
  await show(page, "locality");
  assert.match(await page.locator("main").innerText(), /Pairs worth placing together[^]*0x10000 object_0\s+0x10040 object_0\s+900\s+30\.0 %/);
  const [file] = await Promise.all([page.waitForEvent("download"), page.locator(".affinity").getByRole("button", { name: "Save as PNG" }).click()]);
  assert.equal(readFileSync(await file.path()).readUInt32BE(16), 1200);
  await show(page, "code");
  await page.getByText("Machine code of line 3").click();
  assert.match(await page.locator(".machine").innerText(), /0x1004\s+movl \(%rax, %rcx, 4\), %edx\s+strided, 4 bytes an iteration/);
  clean(seen);
  await page.close();
  const without = example();
  delete without.analysis.affinity;
  const bare = await open(write(join(folder, "apart.html"), without.analysis, without.manifest, without.sources));
  await show(bare.page, "locality");
  assert.equal(await bare.page.getByRole("heading", { name: "What is used together?" }).count(), 0);
  await bare.page.close();
});

test("a served report analyses what is selected", { skip: process.env.TRACE ? false : "mgz is not built" }, async () => {
  const server = spawn(process.env.MGZ, ["serve", process.env.TRACE, "--no-open"], { stdio: ["ignore", "pipe", "pipe"] });
  try {
    const address = await new Promise((done, fail) => {
      let text = "";
      server.stdout.on("data", (d) => { text += d; if (text.includes("\n")) done(text.trim()); });
      server.on("exit", (code) => fail(new Error(`mgz serve has ended with ${code}`)));
    });
    const { page, seen } = await open(address);
    await show(page, "time");
    const windows = async () => Number(/in (\S+) windows/.exec(await page.locator("main").innerText())?.[1] ?? "0");
    const all = await windows();
    const box = await page.locator(".lanes").boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await page.waitForSelector(".part:has-text('of the time of the run')", { timeout: 60_000 });
    const some = await windows();
    assert.ok(some > 0 && some < all, `${some} of ${all} windows`);
    // What the server refuses is said; the data that are there stay.
    await show(page, "threads?only_thread=nobody");
    await page.waitForSelector(".problem", { timeout: 60_000 });
    assert.match(await page.locator(".problem").innerText(), /no thread with this id or name was recorded/);
    await page.locator(".part").getByRole("button", { name: "whole run" }).click();
    await show(page, "data");
    await page.getByRole("button", { name: "Analyse these data alone" }).click();
    await page.waitForSelector(".part:has-text('of the time of the run')", { timeout: 60_000 });
    assert.equal(await page.locator(".tbody .tr").count(), 1);
    assert.ok(seen.requests.length >= 3 && seen.requests.every((r) => r.startsWith(`${address}data?`)), String(seen.requests));
    // (The browser notes what was refused on purpose.)
    assert.deepEqual(seen.errors.filter((e) => !/422/.test(e)), []);
    await page.close();
    const ended = new Promise((done) => server.on("exit", done));
    server.kill("SIGINT");
    assert.equal(await ended, 0);
  } finally {
    server.kill("SIGKILL");
  }
});
