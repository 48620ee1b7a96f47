/* The page of `ut export --format web`: the same answers and the same trace as the package, without Python. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { WEB, assertTraces, close, open as launch, python, save, serve, slide, visit } from "./browser.mjs";

let browser, address;
before(async () => {
  browser = await launch();
  address = await serve(["-m", "http.server", "--bind", "127.0.0.1", "--directory", WEB, "0"], /port (\d+)/);
});
after(() => close(browser));

const at = (name, hash = "#rule=trained") => `${address}${name}/${hash}`;
const ready = (page) => page.waitForFunction(() => / ms$/.test(document.getElementById("status").textContent), null, { timeout: 60000 });
const examples = (name) => JSON.parse(readFileSync(`${WEB}/${name}/page.json`)).graph.examples["examples of the test"];
const MARY = ["1 Mary moved to the bathroom", "2 John went to the hallway", "3 Mary got the football", "4 John moved to the garden",
  "5 Mary went to the kitchen", "6 Sandra journeyed to the bedroom", "7 Where is the football?"].join("\n");
const traced = async (page) => JSON.parse(readFileSync(await save(page, () => page.click("#save-json"))));

/* Do something that asks for an answer, and wait until it is drawn. */
async function answered(page, act) {
  await page.evaluate(() => { document.getElementById("status").textContent = ""; });
  await act();
  await ready(page);
}
const type = (page, text) => answered(page, () => page.fill("#text", text));
const open = (page, state) => answered(page, () => page.evaluate((hash) => { location.hash = hash; }, `${new URLSearchParams(state)}`));

test("a story has the answer of ut predict and the trace of the package", async (t) => {
  const many = Array.from({ length: 100 }, (_, i) => `${i + 1} ${["Clara", "Boris"][i % 2]} went to the ${["cellar", "attic", "garage"][i % 3]}`);
  const known = examples("demo"), texts = [...known.map(({ text }) => text),
    "1 Clara, walked to the Cellar.\n2 zorro SAW \"it\"\n3 Clara grabbed the letter!\n4 Where is the letter?",
    "1 where is <script>alert(1)</script>?", [...many, "101 where is boris?"].join("\n")];
  const { traces, answers } = python(["tests/browser/traces.py", "demo"], JSON.stringify(texts));
  await visit(browser, at("demo"), async (page) => {
    await ready(page);
    const spent = [];
    for (const [i, text] of texts.entries()) {
      if (known[i]) await open(page, { set: "examples of the test", number: i, rule: "trained" });
      else await type(page, text);
      const found = await traced(page), { right, sides: [{ supports }] } = found;
      assert.equal(found.answer, answers[i]);
      const [encoder] = traces[i].sides;
      assertTraces(found, { ...traces[i], right, sides: [{ ...encoder, supports }] });
      assert.equal(right, known[i]?.right ?? null);
      assert.deepEqual(supports, known[i]?.supports ?? []);
      assert.ok((await page.textContent("#traces .answer")).startsWith(answers[i]));
      spent.push(parseFloat(await page.textContent("#status")));
    }
    const short = spent.slice(0, known.length).sort((a, b) => a - b);
    t.diagnostic(`${short[short.length >> 1]} ms a story of 8 facts (median), ${spent.at(-1)} ms one of 100, to the trace`);
  });
});

