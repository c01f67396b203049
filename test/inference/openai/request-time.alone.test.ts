// Goal: no body within the limit holds the event loop for long.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../src/base/bytes.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'

const bodyBytes = 4_194_304
const chatOf = (content: string) => utf8(`{"model":"m","messages":[{"role":"user","content":"${content}"}]}`)
const unitsOf = (unit: string) => unit.repeat(Math.floor((bodyBytes - 100) / unit.length))

/** Milliseconds of the processor, the least of some: others work on this machine, too. */
function leastMs(work: () => void): number {
  const tookMs = Array.from({ length: 8 }, () => {
    const before = process.cpuUsage()
    work()
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1000
  })
  return Math.min(...tookMs)
}

// Goal: no text of 4 MiB holds the event loop for long: JSON.parse handles each escape singly, 48 to 71 ms for a body
// of the shortest.
test.each([
  ['line breaks', '\\n'],
  ['backslashes', '\\\\'],
  ['quotes', '\\"'],
])('time for 4 MiB of %s', (_name, unit) => {
  const bytes = chatOf(unitsOf(unit))
  expect(leastMs(() => expect(() => parseRequest('chat', bytes)).toThrow('more than 699051 escapes'))).toBeLessThan(40)
})

// Goal: no body of 4 MiB holds the event loop for long; millions of values took from a tenth of a second to five
// seconds.
test.each([
  ['objects', '', '{},', ''],
  ['lists', '', '[],', ''],
  ['numbers', '', '1,', ''],
  ['nested lists', '', `${'['.repeat(100)}${']'.repeat(100)},`, ''],
  [
    'a schema',
    '"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":{"enum":',
    '1,',
    '}}}',
  ],
])('time for 4 MiB of %s', (_name, before, unit, after) => {
  const list = `[${unit.repeat(Math.floor(4_190_000 / unit.length)).slice(0, -1)}]`
  const field = before === '' ? `"metadata":${list}` : `${before}${list}${after}`
  const bytes = utf8(`{"model":"m","messages":[{"role":"user","content":"x"}],${field}}`)
  expect(leastMs(() => expect(() => parseRequest('chat', bytes)).toThrow('more than 262144 values'))).toBeLessThan(80)
})
