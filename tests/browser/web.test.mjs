/* The page of `ut export --format web`: the same answers and the same trace as the package, without Python. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { WEB, assertTraces, close, open, python, save, serve, slide, visit } from "./browser.mjs";

let browser, address;
before(async () => {
  browser = await open();
  address = await serve(["-m", "http.server", "--bind", "127.0.0.1", "--directory", WEB, "0"], /port (\d+)/);
});
after(() => close(browser));

const at = (name, hash = "") => `${address}${name}/${hash}`;
const ready = (page) => page.waitForSelector("body[data-ready]", { timeout: 60000 });
const examples = (name) => JSON.parse(readFileSync(`${WEB}/${name}/page.json`)).examples;
const traced = async (page) => JSON.parse(readFileSync(await save(page, () => page.click("#save"))));
/* Wait for the answer to a text, which the address then has. */
const computed = (page, text) => page.waitForFunction((typed) => new URLSearchParams(location.hash.slice(1)).get("text") === typed, text);

/* Type a text, which ends with its question, and wait for the answer. */
async function type(page, text) {
  const lines = text.split("\n").map((line) => line.replace(/^\d+ /, "")), question = lines.pop();
  await page.fill("#text", lines.join("\n"));
  await page.fill("#question", question);
  await computed(page, [...lines, ...(lines.length ? [] : [""]), question].join("\n"));
}

test("a story has the answer of ut predict and the trace of the package", async (t) => {
  const many = Array.from({ length: 100 }, (_, i) => `${i + 1} ${["Clara", "Boris"][i % 2]} went to the ${["cellar", "attic", "garage"][i % 3]}`);
  const texts = [...examples("demo").map(({ text }) => text),
    "1 Clara, walked to the Cellar.\n2 zorro SAW \"it\"\n3 Clara grabbed the letter!\n4 Where is the letter?",
    "1 where is <script>alert(1)</script>?", [...many, "101 where is boris?"].join("\n")];
  const { traces, answers } = python(["tests/browser/traces.py", "demo"], JSON.stringify(texts));
  await visit(browser, at("demo"), async (page) => {
    await ready(page);
    const spent = [];
    for (const [i, text] of texts.entries()) {
      await type(page, text);
      const found = await traced(page), { right, sides: [{ supports }] } = found;
      assert.equal(found.answer, answers[i]);
      const [encoder] = traces[i].sides;
      assertTraces(found, { ...traces[i], right, sides: [{ ...encoder, supports }] });
      assert.equal(right, examples("demo")[i]?.right ?? null);
      assert.deepEqual(supports, examples("demo")[i]?.supports ?? []);
      assert.ok((await page.textContent("#drawn .answer")).startsWith(answers[i]));
      spent.push(Number((await page.textContent("#time")).match(/([\d.]+) ms/)[1]));
    }
    const short = spent.slice(0, examples("demo").length).sort((a, b) => a - b);
    t.diagnostic(`${short[short.length >> 1]} ms a story of 8 facts (median), ${spent.at(-1)} ms one of 100`);
  });
});

test("what is typed is shown as text", () => visit(browser, at("demo"), async (page) => {
  await ready(page);
  await type(page, "\"><img src=x onerror=alert(1)>\n<script>alert(1)</script> 'quoted' \"twice\"\nwhere is </script>?");
  const unknown = await page.textContent("#drawn .unknown");
  for (const word of ["<script>alert(1)</script>", "'quoted'", "\"twice\"", "</script>"]) assert.ok(unknown.includes(word), unknown);
  assert.equal(await page.locator("#drawn img, #drawn script").count(), 0);
}));

test("the slider, the mark and the address show a step, by keyboard alone", () => visit(browser, at("demo"), async (page) => {
  await ready(page);
  const slider = page.getByLabel("step", { exact: true }), shown = () => page.textContent("#drawn output");
  await page.focus("#question");
  for (let i = 0; i < 9 && !(await slider.evaluate((one) => one === document.activeElement)); i++) await page.keyboard.press("Tab");
  await page.keyboard.press("Home");
  assert.equal(await shown(), "1 of 4");
  await page.keyboard.press("ArrowRight");
  assert.equal(await shown(), "2 of 4");
  const map = page.locator("svg[tabindex='0']");
  await map.focus();
  const before = await page.textContent("#drawn .said");
  await page.keyboard.press("ArrowUp");
  assert.notEqual(await page.textContent("#drawn .said"), before);
  const box = await map.boundingBox();
  await page.mouse.move(box.x + box.width * 0.7, box.y + 30);
  assert.match(await page.textContent("#drawn .said"), /looks at “.+”: weight \d\.\d{3}/);
  await slide(slider, 3);
  const link = page.url();
  await page.goto("about:blank");
  await page.goto(link);
  await ready(page);
  assert.equal(await shown(), "3 of 4");
}));

test("a mistake is named and the last answer stays", () => visit(browser, at("demo"), async (page) => {
  await ready(page);
  const answer = await page.textContent("#drawn .answer");
  await page.fill("#question", "");
  await page.getByText("Type a question.").waitFor();
  await page.fill("#question", "where is the letter that Clara took to the cellar?");
  await page.getByText("has 10 words; a fact has at most 7").waitFor();
  assert.equal(await page.textContent("#drawn .answer"), answer);
}));

test("a board has the answer of ut predict and the trace of the package", async (t) => {
  const known = examples("sudoku").slice(0, 2), texts = [...known.map(({ text }) => text), ".".repeat(36)];
  const { traces, answers } = python(["tests/browser/traces.py", "sudoku"], JSON.stringify(texts));
  await visit(browser, at("sudoku"), async (page) => {
    await ready(page);
    for (const [i, text] of texts.entries()) {
      await page.fill("#text", text.match(/.{6}/g).join("\n"));
      await computed(page, text.match(/.{6}/g).join("\n"));
      const found = await traced(page);
      assert.equal(found.answer, answers[i]);
      assertTraces(found, { ...traces[i], right: found.right });
      assert.equal(found.right, known[i]?.right ?? null);
    }
    t.diagnostic(await page.textContent("#time"));
    const board = () => page.locator("#drawn figure").first().locator("svg").last().textContent(), last = await board();
    await slide(page.getByLabel("step", { exact: true }), 1);
    assert.notEqual(await board(), last);
    for (const [text, message] of [["12", "A board of 2 cells; expected 36"], ["7".repeat(36), "“7” in the board"], [`11${".".repeat(34)}`, "The digit 1 twice in row 1"]]) {
      await page.fill("#text", text);
      await page.getByText(message).waitFor();
    }
  });
});
