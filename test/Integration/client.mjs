// Talks to the server at an address with OpenAI's client for Node; clients.py starts both.
import assert from "node:assert";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "secret", maxRetries: 0 });
const body = { model: "stories", messages: [{ role: "user", content: "Tell a story." }], max_tokens: 30, seed: 7 };

const whole = await client.chat.completions.create(body);
assert.equal(whole.choices[0].finish_reason, "length");
let text = "";
for await (const chunk of await client.chat.completions.create({ ...body, stream: true }))
  text += chunk.choices[0]?.delta.content ?? "";
assert.equal(text, whole.choices[0].message.content);

const runner = client.beta.chat.completions.stream(body);
assert.equal(await runner.finalContent(), text);

const scores = await client.completions.create({ model: "stories", prompt: "Once upon", max_tokens: 1, echo: true, logprobs: 1 });
assert.equal(scores.choices[0].logprobs.token_logprobs[0], null);
const vectors = await client.embeddings.create({ model: "stories", input: "Hello" });
assert.equal(vectors.data[0].embedding.length, 256);
await assert.rejects(client.chat.completions.create({ ...body, temperature: 9 }), { status: 400, param: "temperature" });
