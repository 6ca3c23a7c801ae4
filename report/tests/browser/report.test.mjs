// Looks at reports as a browser shows them. CHROMIUM is the browser; REPORTS may name more reports (paths, by colons) that must hold as well.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { example, write } from "../fixture.mjs";
import { axe, browser, clean, fits, folder, open, show } from "./harness.mjs";

const VIEWS = ["overview", "code", "data", "time", "memory", "locality", "threads", "quality"];

function report(name, options) {
  const { analysis, manifest, sources } = example(options);
  return write(join(folder, `${name}.html`), analysis, manifest, sources);
}

const all = [["made up", () => report("example", {})], ["with predicted misses", () => report("misses", { misses: true, caches: [{ level: 1, size: 49152, ways: 12, line: 64 }, { level: 2, size: 2097152 }] })], ...(process.env.REPORTS ?? "").split(":").filter(Boolean).map((file) => [file, () => `file://${file}`])];

for (const [name, make] of all) {
  test(`every view shows, asks for nothing and logs nothing: ${name}`, async () => {
    const { page, seen } = await open(make());
    for (const view of VIEWS) {
      await show(page, view);
      assert.equal(await page.locator("nav a[aria-current=page]").count(), 1);
      assert.ok((await page.locator("main").innerText()).length > 100, view);
      assert.equal(await page.locator("main [role=alert]").count(), 0, view);
      assert.ok(await fits(page), `${view} is wider than the window`);
      assert.doesNotMatch(await page.locator("main").innerText(), /undefined|NaN|\[object/, view);
      for (const title of await page.locator("main h2").allInnerTexts()) assert.match(title, /\?$/, `${view}: a panel's title is a question`);
    }
    clean(seen);
    await page.close();
    const narrow = await open(make(), { viewport: { width: 390, height: 844 } });
    for (const view of VIEWS) {
      await show(narrow.page, view);
      assert.ok(await fits(narrow.page), `${view} is wider than a narrow window`);
    }
    await narrow.page.close();
  });
}

test("axe finds nothing, light and dark, wide and narrow", async () => {
  const address = report("axe", { misses: true });
  for (const [colorScheme, width] of [["light", 1280], ["dark", 390]]) {
    const { page } = await open(address, { colorScheme, viewport: { width, height: 844 } });
    await axe(page, [...VIEWS, "code?tab=paths"], colorScheme);
    await page.close();
  }
});

test("a selection goes through all views, back undoes it, and a reload keeps it", async () => {
  const { page, seen } = await open(report("flow", {}));
  await page.getByRole("link", { name: /^function_0/ }).first().click();
  await page.waitForFunction(() => location.hash.startsWith("#code"));
  assert.match(await page.locator(".source").first().innerText(), /return a\[0\]/);
  await page.getByRole("link", { name: "Locality", exact: true }).click();
  assert.match(await page.locator("main").innerText(), /line 3|function_0/);
  await page.goBack();
  await page.waitForFunction(() => location.hash.startsWith("#code"));
  await page.reload();
  await page.waitForSelector("html[data-ready]");
  assert.match(await page.locator(".selection").innerText(), /function_0/);
  await page.locator(".chip").first().click();
  assert.doesNotMatch(await page.evaluate(() => location.hash), /function_0/);
  clean(seen);
  await page.close();
});

test("the keyboard is enough", async () => {
  const { page, seen } = await open(report("keys", {}));
  await page.keyboard.press("Control+k");
  await page.keyboard.type("object_1");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.includes("obj=object_1"));
  await show(page, "code");
  await page.locator("[role=table]").focus();
  await page.keyboard.press("End");
  assert.match(await page.evaluate(() => location.hash), /fn=function_5/);
  await show(page, "time");
  await page.locator(".icicle").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  assert.match(await page.evaluate(() => location.hash), /node=1/);
  await page.locator(".term").first().focus().catch(() => {});
  clean(seen);
  await page.close();
});

test("labels have the text of the documentation", async () => {
  const { page } = await open(report("tips", {}));
  await page.getByText("Line use", { exact: true }).hover();
  assert.match(await page.getByRole("tooltip").innerText(), /Bytes used of each cache line that is fetched/);
  for (const view of VIEWS) {
    await show(page, view);
    const without = await page.evaluate(() => [...document.querySelectorAll("main dt")].filter((d) => !d.querySelector("[data-tip]")).map((d) => d.textContent));
    assert.deepEqual(without, [], `${view}: words without a meaning on hover`);
  }
  await page.close();
});

