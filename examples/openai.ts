// A streamed chat completion by OpenAI's own client, sent only to a gateway that has proved what it is.
//
//   bun examples/openai.ts "Why is the sky blue?"
//
// Settings come from the environment: examples/gateway.ts lists them. Outside this repository, install the package that
// `bun scripts/build-verifier.ts` makes in dist/verifier-package, and `openai`.

import OpenAI from 'openai'
import { gatewayFromEnvironment, modelFrom } from './gateway.ts'

const prompt = process.argv[2] ?? 'Say hello.'
const gateway = gatewayFromEnvironment()
const { url, apiKey, fetch } = gateway

// Throws VerificationError and sends no prompt if the evidence does not match the policy.
const { simulated, checks } = await fetch.verify()
process.stderr.write(`verified: ${checks.length} checks${simulated ? ', SIMULATED: no hardware attests it' : ''}\n`)

// A client that repeats requests by itself may cause one to be paid twice.
const client = new OpenAI({ apiKey, baseURL: `${url}/v1`, fetch, maxRetries: 0 })
const stream = await client.chat.completions.create({
  model: await modelFrom(gateway),
  messages: [{ role: 'user', content: prompt }],
  stream: true,
})
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '')
process.stdout.write('\n')
// Ends idle connections and forgets the evidence.
fetch.close()
