/* The page of `ut explore`. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { assertTraces, close, folder, open, python, save, serve, slide, visit } from "./browser.mjs";

const MODELS = { demo: ["demo"], sudoku: ["sudoku"], babi: ["babi", "--compare", "babi-halting", "--data-dir", folder],
  twice: ["demo", "--compare", "demo"] };
const STORY = ["1 Clara walked to the cellar", "2 Clara grabbed the letter", "3 Boris went to the attic", "4 Clara ran to the workshop", "5 Where is the letter?"].join("\n");
const BABI = "1 Mary went to the kitchen\n2 John moved to the garden\n3 Where is Mary?";
let browser, addresses;
before(async () => {
  const started = Object.entries(MODELS).map(async ([name, words]) =>
    [name, await serve(["-m", "universal_transformer", "explore", ...words, "--no-browser", "--port", "0"], /127\.0\.0\.1:(\d+)/)]);
  browser = await open();
  addresses = Object.fromEntries(await Promise.all(started));
});
after(() => close(browser));

/* Do something that asks for an answer (to `text`), and wait until it is drawn. */
async function answered(page, act, text) {
  const ours = (request) => /api.(trace|stream)$/.test(request.url()) && text === (text && request.postDataJSON().text);
  await Promise.all([page.waitForResponse((reply) => ours(reply.request()), { timeout: 20000 }), act()]);
  await page.waitForFunction(() => / ms$/.test(document.getElementById("status").textContent), null, { timeout: 20000 });
}
const type = (page, text) => answered(page, () => page.fill("#text", text), text);
const on = (name, use, hash = "") => visit(browser, addresses[name] + hash, async (page) => {
  await page.waitForFunction(() => / ms$/.test(document.getElementById("status").textContent), null, { timeout: 20000 });
  await use(page);
});
const trained = (page) => answered(page, () => page.selectOption("#rule", "trained"));
const shown = (page) => page.locator("#traces output").first().textContent();
const slider = (page) => page.locator("#traces").getByLabel("step", { exact: true }).first();

test("a story has the answer of ut predict and the trace of the package", (t) => on("demo", async (page) => {
  const { traces: [trace], answers: [answer] } = python(["tests/browser/traces.py", "demo"], JSON.stringify([STORY]));
  await type(page, STORY);
  await trained(page);
  assert.ok((await page.textContent("#traces .answer")).startsWith(answer));
  assertTraces(JSON.parse(readFileSync(await save(page, () => page.click("#save-json")))), trace);
  t.diagnostic(`${await page.textContent("#status")} from the request to the picture`);
}));

test("nothing is typed before the page knows its models", () => visit(browser, "about:blank", async (page) => {
  await page.route(/api.models/, async (route) => { await new Promise((go) => setTimeout(go, 800)); await route.continue(); });
  await page.goto(addresses.demo);
  assert.ok(await page.isDisabled("#text"));
  await type(page, STORY);
  assert.equal(await page.inputValue("#text"), STORY);
}));

test("slider, mark, hover and address show a step", () => on("demo", async (page) => {
  await type(page, STORY);
  await trained(page);
  await slide(slider(page), 2);
  assert.equal(await shown(page), "2 of 4");
  const map = page.locator("#traces svg[tabindex='0']"), said = () => page.textContent("#traces .said"), first = await said();
  await map.scrollIntoViewIfNeeded();
  const box = await map.boundingBox();
  await page.mouse.move(box.x + box.width - 30, box.y + 20);
  assert.notEqual(await said(), first);
  assert.match(await said(), /“clara walked to the cellar” looks at “.+”: weight \d\.\d{3}/);
  const address = page.url();
  await page.goto("about:blank");
  await page.goto(address);
  await page.waitForSelector("#traces output");
  assert.equal(await shown(page), "2 of 4");
  assert.equal(await page.inputValue("#text"), STORY);
}));

test("by keyboard alone", () => on("demo", async (page) => {
  await type(page, STORY);
  const reach = async (locator) => {
    for (let i = 0; i < 60 && !(await locator.evaluate((node) => node === document.activeElement)); i++) await page.keyboard.press("Tab");
    assert.ok(await locator.evaluate((node) => node === document.activeElement && getComputedStyle(node).outlineStyle !== "none"));
  };
  await reach(page.locator("#max-steps"));
  await answered(page, () => page.keyboard.press("Home"));
  assert.equal(await shown(page), "1 of 1");
  await answered(page, () => page.keyboard.press("End"));
  await reach(slider(page));
  await page.keyboard.press("Home");
  assert.match(await shown(page), /^1 of /);
  const map = page.locator("#traces svg[tabindex='0']");
  await reach(map);
  const before = await page.textContent("#traces .said");
  await page.keyboard.press("ArrowUp");
  assert.notEqual(await page.textContent("#traces .said"), before);
}));

test("a test example opens, from the test as a whole too", () => on("demo", async (page) => {
  await answered(page, () => page.click("#example"));
  const text = await page.inputValue("#text");
  await answered(page, () => page.click("#example"));
  assert.notEqual(await page.inputValue("#text"), text);
  assert.match(await page.textContent("#traces .answer"), /right/);
  await page.click("#tab-test");
  await page.waitForSelector("#test table", { timeout: 20000 });
  await page.fill("#limit", "20");
  await page.click("#run-test");
  await page.getByText(/^20 examples in /).waitFor();
  await answered(page, () => page.locator("#test table button").first().click());
  assert.ok(await page.isVisible("#traces .answer"));
}));

