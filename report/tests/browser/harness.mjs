// What all browser tests share. CHROMIUM is the browser.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { chromium } from "playwright-core";

const AXE = readFileSync(new URL("../../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
export const folder = mkdtempSync(join(tmpdir(), "mgz-report-"));
export let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** A page that remembers whatever goes wrong on it, and whatever it asks for. */
export async function open(address, options = {}) {
  const { colorScheme = "light", viewport = { width: 1280, height: 800 } } = options;
  const page = await browser.newPage({ viewport, colorScheme });
  const seen = { errors: [], requests: [] };
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && seen.errors.push(m.text()));
  page.on("pageerror", (e) => seen.errors.push(String(e)));
  page.on("dialog", (d) => { seen.errors.push(`dialog ${d.message()}`); void d.dismiss(); });
  page.on("request", (r) => r.url() !== address && !r.url().startsWith("data:") && !r.url().startsWith("blob:") && seen.requests.push(r.url()));
  await page.goto(address);
  await page.waitForSelector("html[data-ready]", { timeout: 30_000 });
  return { page, seen };
}

export const show = (page, hash) => page.evaluate(async (h) => {
  location.hash = h;
  await new Promise((r) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(r)), 30));
}, hash);

export const clean = (seen) => assert.deepEqual(seen, { errors: [], requests: [] });

/** No view may be wider than the window: what is wide scrolls in a box of its own. */
export const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth + 1);

export async function axe(page, views, what) {
  // (The policy of the page keeps scripts out; the debugger's are not of the page.)
  await page.evaluate(AXE);
  for (const view of views) {
    await show(page, view);
    const found = await page.evaluate(async () => (await globalThis.axe.run()).violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 3).join(" | ")}`));
    assert.deepEqual(found, [], `${view}, ${what}`);
  }
}
