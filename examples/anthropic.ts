// A streamed message by Anthropic's own client, sent only to a gateway that has proved what it is.
//
//   bun examples/anthropic.ts "Why is the sky blue?"
//
// Settings come from the environment: examples/gateway.ts lists them. Outside this repository, install the package that
// `bun scripts/build-verifier.ts` makes in dist/verifier-package, and `@anthropic-ai/sdk`.

import Anthropic from '@anthropic-ai/sdk'
import { gatewayFromEnvironment, modelFrom } from './gateway.ts'

const prompt = process.argv[2] ?? 'Say hello.'
const gateway = gatewayFromEnvironment()
const { url, apiKey, fetch } = gateway

// The first request verifies the gateway. The address has no /v1 here: this client adds it. A client that repeats
// requests by itself may cause one to be paid twice.
const client = new Anthropic({ apiKey, baseURL: url, fetch, maxRetries: 0 })
const stream = client.messages.stream({
  model: await modelFrom(gateway),
  max_tokens: 1024,
  messages: [{ role: 'user', content: prompt }],
})
for await (const event of stream) {
  if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') process.stdout.write(event.delta.text)
}
process.stdout.write('\n')
// Ends idle connections and forgets the evidence.
fetch.close()
