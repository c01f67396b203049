// Goal: what a request may use at most: by its own limit, else by the context of the model, else by a default that a
// budget can hold.

import { expect, test } from 'bun:test'
import { usageBounds } from '../../../src/inference/openai/usage.ts'

const request = (completionTokensMax: number | null, choiceCount = 1) =>
  ({ choiceCount, completionTokensMax, needs: { kinds: new Set(), remoteUrls: false } }) as never

test('goal: the smallest of the limits that are known, for each choice', () => {
  const rows: [asked: number | null, context: number | null, choices: number, completion: number][] = [
    [null, 8_192, 1, 8_192],
    [100, 8_192, 1, 100],
    [100_000, 8_192, 2, 16_384],
    [null, null, 1, 131_072],
    [null, null, 2, 262_144],
    [100, null, 1, 100],
    [1_000_000, null, 1, 1_000_000],
    [null, 1_048_576, 1, 1_048_576],
  ]
  for (const [asked, contextTokens, choices, completion] of rows) {
    const bounds = usageBounds(request(asked, choices), { bodyBytes: 1_000, contextTokens })
    expect([asked, contextTokens, bounds]).toEqual([
      asked,
      contextTokens,
      { promptTokensMax: 5_096, completionTokensMax: completion },
    ])
  }
})
