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

/* The outputs for a text. A graph that reads no depth has the answers at all depths. */
async function outputsOf(text, { max_steps: most = page.max_steps, halting_threshold: threshold = page.threshold }) {
  const depth = page.inputs.includes("threshold") ? { max_steps: new ort.Tensor("int64", [BigInt(most)], [1]),
    threshold: new ort.Tensor("float32", [threshold], []) } : {};
  const key = JSON.stringify([text, ...(page.inputs.includes("threshold") ? [most, threshold] : [])]);
  if (last.key === key) return last;
  const read = FORMS[page.view.form](text, page);
  for (const tensor of Object.values(last.outputs ?? {})) tensor.dispose();
  last = {};
  const outputs = await session.run({ source: new ort.Tensor("int64", read.ids, read.shape), ...depth });
  return (last = { key, read, outputs });
}

export async function answer(model, { text, set, number, calibrated, ...given }) {
  const example = set === undefined ? undefined : page.examples[set][number];
  const depth = calibrated && !Object.keys(given).length ? page.calibrated : given;
  const answered = running.then(async () => {  // a session answers one question at a time
    const { read, outputs } = await outputsOf(example?.text ?? text, depth);
    return { text: example?.text ?? text, trace: traceOf(outputs, read, page, example, depth) };
  });
  running = answered.catch(() => {});
  return answered;
}
