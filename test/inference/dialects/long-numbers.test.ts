// Long whole numbers through the translations: none loses a digit, and no text becomes a number.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import { unmarkedJson, withMarkedNumbers } from '../../../src/inference/dialects/long-numbers.ts'
import { messagesDialect } from '../../../src/inference/dialects/messages/dialect.ts'
import { parseDialect } from '../../../src/inference/dialects/request.ts'
import { responsesDialect } from '../../../src/inference/dialects/responses/dialect.ts'
import { readSource } from '../../../src/inference/openai/request.ts'

const tooMany = () => new Fault('invalid_request', 'too many')
const LONG = '123456789012345678901'

// Goal: they come out as they went in, wherever they stand; other numbers and all texts are left alone.
test.each<[json: string, isMarked: boolean]>([
  [`{"a":${LONG},"b":[-${LONG},1]}`, true],
  [`{"a":[{"b":9007199254740993}],"c":"${LONG}"}`, true],
  [`[${LONG},"x\\"${LONG}",0.1234567890123456,1e20]`, true],
  ['{"a":9007199254740991}', false],
  [`{"a":"${LONG}","${LONG}":1}`, false],
  [`{"a":${LONG},"b":"\uE0005"}`, false],
  [`{"a":${LONG},"b":"\\uE0005"}`, false],
  ['{"a":0.30000000000000004}', false],
])('%s', (json, isMarked) => {
  const marked = withMarkedNumbers(json, tooMany)
  expect(marked !== null).toBe(isMarked)
  if (marked !== null) expect(unmarkedJson(JSON.parse(marked)).replace('100000000000000000000', '1e20')).toBe(json)
})

// Goal: of any JSON the value is the same as without marks.
test('any JSON', () => {
  fc.assert(
    fc.property(fc.json(), fc.bigInt({ min: -(10n ** 60n), max: 10n ** 60n }), (json, number) => {
      const all = `[${json},${number}]`
      const marked = withMarkedNumbers(all, tooMany)
      const text = marked === null ? all : unmarkedJson(JSON.parse(marked))
      expect(JSON.parse(text)).toEqual(JSON.parse(all))
      if (marked !== null) expect(text.endsWith(`,${number}]`)).toBe(true)
    }),
    { numRuns: casesOf(1_000) },
  )
})

// Goal: how many a stranger may have marked is bounded, and so is their length.
test('too many', () => {
  const list = (count: number) => `[${Array(count).fill(LONG).join(',')}]`
  expect(withMarkedNumbers(list(4_096), tooMany)).not.toBeNull()
  expect(() => withMarkedNumbers(list(4_097), tooMany)).toThrow('too many')
  expect(withMarkedNumbers(`[${'9'.repeat(65)}]`, tooMany)).toBeNull()
  const body = `{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":{"enum":${list(4_097)}}}]}`
  expect(() => parseDialect(responsesDialect, readSource(utf8(body)))).toThrow('send them as strings')
})

// Goal: schemas of tools and input of earlier calls reach the upstream with every digit.
test('requests', () => {
  const schema = `{"enum":[${LONG}]}`
  const calls = `[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"id":${LONG}}}]}]`
  const message = `{"model":"m","max_tokens":5,"tools":[{"name":"f","input_schema":${schema}}],"messages":${calls}}`
  const { text } = parseDialect(messagesDialect, readSource(utf8(message))).source
  expect(text).toContain(schema)
  expect(JSON.parse(text).messages[0].tool_calls[0].function.arguments).toBe(`{"id":${LONG}}`)
  const response = `{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":${schema}}]}`
  expect(parseDialect(responsesDialect, readSource(utf8(response))).source.text).toContain(schema)
})

// Goal: arguments of a call become input with every digit; where a text has the mark, nothing of it becomes a number.
test('responses', () => {
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
  const whole = (content: string) => {
    const call = { id: 'c', type: 'function', function: { name: 'f', arguments: `{"id": ${LONG}}` } }
    const message = { role: 'assistant', content, refusal: null, tool_calls: [call] }
    const completion = { choices: [{ index: 0, message, logprobs: null, finish_reason: 'tool_calls' }] }
    return messagesDialect.respond(null, { id: '0a', createdS: 7, model: 'm', keep: null }).whole(completion, usage)
  }
  expect(whole('a')).toContain(`"input":{"id":${LONG}}`)
  expect(JSON.parse(whole('\uE0005')).content[0].text).toBe('\uE0005')
})
