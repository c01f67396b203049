// Goal: our schemas are TypeBox's, and our check finds what TypeBox finds: the same verdict for every value, and the
// same first problem, for every schema of the wires. TypeBox is the independent implementation here.

import { expect, test } from 'bun:test'
import { resolve } from 'node:path'
import { Type as TypeBox } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import fc from 'fast-check'
import { firstProblem } from '../../src/contract/first-problem.ts'
import { KIND, type TSchema, Type } from '../../src/contract/type.ts'

const contract = resolve(import.meta.dir, '../../src/contract')

/** One schema of each form, made by either builder. */
function forms(T: typeof Type | typeof TypeBox): TSchema[] {
  const text = T.String({ minLength: 1, maxLength: 3, pattern: '^[a-z]*$', description: 'A text.' })
  const fields = { a: text, b: T.Optional(T.Integer({ minimum: 0, maximum: 9 })), 'c/~d': T.Null() }
  return [
    text,
    T.Array(T.Number({ minimum: -1.5 }), { minItems: 1, maxItems: 2, uniqueItems: true }),
    T.Boolean(),
    T.Integer({ minimum: 0, multipleOf: 4096 }),
    T.Literal('x'),
    T.Literal(7, { description: 'Seven.' }),
    T.Object(fields),
    T.Object(fields, { additionalProperties: false }),
    T.Object({ b: T.Optional(T.Null()) }),
    T.Partial(T.Object(fields, { additionalProperties: false })),
    T.Record(T.String(), T.Integer()),
    T.Record(T.String({ pattern: '^k' }), T.Boolean(), { additionalProperties: false }),
    T.Tuple([T.Integer(), text]),
    T.Union([T.Literal('a'), T.Literal('b'), T.Null()], { description: 'One.' }),
    T.Union([T.Literal('a')], { description: 'One.' }),
    T.Unknown(),
    T.Unsafe<'a' | 'b'>(T.Union([T.Literal('a'), T.Literal('b')])),
  ]
}

/** With symbols, which toEqual does not compare. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Reflect.ownKeys(value).map(key => [String(key), plain(value[key as never])]))
}

test('each form of schema is what TypeBox makes of it', () => {
  // Goal: the host's library and Elysia take our schemas as their own.
  expect(forms(Type).map(plain)).toEqual(forms(TypeBox).map(plain))
})

test('a kind that we do not make is an error, and so is no schema at all', () => {
  // Goal: a schema that we cannot check is never taken for a valid one.
  expect(() => firstProblem(TypeBox.Date(), new Date())).toThrow('schemas of the kind Date are not supported')
  expect(() => firstProblem({} as TSchema, 1)).toThrow('schemas of the kind undefined are not supported')
  expect(() => firstProblem(TypeBox.String({ format: 'date' }), '')).toThrow('schemas with format are not supported')
  expect(() => firstProblem(TypeBox.Array(TypeBox.Integer({ exclusiveMinimum: 1 })), [1])).toThrow('exclusiveMinimum')
})

test('a schema of TypeBox is checked as one of ours', () => {
  // Goal: configuration and console hand in schemas of TypeBox.
  expect(firstProblem(TypeBox.Object({ a: TypeBox.String() }), { a: 1 })).toEqual({
    path: '/a',
    message: 'Expected string',
  })
})

// Goal: a list that names a thing twice is refused, whatever the thing is.
test.each([
  [['a', 'a'], false],
  [['a', 'b'], true],
  [[{ a: 1 }, { a: 1 }], false],
  [[{ a: 1 }, { a: 2 }], true],
  [[1, '1'], true],
] as const)('items of a unique list: %j', (value, isValid) => {
  const schema = Type.Array(Type.Unknown(), { uniqueItems: true })
  expect([firstProblem(schema, value) === null, Value.Check(schema, value)]).toEqual([isValid, isValid])
})

/** Every schema that a module of the contract exports. */
async function wireSchemas(): Promise<TSchema[]> {
  const found: TSchema[] = []
  for (const path of new Bun.Glob('**/*.ts').scanSync({ cwd: contract })) {
    const module: Record<string, unknown> = await import(resolve(contract, path))
    for (const value of Object.values(module)) {
      if (typeof value === 'object' && value !== null && Object.hasOwn(value, KIND)) found.push(value as TSchema)
    }
  }
  return found
}

