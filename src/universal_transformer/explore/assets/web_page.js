/* The page of an exported model: what is typed goes through the graph, and draw.js draws the trace. The fragment of the
address carries what is typed and the step that is shown. */

import * as ort from "./ort.wasm.bundle.min.js";
import { download, draw } from "./draw.js";
import { FORMS, Refusal, traceOf } from "./graph_trace.js";

const get = (id) => document.getElementById(id), drawn = get("drawn"), SHOWN = ["step", "head", "block", "matrix"];
const [about, codec] = await Promise.all(["page.json", "codec.json"].map(async (name) => (await fetch(name)).json()));
const facts = about.view.form === "facts";
about.source = codec.source;
let session, trace, timer, answered = Promise.resolve();

ort.env.wasm.numThreads = 1; // several threads need headers that a plain web server does not send
ort.env.wasm.wasmPaths = { wasm: new URL("ort-wasm-simd-threaded.wasm", import.meta.url).href };

const typed = () => (facts ? `${get("text").value}\n${get("question").value}` : get("text").value);
const plain = (text) => text.toLowerCase().split("\n").map((line) => line.replace(/^\s*\d+\s+|[.?!\s]+$/g, "")).filter(Boolean).join("\n");

function show(text) {
  const lines = text.split("\n").map((line) => line.replace(/^\d+\s+/, "")), { side } = about.view;
  if (facts) get("question").value = lines.pop() ?? "";
  get("text").value = facts ? lines.join("\n") : text.replace(/\s/g, "").match(new RegExp(`.{1,${side}}`, "g"))?.join("\n") ?? "";
}

/* A text that is pasted line by line is one question. */
function later() {
  clearTimeout(timer);
  timer = setTimeout(() => { answered = answered.then(answer); }, 80);
}

async function answer() {
  try {
    const text = typed(), read = FORMS[about.view.form](text, about), begun = performance.now();
    const outputs = await session.run({ source: new ort.Tensor("int64", read.ids, read.shape) });
    const spent = performance.now() - begun, same = facts ? plain : (board) => board.replace(/\s/g, "").replaceAll("0", ".");
    trace = traceOf(outputs, read, about, about.examples.find((example) => same(example.text) === same(text)));
    for (const tensor of Object.values(outputs)) tensor.dispose();
    draw(drawn, trace);
    get("error").textContent = "";
    get("time").textContent = `Computed in ${spent.toFixed(1)} ms.`;
    remember();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    get("error").textContent = error.message;
  }
}

function remember() {
  const state = new URLSearchParams({ text: typed() });
  for (const name of SHOWN) if (drawn.dataset[name]) state.set(name, drawn.dataset[name]);
  history.replaceState(null, "", `#${state}`);
}

get("title").textContent = `${about.model}, step by step`;
document.title = `${about.model}, step by step`;
get("what").textContent = facts ? "Story, one fact a line" : `Board of ${about.view.side} × ${about.view.side} cells: digits, and . for a blank one`;
document.body.classList.toggle("board", !facts);
get("question").closest("label").hidden = !facts;
if (!facts) { get("text").rows = about.view.side; get("text").cols = 2 * about.view.side; }
get("example").append(...about.examples.map((_, i) => new Option(`${i + 1}`)));
get("example").closest("label").hidden = !about.examples.length;
get("example").onchange = () => { show(about.examples[get("example").selectedIndex].text); later(); };
for (const id of ["text", "question"]) get(id).oninput = later;
get("save").onclick = () => download(`${about.model}.json`, JSON.stringify(trace), "application/json");
drawn.addEventListener("choose", remember);
const asked = new URLSearchParams(location.hash.slice(1));
for (const name of SHOWN) if (/^\d+$/.test(asked.get(name) ?? "")) drawn.dataset[name] = asked.get(name);
show(asked.get("text") ?? about.examples[0]?.text ?? "");
const begun = performance.now();
session = await ort.InferenceSession.create("model.onnx");
get("time").textContent = `Loaded in ${((performance.now() - begun) / 1000).toFixed(1)} s.`;
get("save").disabled = false;
await answer();
document.body.dataset.ready = "true";
