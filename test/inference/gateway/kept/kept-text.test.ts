// The parts of a kept response, and which of them count against later requests.

import { expect, test } from 'bun:test'
import { keptCharsMax } from '../../../../src/inference/dialects/responses/earlier.ts'
import { keptText, readKept } from '../../../../src/inference/gateway/response-memory.ts'

const output = [{ id: 'msg_1', type: 'message', content: 'hi' }]
const input = '[{"role":"user","content":"x"}]'
const keptOf = (more: object, inputText: string, isShown = true) =>
  keptText({ previous: null, inputText, response: { id: 'r', output, ...more } }, { isInside: false, isShown })

// Goal: a schema in the head of each response of a chain costs later requests nothing of what they may build on.
test('the head does not count', () => {
  const format = {
    schema: Object.fromEntries(Array.from({ length: 1_000 }, (_, at) => [`n${at}`, { type: 'string' }])),
  }
  const shown = keptOf({ text: { format } }, input)
  const bare = keptOf({ text: { format } }, input, false)
  expect(shown?.text).toContain('n999')
  expect([shown?.facts.chars, shown?.facts.values]).toEqual([bare?.facts.chars, bare?.facts.values])
  expect(shown?.facts.bytes).toBeGreaterThan(bare?.facts.bytes ?? 0)
})

// Goal: items and head together stay within the bound; the items are what later requests need.
test('a head that is too long', async () => {
  const long = 'h'.repeat(keptCharsMax)
  for (const [more, inputText, hasHead] of [
    [{ text: long }, input, false],
    [{ text: 'h' }, input, true],
    [{ text: 'h'.repeat(60_000) }, `["${'i'.repeat(keptCharsMax - 1_000)}"]`, false],
  ] as const) {
    const kept = keptOf(more, inputText)
    expect(kept?.text.length).toBeLessThan(keptCharsMax + 100)
    expect(kept?.facts.hasInput).toBe(true)
    const read = await readKept(kept?.text ?? '')
    expect([read?.shown !== null, read?.input?.length]).toEqual([hasHead, 1])
  }
})