const anything = fc.jsonValue({ maxDepth: 2 })
const short = fc.oneof(
  fc.constantFrom('', 'a', 'b', 'k1', 'x', '0'.repeat(64), '2026-11-20T00:00:00.000Z'),
  fc.string(),
)

/** Values that are nearly always valid: so wrong ones are wrong in one place. */
function near(schema: TSchema): fc.Arbitrary<unknown> {
  const wrong = { arbitrary: anything, weight: 1 }
  return fc.oneof({ arbitrary: valid(schema), weight: 40 }, wrong)
}

function valid(schema: TSchema): fc.Arbitrary<unknown> {
  switch (schema[KIND as never] as unknown) {
    case 'Array': {
      const { minItems = 0, maxItems = 3, items } = schema
      return fc.array(near(items), { minLength: Math.min(minItems, 3), maxLength: Math.min(maxItems + 1, 4) })
    }
    case 'Boolean':
      return fc.boolean()
    case 'Integer':
    case 'Number':
      return fc.oneof(
        fc.integer({
          min: Math.max(Math.ceil(schema.minimum ?? -5), -(2 ** 31)),
          max: Math.min(schema.maximum ?? 2 ** 20, 2 ** 31 - 1),
        }),
        fc.constantFrom(
          schema.minimum ?? 0,
          schema.maximum ?? 0,
          (schema.minimum ?? 0) - 1,
          (schema.maximum ?? 0) + 1,
          0.5,
        ),
      )
    case 'Literal':
      return fc.constant(schema.const)
    case 'Null':
      return fc.constant(null)
    case 'Object': {
      const entries = Object.entries<TSchema>(schema.properties)
      const record = fc.record(Object.fromEntries(entries.map(([key, property]) => [key, near(property)])), {
        requiredKeys: schema.required ?? [],
      })
      const without = fc.tuple(record, fc.constantFrom(...entries.map(([key]) => key), 'none')).map(([value, key]) => {
        const { [key]: _, ...rest } = value
        return rest
      })
      return fc.oneof(
        { arbitrary: record, weight: 20 },
        { arbitrary: without, weight: 1 },
        { arbitrary: record.map(value => ({ ...value, 'un/kn~own': 1 })), weight: 1 },
      )
    }
    case 'Record': {
      const [inner] = Object.values<TSchema>(schema.patternProperties)
      return inner === undefined ? fc.constant({}) : fc.dictionary(short, near(inner), { maxKeys: 3 })
    }
    case 'String': {
      const { pattern, minLength = 0, maxLength = 64 } = schema
      const text = fc.string({ minLength: Math.min(minLength, 64), maxLength: Math.min(maxLength + 1, 64) })
      return pattern === undefined ? text : fc.oneof(fc.stringMatching(new RegExp(pattern), { size: 'small' }), short)
    }
    case 'Tuple':
      return fc.tuple(...schema.items.map(near))
    case 'Union':
      return fc.oneof(...schema.anyOf.map(near))
    default:
      return anything
  }
}

test('for values near to valid ones, the verdict and the first problem are those of TypeBox', async () => {
  // Goal: our check never accepts or refuses another value than the library did.
  const wires = await wireSchemas()
  expect(wires.length).toBeGreaterThan(100)
  let [valids, invalids] = [0, 0]
  for (const schema of [...forms(Type), ...wires]) {
    fc.assert(
      fc.property(near(schema), value => {
        const found = firstProblem(schema, value)
        const first = Value.Errors(schema, value).First()
        expect(found).toEqual(first === undefined ? null : { path: first.path, message: first.message })
        expect(found === null).toBe(Value.Check(schema, value))
        if (found === null) valids += 1
        else invalids += 1
      }),
      { numRuns: 12, seed: 44 },
    )
  }
  // Both kinds of values are there in number.
  expect(Math.min(valids, invalids)).toBeGreaterThan(200)
})
