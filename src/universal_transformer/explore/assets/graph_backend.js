/* The answers of an exported model: its graph runs in this browser. page.js says what a backend gives. */

import * as ort from "./ort.wasm.bundle.min.js";
import { FORMS, traceOf } from "./graph_trace.js";

let page, session, last = {}, running = Promise.resolve();

export async function about() {
  ort.env.wasm.numThreads = 1; // several threads need headers that a plain web server does not send
  ort.env.wasm.wasmPaths = { wasm: new URL("ort-wasm-simd-threaded.wasm", import.meta.url).href };
  const [found, codec] = await Promise.all(["page.json", "codec.json"].map(async (name) => (await fetch(name)).json()));
  page = { ...found.models[0], ...found.graph, source: codec.source };
  session = await ort.InferenceSession.create("model.onnx");
  return found;
}
export const test = async () => { throw new Error(page.untested); };
export const emptyPage = async () => ({ page: await (await fetch("saved.html")).text(), place: page.place });

/* The outputs for a text: a change of depth computes nothing again. */
async function outputsOf(text) {
  if (last.text === text) return last;
  const read = FORMS[page.view.form](text, page);
  for (const tensor of Object.values(last.outputs ?? {})) tensor.dispose();
  last = {};
  const outputs = await session.run({ source: new ort.Tensor("int64", read.ids, read.shape) });
  return (last = { text, read, outputs });
}

export async function answer(model, { text, set, number, max_steps, exit, calibrated }) {
  const example = set === undefined ? undefined : page.examples[number], chosen = exit || max_steps;
  const depth = chosen || !calibrated ? { max_steps, exit } : page.calibrated;
  const answered = running.then(async () => {  // a session answers one question at a time
    const { read, outputs } = await outputsOf(example?.text ?? text);
    return { text: example?.text ?? text, trace: traceOf(outputs, read, page, example, depth) };
  });
  running = answered.catch(() => {});
  return answered;
}
