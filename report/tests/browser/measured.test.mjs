// The processor's memory samples beside the predicted misses.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { example, write } from "../fixture.mjs";
import { axe, clean, fits, folder, open, show } from "./harness.mjs";

function report(name, options) {
  const { analysis, manifest, sources } = example(options);
  return write(join(folder, `${name}.html`), analysis, manifest, sources);
}

const BOTH = { misses: true, measured: "loads" };
const TABS = ["overview", "measured", "measured?tab=functions", "measured?tab=lines", "measured?tab=objects"];

test("measured and predicted stand side by side, and where they differ is marked", async () => {
  const { page, seen } = await open(report("both", BOTH));
  const panel = page.locator(".panel", { has: page.getByRole("heading", { name: "Did the processor measure what was predicted?" }) });
  assert.match(await panel.innerText(), /9\.00K sampled loads, drawn from all loads, of another run \(trace_0\)\. 8\.00K of them are of recorded code/);
  assert.match(await panel.locator("tbody tr").nth(0).innerText(), /L1\s+11\.0 % 9\.0–14\.0 %\s+50\.0 % 40\.0–60\.0 %\s+predicted more/);
  assert.match(await panel.locator("tbody tr").nth(1).innerText(), /L2[^]*predicted less/);
  // A prediction without uncertainty has no interval.
  assert.match(await panel.locator("tbody tr").nth(2).innerText(), /L3\s+1\.0 % 0–2\.0 %\s+1\.0 %\s+agree/);
  assert.match(await page.locator(".run-card").innerText(), /L1 measured\s+5\.0 % 4\.0–11\.0 %/);
  await panel.getByRole("link", { name: "By function, line and object" }).click();
  assert.equal(await page.locator("nav a[aria-current=page]").innerText(), "Measured");
  assert.match(await page.locator("main").innerText(), /Which level served the loads\?[^]*fill buffer[^]*50 cycles[^]*memory of node 0/);
  // The rows with most loads in dispute come first.
  const rows = page.locator(".tbody .tr");
  assert.match(await rows.nth(0).innerText(), /file_0\.c:3 function_0[^]*predicted more\s+19\.5 %/);
  assert.match(await rows.nth(1).innerText(), /file_1\.c:4 function_1[^]*agree\s+0 %/);
  await page.getByRole("button", { name: "L2 misses" }).click();
  assert.match(await rows.nth(0).innerText(), /predicted less/);
  assert.match(await rows.nth(1).innerText(), /not known\s+–/);
  await page.getByRole("button", { name: /^objects/ }).click();
  await rows.nth(1).click();
  assert.match(await page.evaluate(() => location.hash), /obj=object_1/);
  clean(seen);
  await page.close();
});

test("samples of slow loads are not compared, and samples without a prediction stand alone", async () => {
  const slow = await open(report("slow", { misses: true, measured: "loads of 30 cycles or more" }));
  await show(slow.page, "measured");
  assert.match(await slow.page.locator("main").innerText(), /drawn from loads of 30 cycles or more[^]*not comparable/);
  assert.doesNotMatch(await slow.page.locator("main").innerText(), /predicted more|agree/);
  clean(slow.seen);
  await slow.page.close();
  const alone = await open(report("alone", { measured: "operations" }));
  assert.equal(await alone.page.getByRole("heading", { name: "Did the processor measure what was predicted?" }).count(), 0);
  await show(alone.page, "measured");
  assert.match(await alone.page.locator("main").innerText(), /Which level served the loads\?[^]*Where do the loads miss\?/);
  assert.doesNotMatch(await alone.page.locator("main").innerText(), /predicted/);
  clean(alone.seen);
  await alone.page.close();
});

test("without samples there is no view of them", async () => {
  const { page, seen } = await open(report("none", { misses: true }));
  assert.equal(await page.getByRole("link", { name: "Measured", exact: true }).count(), 0);
  assert.doesNotMatch(await page.locator("main").innerText(), /Did the processor/);
  // An address from another report says what is missing.
  await show(page, "measured");
  assert.match(await page.locator("main").innerText(), /no memory samples/);
  clean(seen);
  await page.close();
});

test("the view fits, and axe finds nothing, light and dark, wide and narrow", async () => {
  const address = report("fits", BOTH);
  for (const [colorScheme, width, height] of [["light", 1280, 900], ["dark", 390, 844]]) {
    const { page } = await open(address, { colorScheme, viewport: { width, height } });
    for (const view of TABS) {
      await show(page, view);
      assert.ok(await fits(page), `${view} is wider than a window of ${width}`);
      assert.doesNotMatch(await page.locator("main").innerText(), /undefined|NaN|\[object/, view);
      for (const title of await page.locator("main h2").allInnerTexts()) assert.match(title, /\?$/, `${view}: a panel's title is a question`);
      assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll("main dt")].filter((d) => !d.querySelector("[data-tip]")).map((d) => d.textContent)), [], `${view}: words without a meaning on hover`);
    }
    await axe(page, TABS, `${colorScheme} ${width}`);
    await page.close();
  }
});

test("samples from strangers are text", async () => {
  const evil = "<img src=x onerror=\"document.title='evil'\">";
  const hostile = example({ ...BOTH, name: (kind, i) => `${evil} ${kind} ${i}` });
  const m = hostile.analysis.measured;
  m.lines.push(null, "x", { misses: [null, { level: 7, measured: [1e308, "NaN", null], predicted: {}, differs: "yes" }] });
  m.objects[0].share_pct = "x";
  m.misses.push({ level: "L9" });
  m.nodes.push({ node: "x" });
  hostile.analysis.counters.misses = [null, "x", { level: evil, counted: ["NaN", {}, 1e308] }];
  const { page, seen } = await open(write(join(folder, "hostile-measured.html"), hostile.analysis, hostile.manifest, hostile.sources));
  for (const view of TABS) {
    await show(page, view);
    assert.equal(await page.locator("main [role=alert]").count(), 0, `${view}: ${(await page.locator("main").innerText()).slice(0, 300)}`);
    assert.equal(await page.locator("main img, main script").count(), 0, view);
  }
  clean(seen);
  await page.close();
});