test("a depth gives the answer and the trace of the package", async () => {
  const story = examples("demo")[1].text, board = examples("sudoku")[0].text, asked = {
    demo: [{ max_steps: 1 }, { max_steps: 3 }, { exit: "confidence:0.8727" }, { exit: "confidence:0.2" }, { exit: "output_change:0.0127" },
      { exit: "confidence:0.9995", max_steps: 2 }].map((depth) => ({ text: story, ...depth })),
    "babi-halting": [{}, { max_steps: 1 }, { max_steps: 2 }, { halting_threshold: 0.495 }, { halting_threshold: 0.0495, max_steps: 3 }]
      .map((depth) => ({ text: MARY, ...depth })),
    sudoku: [{ max_steps: 1 }, { max_steps: 7 }].map((depth) => ({ text: board, ...depth })) };
  for (const [name, questions] of Object.entries(asked)) {
    const { traces, answers } = python(["tests/browser/traces.py", name], JSON.stringify(questions));
    await visit(browser, at(name), async (page) => {
      await ready(page);
      const { rules } = JSON.parse(readFileSync(`${WEB}/${name}/page.json`)).models[0];
      for (const [i, { text, max_steps: steps, halting_threshold: limit, exit }] of questions.entries()) {
        const [rule, value] = exit?.split(":") ?? (limit ? ["halting_threshold", limit] : ["trained"]);
        const threshold = rules[rule]?.findIndex((each) => Math.abs(each - value) < 1e-6);
        await open(page, { text, rule, ...(steps && { steps }), ...(value && { threshold }) });
        const found = await traced(page);
        assert.equal(found.answer, answers[i], JSON.stringify(questions[i]));
        assertTraces(found, traces[i], JSON.stringify(questions[i]));
      }
    });
  }
});

test("the dial is used by hand, and says what it does not offer", async () => {
  await visit(browser, at("demo", ""), async (page) => {
    await ready(page);
    assert.equal(await page.inputValue("#rule"), "calibrated");
    await answered(page, () => page.selectOption("#rule", "confidence"));
    await answered(page, () => slide(page.locator("#threshold"), 12));
    assert.match(await page.textContent(".dial"), /0\.8727/);
    await answered(page, () => slide(page.locator("#max-steps"), 1));
    assert.equal(await page.locator("#traces output").first().textContent(), "1 of 1");
    assert.match(await page.textContent(".dial .note"), /Only in `ut explore demo`: more than 4 steps, and an exit by the change of states\./);
    await page.click("#tab-test");
    await page.getByText("Only in `ut explore demo`.", { exact: true }).waitFor();
  });
  await visit(browser, at("sudoku"), async (page) => {
    await ready(page);
    assert.deepEqual(await page.locator("#rule option").allTextContents(), ["after the last step"]);
    assert.match(await page.textContent(".dial .note"), /Only in `ut explore sudoku`: more than 16 steps, and cells that stop alone/);
  });
  await visit(browser, at("babi-halting"), async (page) => {
    await ready(page);
    assert.equal(await page.textContent("#origin"), "Example 1 of 1: the card of the model.");
    assert.match(await page.textContent(".dial .note"), /more than 4 steps, and an exit in place of the halting unit/);
    await type(page, MARY);
    const taken = async () => (await traced(page)).sides[0].steps.reduce((sum, steps) => sum + steps), before = await taken();
    await answered(page, () => page.selectOption("#rule", "halting_threshold"));
    await answered(page, () => slide(page.locator("#threshold"), 18));
    assert.ok(await taken() < before);
  });
});

test("pictures and the page are saved, and the page opens from a disk", () => visit(browser, at("demo"), async (page) => {
  await ready(page);
  const svg = readFileSync(await save(page, () => page.getByRole("button", { name: "as SVG" }).first().click()), "utf8");
  assert.match(svg, /^<svg[^]*<text[^]*<\/svg>$/);
  const png = readFileSync(await save(page, () => page.getByRole("button", { name: "as PNG" }).first().click()));
  assert.deepEqual([...png.subarray(1, 4)], [..."PNG"].map((letter) => letter.charCodeAt(0)));
  assert.ok(png.readUInt32BE(16) >= 500, "pixels of width");
  await type(page, "1 Clara went to the </script><script>alert(1)</script>\n2 where is clara?");
  const answer = await page.textContent("#traces .answer"), file = await save(page, () => page.click("#save-html"));
  await visit(browser, pathToFileURL(file).href, async (saved) => {
    await saved.waitForSelector("main svg");
    assert.equal(await saved.textContent("main .answer"), answer);
    await slide(saved.getByLabel("step", { exact: true }), 1);
  });
}));

