// DHAT's own viewer opens what `mgz export --to dhat` writes. DHAT is such a file; the viewer comes with Valgrind.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { browser } from "./harness.mjs";

const VIEWER = ["/usr/libexec/valgrind/dh_view.html", "/usr/lib/valgrind/dh_view.html"].find(existsSync);
const FILE = process.env.DHAT;

test("DHAT's viewer shows the reads of all blocks", { skip: !VIEWER ? "no Valgrind" : !FILE ? "no file" : false }, async () => {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (e) => errors.push(String(e)));
  await page.goto(`file://${VIEWER}`);
  await page.locator("input[type=file]").setInputFiles(FILE);
  await page.waitForFunction(() => document.body.innerText.includes("Invocation"), undefined, { timeout: 10_000 });
  const text = await page.locator("body").innerText();
  const written = JSON.parse(readFileSync(FILE, "utf8"));
  const reads = written.pps.reduce((sum, point) => sum + point.rb, 0);
  assert.ok(reads > 1e6);
  assert.ok(text.includes(written.cmd.slice(0, 40)), text.slice(0, 500));
  assert.match(text, new RegExp(`Reads: +${reads.toLocaleString("en-US")} bytes \\(100%`));
  assert.doesNotMatch(text, /Error/);
  assert.deepEqual(errors, []);
  await page.close();
});
