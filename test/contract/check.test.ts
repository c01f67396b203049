import { expect, test } from 'bun:test'
import { Type } from '@sinclair/typebox'
import { utf8 } from '../../src/base/bytes.ts'
import { Fault } from '../../src/base/fault.ts'
import { checked, checkedJson, checkValue, OneOf, OneOfOrNull } from '../../src/contract/check.ts'

const Door = Type.Object({ width: Type.Integer({ minimum: 1 }) }, { additionalProperties: false })
const what = { what: 'door.json', code: 'image.invalid' } as const

const faultOf = (act: () => unknown): Fault | null => {
  try {
    act()
  } catch (error) {
    return error instanceof Fault ? error : null
  }
  return null
}

test('goal: the problem names the wrong field, or the whole document when that is wrong', () => {
  expect(checkValue(Door, { width: 1 })).toEqual({ ok: true, value: { width: 1 } })
  for (const [value, path] of [
    [{ width: 0 }, '/width: '],
    [{ width: 1, height: 2 }, '/height: '],
    [null, '/: '],
  ] as const) {
    const result = checkValue(Door, value)
    expect(result.ok ? '' : result.problem).toStartWith(path)
  }
})

test('goal: a refusal has the code of the caller and names the thing, also when a name is there twice', () => {
  expect(checked(Door, { width: 2 }, what)).toEqual({ width: 2 })
  expect(checkedJson(Door, utf8('{"width": 2}'), what)).toEqual({ width: 2 })
  for (const text of ['{"width": 0}', '{', '{"width": 1, "width": 1}', '']) {
    const fault = faultOf(() => checkedJson(Door, utf8(text), what))
    expect([text, fault?.code, fault?.message.startsWith('door.json: ')]).toEqual([text, 'image.invalid', true])
  }
})

test('goal: a list of names and its schema allow the same texts, and null only where it is asked for', () => {
  const names = ['open', 'shut'] as const
  for (const [schema, allowsNull] of [
    [OneOf(names), false],
    [OneOfOrNull(names), true],
  ] as const) {
    expect(names.map(name => checkValue(schema, name).ok)).toEqual([true, true])
    expect([checkValue(schema, 'ajar').ok, checkValue(schema, null).ok]).toEqual([false, allowsNull])
  }
})
