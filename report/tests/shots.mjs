// Pictures of all views, to be looked at: node tests/shots.mjs DIR. REPORTS names more reports.
import { join } from "node:path";
import { chromium } from "playwright-core";
import { comparison, example, job, write, writePart } from "./fixture.mjs";

const folder = process.argv[2] ?? ".";
const { analysis, manifest, sources } = example({ misses: true, measured: "loads" });
const VIEWS = ["overview", "code", "data", "time", "memory", "locality", "threads", "measured", "quality"];
const reports = [["example", write(join(folder, "example.html"), analysis, manifest, sources), VIEWS], ["comparison", writePart(join(folder, "comparison.html"), "compare", comparison()), ["verdict", "changes", "tree", "curves", "runs"]], ["ranks", writePart(join(folder, "ranks.html"), "ranks", job()), ["spread", "code", "data", "ranks", "gaps"]], ...(process.env.REPORTS ?? "").split(":").filter(Boolean).map((file) => [file.split("/").at(-2), `file://${file}`, VIEWS])];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
for (const [name, address, views] of reports) {
  for (const [width, height, colorScheme] of [[1280, 800, "light"], [1920, 1080, "dark"]]) {
    const page = await browser.newPage({ viewport: { width, height }, colorScheme });
    await page.goto(address);
    await page.waitForSelector("html[data-ready]");
    for (const view of views) {
      await page.evaluate((v) => { location.hash = v; }, view);
      await page.waitForTimeout(150);
      await page.screenshot({ path: join(folder, `${name}-${view}-${width}.png`), fullPage: true });
    }
    await page.close();
  }
}
await browser.close();
