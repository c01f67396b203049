// An upstream's embeddings in tests: deterministic, in both encodings, with the given changes.

import { type Behaviour, sendJson } from './upstream-server.ts'

export const EMBEDDING_MODEL = 'embed/small'

type Json = Record<string, unknown>

/** Vector of the input at that index. Some of its numbers are not exact as 32-bit floats. */
export function vectorOf(at: number, dimensions = 4): number[] {
  return Array.from(
    { length: dimensions },
    (_, value) => Math.fround(((at + 1) * (value + 1)) / 10) * (value % 2 === 0 ? 1 : -1),
  )
}

export function base64Of(vector: readonly number[]): string {
  return Buffer.from(new Float32Array(vector).buffer).toString('base64')
}

/** As engines do. `change` gets the answer before it is sent. */
export function embeddingsUpstream(change: (answer: Json, body: Json) => unknown = answer => answer): Behaviour {
  return (response, { body }) => {
    const inputs = Array.isArray(body.input) && typeof body.input[0] !== 'number' ? body.input : [body.input]
    const dimensions = typeof body.dimensions === 'number' ? body.dimensions : 4
    const data = inputs.map((_, index) => {
      const vector = vectorOf(index, dimensions)
      return { object: 'embedding', index, embedding: body.encoding_format === 'base64' ? base64Of(vector) : vector }
    })
    const usage = { prompt_tokens: 3 * inputs.length, total_tokens: 3 * inputs.length }
    const answer = { id: 'engine-1', object: 'whatever', created: 5, model: 'engine.gguf', data, usage, timings: {} }
    const changed = change(answer, body)
    if (typeof changed === 'string') {
      response.writeHead(200, { 'content-type': 'application/json' }).end(changed)
    } else sendJson(response, 200, changed)
  }
}