test("what is typed is shown as text", () => visit(browser, at("demo"), async (page) => {
  await ready(page);
  await type(page, "\"><img src=x onerror=alert(1)>\n<script>alert(1)</script> 'quoted' \"twice\"\nwhere is </script>?");
  const unknown = await page.textContent("#traces .unknown");
  for (const word of ["<script>alert(1)</script>", "'quoted'", "\"twice\"", "</script>"]) assert.ok(unknown.includes(word), unknown);
  assert.equal(await page.locator("#traces img, #traces script").count(), 0);
}));

test("the slider, the mark and the address show a step, by keyboard alone", () => visit(browser, at("demo"), async (page) => {
  await ready(page);
  const slider = page.getByLabel("step", { exact: true }), shown = () => page.textContent("#traces output");
  await page.focus("#text");
  for (let i = 0; i < 20 && !(await slider.evaluate((one) => one === document.activeElement)); i++) await page.keyboard.press("Tab");
  await page.keyboard.press("Home");
  assert.equal(await shown(), "1 of 4");
  await page.keyboard.press("ArrowRight");
  assert.equal(await shown(), "2 of 4");
  const map = page.locator("svg[tabindex='0']");
  await map.focus();
  const before = await page.textContent("#traces .said");
  await page.keyboard.press("ArrowUp");
  assert.notEqual(await page.textContent("#traces .said"), before);
  const box = await map.boundingBox();
  await page.mouse.move(box.x + box.width * 0.7, box.y + 30);
  assert.match(await page.textContent("#traces .said"), /looks at “.+”: weight \d\.\d{3}/);
  await slide(slider, 3);
  const link = page.url();
  await page.goto("about:blank");
  await page.goto(link);
  await ready(page);
  assert.equal(await shown(), "3 of 4");
}));

test("a mistake is named and the last answer stays", () => visit(browser, at("demo"), async (page) => {
  await ready(page);
  const answer = await page.textContent("#traces .answer");
  await page.fill("#text", "");
  await page.getByText("Type a question.").waitFor();
  await page.fill("#text", "where is the letter that Clara took to the cellar?");
  await page.getByText("has 10 words; a fact has at most 7").waitFor();
  assert.equal(await page.textContent("#traces .answer"), answer);
}));

test("a board has the answer of ut predict and the trace of the package", async (t) => {
  const known = examples("sudoku").slice(0, 2), texts = [...known.map(({ text }) => text), ".".repeat(36)];
  const { traces, answers } = python(["tests/browser/traces.py", "sudoku"], JSON.stringify(texts));
  await visit(browser, at("sudoku"), async (page) => {
    await ready(page);
    for (const [i, text] of texts.entries()) {
      if (known[i]) await open(page, { set: "examples of the test", number: i });
      else await type(page, text.match(/.{6}/g).join("\n"));
      const found = await traced(page);
      assert.equal(found.answer, answers[i]);
      assertTraces(found, { ...traces[i], right: found.right });
      assert.equal(found.right, known[i]?.right ?? null);
    }
    t.diagnostic(await page.textContent("#status"));
    const board = () => page.locator("#traces figure").first().locator("svg").last().textContent(), last = await board();
    await slide(page.getByLabel("step", { exact: true }), 1);
    assert.notEqual(await board(), last);
    await answered(page, () => page.locator("#board input").first().fill("1"));
    assert.match((await traced(page)).answer, /^1/);
    for (const [text, message] of [["12", "A board of 2 cells; expected 36"], ["7".repeat(36), "“7” in the board"], [`11${".".repeat(34)}`, "The digit 1 twice in row 1"]]) {
      await page.fill("#text", text);
      await page.getByText(message).waitFor();
    }
  });
});
