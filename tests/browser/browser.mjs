/* What the tests share: a browser, servers on 127.0.0.1, and a page that may not complain nor leave the machine. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];
export const PYTHON = process.env.UT_PYTHON ?? "python3", WEB = process.env.UT_WEB ?? "build/web";
const servers = [];
export const folder = mkdtempSync(join(tmpdir(), "browser-"));

export const open = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });

/* What a Python program prints as JSON. */
export const python = (args, input = "") => JSON.parse(execFileSync(PYTHON, args, { input, maxBuffer: 2 ** 28 }));

/* End what was started. */
export async function close(browser) {
  for (const server of servers) server.kill();
  await browser?.close();
}

/* Start a server; its address, with the port that `found` finds in what it prints. */
export async function serve(args, found) {
  const server = spawn(PYTHON, ["-u", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  servers.push(server);
  const port = await new Promise((resolve, reject) => {
    let text = "";
    const read = (part) => { text += part; const match = found.exec(text); if (match) resolve(match[1]); };
    server.stdout.on("data", read);
    server.stderr.on("data", read);
    server.on("exit", () => reject(new Error(`${args.join(" ")} ended: ${text}`)));
  });
  return `http://127.0.0.1:${port}/`;
}

/* Run `use(page)`. No error may appear in the console, and no request may leave the machine. */
export async function visit(browser, address, use) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true });
  const page = await context.newPage(), complaints = [], outside = [];
  page.on("console", (message) => { if (message.type() === "error") complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", (dialog) => { complaints.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!/^(http:\/\/127\.0\.0\.1[:/]|file:|data:|blob:)/.test(request.url())) outside.push(request.url()); });
  try {
    await page.goto(address);
    await use(page);
    assert.deepEqual({ complaints, outside }, { complaints: [], outside: [] });
  } catch (error) {
    error.message += `\nconsole: ${complaints.join("; ")}\noutside: ${outside.join(" ")}`;
    throw error;
  } finally {
    await context.close();
  }
}

/* Set a slider, which page.fill does not do. */
export const slide = (locator, value) =>
  locator.evaluate((slider, to) => { slider.value = to; slider.dispatchEvent(new Event("input", { bubbles: true })); }, String(value));

/* Save what a click saves; the path of the file. */
export async function save(page, click) {
  const [download] = await Promise.all([page.waitForEvent("download"), click()]);
  const path = join(folder, download.suggestedFilename());
  await download.saveAs(path);
  return path;
}

/* Equal traces: numbers to 1e-5, attention to one of 255. */
export function assertTraces(found, expected, place = "trace") {
  if (typeof expected === "number") return assert.ok(Math.abs(found - expected) < 1e-5, `${place}: ${found} for ${expected}`);
  if (expected === null || typeof expected !== "object") return assert.equal(found, expected, place);
  assert.deepEqual(Object.keys(found), Object.keys(expected), place);
  for (const [name, value] of Object.entries(expected)) {
    if (name !== "data") { assertTraces(found[name], value, `${place}.${name}`); continue; }
    const [ours, theirs] = [found.data, value].map((text) => Buffer.from(text, "base64"));
    assert.equal(ours.length, theirs.length, place);
    ours.forEach((byte, i) => assert.ok(Math.abs(byte - theirs[i]) <= 1, `${place}.data[${i}]`));
  }
}