test("a hostile trace is text", async () => {
  const evil = ['<img src=x onerror="document.title=\'evil\'">', "</script><script>document.title='evil'</script>", "a".repeat(20_000), "\u202Edrowssap\u0000\u001b[2J", "javascript:alert(1)", "__proto__", "' onclick=alert(1) x='"];
  const hostile = example({ name: (kind, i) => `${evil[(kind.length + i) % evil.length]} ${kind} ${i}` });
  hostile.analysis.summary.F_64_hat = "NaN";
  hostile.analysis.functions[0].time_pct = { a: [] };
  hostile.analysis.functions[1].D_hist = "x";
  hostile.analysis.lines[0].line = -5;
  hostile.analysis.lines[1].classes = [null, 3, "x", { step: "y" }];
  hostile.analysis.growth = [{ W: null, F_hat: 1e308 }, { W: 0, F_hat: -1 }, "x"];
  hostile.analysis.heat_map.rows[0].A = [1e308, null, "x"];
  hostile.analysis.time_zoom.root.to_ns = -1;
  hostile.analysis.location_zoom.root.children[0].A = 1e300;
  hostile.analysis.objects[0].stack = [null, 7, evil[0]];
  hostile.manifest.threads = [null, { thread: evil[1], rows: "x" }];
  const { page, seen } = await open(write(join(folder, "hostile.html"), hostile.analysis, hostile.manifest, hostile.sources));
  for (const view of VIEWS) {
    await show(page, view);
    assert.equal(await page.locator("main [role=alert]").count(), 0, `${view}: ${await page.locator("main").innerText().then((t) => t.slice(0, 300))}`);
    assert.equal(await page.locator("main img, main script").count(), 0, view);
    assert.ok(await fits(page), `${view} is wider than the window`);
  }
  assert.doesNotMatch(await page.title(), /^evil/);
  clean(seen);
  await page.close();
});

test("scripts that are not the viewer's own do not run", async () => {
  const address = report("policy", {});
  const { page } = await open(address);
  await page.evaluate(() => {
    const s = document.createElement("script");
    s.textContent = "document.title = 'evil'";
    document.body.append(s);
    const i = document.createElement("img");
    i.src = "https://example.invalid/x.png";
    document.body.append(i);
  });
  assert.notEqual(await page.title(), "evil");
  await page.close();
});

test("100,000 rows come fast, and scroll", async () => {
  const { page, seen } = await open(report("large", { rows: 100_000 }));
  const painted = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0);
  const ready = await page.evaluate(() => performance.getEntriesByName("shown")[0]?.startTime ?? 0);
  console.log(`100,000 rows: first paint ${Math.round(painted)} ms, findings shown ${Math.round(ready)} ms`);
  await show(page, "code?tab=functions");
  assert.ok((await page.locator(".tbody .tr").count()) < 80);
  const debug = await page.context().newCDPSession(page);
  await debug.send("Performance.enable", { timeDomain: "threadTicks" });
  const spent = async () => (await debug.send("Performance.getMetrics")).metrics.find((m) => m.name === "TaskDuration").value;
  const before = await spent();
  const frames = await page.evaluate(async () => {
    const box = document.querySelector(".table");
    const times = [];
    let last = performance.now();
    for (let i = 0; i < 40; i++) {
      box.scrollTop += 700;
      await new Promise((r) => requestAnimationFrame(r));
      times.push(performance.now() - last);
      last = performance.now();
    }
    return times.sort((a, b) => a - b)[20];
  });
  console.log(`scrolling: median frame ${frames.toFixed(1)} ms, ${((1000 * ((await spent()) - before)) / 40).toFixed(1)} ms of CPU time a frame`);
  assert.match(await page.locator(".tbody").innerText(), /function_9\d\d/);
  clean(seen);
  await page.close();
});

test("call paths are a tree, and what is unknown is said", async () => {
  const { page, seen } = await open(report("paths", {}));
  await show(page, "code?tab=paths");
  const rows = await page.locator(".tbody").innerText();
  assert.match(rows, /function_0[^]*function_1[^]*a\.c:3[^]*function_2 \(inlined\)/);
  assert.match(await page.locator("main").innerText(), /60 windows: 50 with all callers, 6 with the inner ones, 4 unknown/);
  await page.locator(".tbody .tr").nth(1).click();
  assert.match(await page.evaluate(() => location.hash), /fn=function_1/);
  clean(seen);
  await page.close();
  const without = example();
  without.analysis.call_paths = { state: "off", calls: [] };
  const bare = await open(write(join(folder, "off.html"), without.analysis, without.manifest, without.sources));
  await show(bare.page, "code?tab=paths");
  assert.match(await bare.page.locator("main").innerText(), /recorded with --no-stacks/);
  await bare.page.close();
});

test("it prints, with what scrolls on screen at full length", async () => {
  const { page } = await open(report("print", {}));
  const pdf = await page.pdf({ format: "A4" });
  assert.ok(pdf.length > 10_000);
  await page.close();
});

test("a viewer without data says so", async () => {
  const page = await browser.newPage();
  await page.goto(new URL("../../dist/report.html", import.meta.url).href);
  await page.waitForSelector("html[data-ready]");
  assert.match(await page.locator("[role=alert]").innerText(), /holds no data/);
  await page.close();
});
