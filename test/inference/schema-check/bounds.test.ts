import { expect, test } from 'bun:test'
import { checkSchemaBounds, relaxSchema } from '../../../src/inference/schema-check/bounds.ts'
import { faultOf } from '../../rigs/fault-of.ts'

const keys = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, {}]))

// Goal: a key of patternProperties is a regular expression, with the bounds of one; a property of that name is none.
test.each([
  [
    'a repetition',
    { 'a{2000}': {} },
    'f has a key of patternProperties that must repeat at most 1000 times in each {n,m}, and 10000 times in all of them together.',
  ],
  ['a long one', { ['a'.repeat(513)]: {} }, 'f has a key of patternProperties that must have at most 512 characters.'],
  ['none', { '(': {} }, 'f has a key of patternProperties that must be a valid regular expression.'],
  ['too many', keys(1_001), 'f has more than 1000 keys of patternProperties.'],
])('keys of patternProperties: %s', (_, patternProperties, message) => {
  expect(faultOf(() => checkSchemaBounds({ anyOf: [{ patternProperties }] }, 'f')).message).toBe(message)
  const relaxed = { anyOf: [{ patternProperties: structuredClone(patternProperties) }] }
  expect([...relaxSchema(relaxed)]).toEqual(['patternProperties'])
  expect(Object.keys(relaxed.anyOf[0]?.patternProperties ?? {})).toHaveLength(message.includes('1000 keys') ? 1_000 : 0)
})

// Goal: within the bounds nothing is refused or removed, and a property may have that name.
test('keys of patternProperties within the bounds, and properties of that name', () => {
  for (const schema of [{ patternProperties: keys(1_000) }, { properties: { patternProperties: { '(': {} } } }]) {
    const relaxed = structuredClone(schema)
    expect([...relaxSchema(relaxed)]).toEqual([])
    expect(relaxed).toEqual(schema)
  }
  checkSchemaBounds({ patternProperties: keys(1_000) }, 'f')
})
