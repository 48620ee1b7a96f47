/* The report that `ut plot` writes, from a disk. */

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { close, folder, open, python, slide, visit } from "./browser.mjs";

const HOSTILE = "1 Clara walked to the cellar\n2 where is <script>alert(1)</script> & <img src=x onerror=alert(2)>?";
const place = join(folder, "report"), address = pathToFileURL(join(place, "report.html")).href;
let browser, answers;
before(async () => {
  mkdirSync(place);
  answers = python(["tests/browser/report.py", place], HOSTILE);
  browser = await open();
});
after(() => close(browser));

test("a report draws its examples by the module of the page, and asks for nothing", () =>
  visit(browser, address, async (page) => {
    const asked = [];
    page.on("request", (request) => { if (!/^(data|blob):/.test(request.url())) asked.push(request.url()); });
    await page.waitForSelector(".trace svg");
    for (const [number, answer] of answers.entries())
      assert.ok((await page.locator(".trace").nth(number).locator(".answer").textContent()).startsWith(answer));
    const first = page.locator(".trace").first(), slider = first.getByLabel("step", { exact: true });
    const most = Number(await slider.getAttribute("max"));
    assert.ok(most > 1);
    for (let step = 1; step <= most; step++) {
      await slide(slider, step);
      assert.equal(await first.locator("output").textContent(), `${step} of ${most}`);
    }
    await first.locator("svg[tabindex='0']").press("ArrowUp");
    assert.match(await first.locator(".said").textContent(), /looks at|has halted/);
    assert.deepEqual(asked, []);
  }));

test("a script in a story is text in a report", () => visit(browser, address, async (page) => {
  await page.waitForSelector(".trace svg");
  assert.ok((await page.textContent("main")).includes("<script>alert(1)</script>"));
  assert.equal(await page.locator("main script, .trace img").count(), 0);
}));

test("a report has its answers without scripts", async () => {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(address);
  const texts = page.locator("noscript");
  for (const [number, answer] of answers.entries()) {
    assert.ok(await texts.nth(number).isVisible());
    assert.ok((await texts.nth(number).innerText()).includes(`answer: ${answer} (`));
  }
  await context.close();
});
