import { expect, test } from 'bun:test'
import { Type } from '@sinclair/typebox'
import { utf8 } from '../../src/base/bytes.ts'
import { Fault } from '../../src/base/fault.ts'
import { checked, checkedJson, shapeOf } from '../../src/contract/shape.ts'

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

// Goal: the problem names the field, and the whole document when there is no field to name.
test('shapeOf', () => {
  expect(shapeOf(Door, { width: 1 })).toEqual({ ok: true, value: { width: 1 } })
  for (const [value, path] of [
    [{ width: 0 }, '/width: '],
    [{ width: 1, height: 2 }, '/height: '],
    [null, '/: '],
  ] as const) {
    const shape = shapeOf(Door, value)
    expect(shape.ok ? '' : shape.problem).toStartWith(path)
  }
})

// Goal: what is refused is refused under the caller's code, with the thing's name, and a name twice is refused like the rest.
test('checked and checkedJson', () => {
  expect(checked(Door, { width: 2 }, what)).toEqual({ width: 2 })
  expect(checkedJson(Door, utf8('{"width": 2}'), what)).toEqual({ width: 2 })
  for (const text of ['{"width": 0}', '{', '{"width": 1, "width": 1}', '']) {
    const fault = faultOf(() => checkedJson(Door, utf8(text), what))
    expect([text, fault?.code, fault?.message.startsWith('door.json: ')]).toEqual([text, 'image.invalid', true])
  }
})
