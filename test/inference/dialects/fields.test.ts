// Names of fields in errors: the client's own, whatever it calls its fields.

import { describe, expect, test } from 'bun:test'
import { Fault } from '../../../src/base/fault.ts'
import { namesOf, renamedFault } from '../../../src/inference/dialects/fields.ts'
import { invalidField } from '../../../src/inference/json-text.ts'

const names = namesOf({
  stop: 'stop_sequences',
  'response_format.json_schema': 'output_config.format',
  'messages[1].content[0]': 'messages[0].content[2]',
})

function renamed(path: string): Fault {
  const error = renamedFault(invalidField(path, 'is wrong.'), names)
  if (error instanceof Fault) return error
  throw new Error('no Fault')
}

describe('renamedFault', () => {
  // Goal: the client reads its own names, in the error's words too.
  test.each([
    ['stop', 'stop_sequences'],
    ['stop[3]', 'stop_sequences[3]'],
    ['response_format.json_schema.schema', 'output_config.format.schema'],
    ['messages[1].content[0].image_url.url', 'messages[0].content[2].image_url.url'],
    // Not a part of it, only the same letters.
    ['stopped', 'stopped'],
    ['messages[1].content', 'messages[1].content'],
  ])('%s is called %s', (path, expected) => {
    expect([renamed(path).param, renamed(path).message]).toEqual([expected, `${expected} is wrong.`])
  })

  // Goal: whatever a field is called, nobody waits for its name: one with a bracket at its end once took for ever.
  test.each(['foo[bar]', 'a]', '[', '].', 'a[0]b', '', '.', '[0]', '__proto__', 'constructor'])(
    'a field called %j keeps its name',
    path => {
      expect(renamed(path).param).toBe(path)
    },
  )

  // Goal: only the beginning of a path is looked at: 20,000 steps once took a second.
  test('a path of a million steps', () => {
    const path = 'a.'.repeat(1_000_000)
    const error = new Fault('invalid_request', `${path} is wrong.`, { param: path })
    expect((renamedFault(error, names) as Fault).param).toBe(path)
  })
})

// Goal: an error is short, however long the name of a field is.
test('an error about a long name', () => {
  const { param, message } = invalidField('n'.repeat(1_000_000), 'is not supported; leave it out.')
  expect(param).toBe(`${'n'.repeat(256)}…`)
  expect(message).toBe(`${'n'.repeat(256)}… is not supported; leave it out.`)
})