test("two models answer the same story, each at a depth of its own", () => on("babi", async (page) => {
  await type(page, BABI);
  const sections = page.locator("#traces section"), made = () => sections.locator(".controls output").allTextContents();
  assert.equal(await sections.count(), 2);
  assert.deepEqual(await sections.locator("h2").allTextContents(), ["babi", "babi-halting"]);
  for (const answer of await sections.locator(".answer").allTextContents()) assert.match(answer, /^kitchen/);
  await answered(page, () => slide(page.locator("#max-steps2"), 1));
  assert.deepEqual(await made(), ["4 of 4", "1 of 1"]);
  await answered(page, () => slide(page.locator("#max-steps"), 2));
  assert.deepEqual(await made(), ["2 of 2", "1 of 1"]);
  await answered(page, () => slide(page.locator("#max-steps2"), 5));
  await answered(page, () => page.selectOption("#rule2", "fixed"));
  assert.deepEqual(JSON.parse(readFileSync(await save(page, () => page.click("#save-json"))))[1].sides[0].steps, [5, 5, 5]);
  await answered(page, () => page.selectOption("#rule2", "halting_threshold"));
  await answered(page, () => slide(page.locator("#threshold2"), 18));
  const [, { threshold }] = JSON.parse(readFileSync(await save(page, () => page.click("#save-json"))));
  assert.ok(threshold < 0.1, `${threshold}`);
}));

test("a model without its data brings an example, and says how to get them", () => on("babi", async (page) => {
  assert.equal(await page.inputValue("#text"), "1 Mary went to the kitchen.\n2 John moved to the garden.\n3 Where is Mary?");
  assert.equal(await page.textContent("#origin"), "Example 1 of 1: the card of the model.");
  await page.click("#missing summary");
  await page.locator("#missing").getByText(/babi.*`ut data fetch babi`/).waitFor();
  await page.click("#tab-test");
  await page.locator("#test-error").getByText("`ut data fetch babi`").waitFor();
}));

test("the whole test of two models stands side by side", () => on("twice", async (page) => {
  await answered(page, () => slide(page.locator("#max-steps2"), 1));
  await page.click("#tab-test");
  await page.fill("#limit", "40");
  await page.click("#run-test");
  await page.getByText(/^40 examples in /).waitFor({ timeout: 20000 });
  const sections = page.locator("#test > section"), errors = await sections.locator("p:not(.note)").allTextContents();
  assert.equal(errors.length, 2);
  assert.match(errors[1], /mean steps 1\.00$/);
  assert.notEqual(errors[0], errors[1]);
  await page.selectOption("#tested", "1");
  await page.waitForFunction(() => document.querySelectorAll("#test > section").length === 1);
  await answered(page, () => page.locator("#test table button").first().click());
  assert.match(await page.textContent("#traces section:last-child .answer"), /✗ right/);
}));

test("pictures and the page are saved, and the page opens from a disk", () => on("demo", async (page) => {
  await type(page, `${STORY.slice(0, -1)} </script><script>alert(1)</script>?`.replace("5 Where is the letter", "5 where is"));
  const png = readFileSync(await save(page, () => page.getByRole("button", { name: "as PNG" }).first().click()));
  assert.deepEqual([...png.subarray(1, 4)], [..."PNG"].map((letter) => letter.charCodeAt(0)));
  assert.ok(png.readUInt32BE(16) >= 500, "pixels of width");
  const answer = await page.textContent("#traces .answer"), file = await save(page, () => page.click("#save-html"));
  await visit(browser, pathToFileURL(file).href, async (saved) => {
    await saved.waitForSelector("main svg");
    assert.equal(await saved.textContent("main .answer"), answer);
    await slide(saved.getByLabel("step", { exact: true }), 1);
  });
}));

test("what is typed is shown as text", () => on("demo", async (page) => {
  await type(page, "1 \"><img src=x onerror=alert(1)> 'x'\n2 where is <script>alert(1)</script>?");
  const unknown = await page.textContent("#traces .unknown");
  for (const word of ["<script>alert(1)</script>", "'x'", "src=x"]) assert.ok(unknown.includes(word), unknown);
  assert.equal(await page.locator("#traces img, #traces script").count(), 0);
}));

test("a board is typed cell by cell", () => on("sudoku", async (page) => {
  const board = "..21..5.6342...614.6....2........2.5";
  const { traces: [trace], answers: [answer] } = python(["tests/browser/traces.py", "sudoku"], JSON.stringify([board]));
  await type(page, ".".repeat(36));
  const cells = page.locator("#board input");
  for (const [i, cell] of [...board].entries()) if (cell !== "." && i < 35) await cells.nth(i).fill(cell);
  await answered(page, () => cells.nth(35).fill(board[35]), board);
  const found = JSON.parse(readFileSync(await save(page, () => page.click("#save-json"))));
  assert.equal(found.answer, answer);
  assertTraces(found, trace);
}));
