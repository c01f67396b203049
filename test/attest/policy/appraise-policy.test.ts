import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { Malformed } from '../../../src/attest/malformed.ts'
import { bits, integer, object, orAny, policyListCountMax } from '../../../src/attest/policy/kinds.ts'
import { encodePolicy, parsePolicy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { policySchema } from '../../../src/attest/policy/schema.ts'
import { present } from '../../../src/base/assert.ts'

type Json = { [key: string]: unknown }

/** A policy in which every field says something. */
function fullJson(): Json {
  const anyTcb = { bootloader: 'any', tee: 0, snp: 8, microcode: 115 }
  return {
    ...encodePolicy(strictPolicy()),
    products: ['milan', 'turin'],
    signers: ['vcek'],
    reservedBytes: 'zero',
    vmpls: [0, 3],
    measurements: ['ab'.repeat(48), '00'.repeat(48)],
    hostData: '01'.repeat(32),
    reportData: '02'.repeat(64),
    idKeyDigest: '03'.repeat(48),
    authorKeyDigest: '04'.repeat(48),
    chipIds: [`${'00'.repeat(63)}05`],
    minimumTcb: { milan: anyTcb, genoa: 'any', turin: { ...anyTcb, fmc: 255 } },
    minimumLaunchTcb: { milan: 'any', genoa: { ...anyTcb }, turin: 'any' },
    minimumFirmware: { major: 1, minor: 55, build: 0 },
    minimumGuestSvn: 0xffff_ffff,
  }
}

/** The keywords that policySchema uses, and no other: an unknown one is an error here. */
function matches(schema: Json, value: unknown): boolean {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
  const keywords: Record<string, (given: never) => boolean> = {
    $schema: () => true,
    title: () => true,
    default: () => true,
    const: (given: unknown) => value === given,
    enum: (given: readonly unknown[]) => given.includes(value),
    anyOf: (given: readonly Json[]) => given.some(item => matches(item, value)),
    type: (given: string) =>
      given === 'object'
        ? isObject
        : given === 'array'
          ? Array.isArray(value)
          : given === 'integer'
            ? Number.isInteger(value)
            : given === 'string' && typeof value === 'string',
    properties: (given: Record<string, Json>) =>
      !isObject ||
      Object.entries(given).every(([key, json]) => !Object.hasOwn(value, key) || matches(json, (value as Json)[key])),
    required: (given: readonly string[]) => !isObject || given.every(key => Object.hasOwn(value, key)),
    additionalProperties: (given: false) =>
      given === false && (!isObject || Object.keys(value).every(key => Object.hasOwn(schema.properties as Json, key))),
    items: (given: Json) => !Array.isArray(value) || value.every(item => matches(given, item)),
    minItems: (given: number) => !Array.isArray(value) || value.length >= given,
    maxItems: (given: number) => !Array.isArray(value) || value.length <= given,
    uniqueItems: () => !Array.isArray(value) || new Set(value.map(item => JSON.stringify(item))).size === value.length,
    pattern: (given: string) => typeof value !== 'string' || new RegExp(given, 'u').test(value),
    minimum: (given: number) => typeof value !== 'number' || value >= given,
    maximum: (given: number) => typeof value !== 'number' || value <= given,
  }
  return Object.entries(schema).every(([keyword, given]) =>
    present(keywords[keyword], `the keyword ${keyword} is known`)(given as never),
  )
}

/** The field that the parser refuses; null for a good policy. */
function refusedField(json: unknown): string | null {
  try {
    parsePolicy(json)
    return null
  } catch (cause) {
    expect(cause).toBeInstanceOf(Malformed)
    return (cause as Error).message.split(':')[0] ?? ''
  }
}

/** Sets the value at a path such as `minimumTcb.milan.snp`; undefined deletes. */
function changed(path: string, value: unknown): Json {
  const json = structuredClone(fullJson())
  const keys = path.split('.')
  const last = present(keys.pop(), 'a path has a last part')
  const parent = keys.reduce<Json>((at, key) => at[key] as Json, json)
  if (value === undefined) delete parent[last]
  else parent[last] = value
  return json
}

/** Every path to a field, objects inside included. */
function pathsOf(json: Json, prefix = ''): string[] {
  return Object.entries(json).flatMap(([key, value]) => {
    const inner = typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : null
    return [`${prefix}${key}`, ...(inner === null ? [] : pathsOf(inner, `${prefix}${key}.`))]
  })
}

const paths = pathsOf(fullJson())

// Goal: the default and a policy that says everything are accepted by both, and come back from their JSON.
test('accepted', () => {
  for (const json of [encodePolicy(strictPolicy()), fullJson()]) {
    const text = JSON.parse(JSON.stringify(json))
    expect(matches(policySchema, text)).toBe(true)
    expect(JSON.parse(JSON.stringify(encodePolicy(parsePolicy(text))))).toEqual(text)
  }
  expect(parsePolicy(encodePolicy(strictPolicy()))).toEqual(strictPolicy())
  expect(parsePolicy(fullJson()).measurements[0]).toEqual(new Uint8Array(48).fill(0xab))
})

// Goal: the default is exactly this: a change of it is a change of what the command line promises.
test('strictPolicy', () => {
  const said = Object.entries(strictPolicy()).filter(([, value]) => value !== 'any')
  const bits = (name: string) => Object.entries((said.find(([key]) => key === name)?.[1] ?? {}) as Json)
  expect(said.map(([name]) => name)).toEqual([
    'format',
    'guestPolicy',
    'platformInfo',
    'keyInfo',
    'reservedBytes',
    'vmpls',
    'tcbOrder',
  ])
  expect(bits('guestPolicy').filter(([, rule]) => rule !== 'any')).toEqual([
    ['reservedOne', 'required'],
    ['migrate', 'forbidden'],
    ['debug', 'forbidden'],
    ['unknown', 'forbidden'],
  ])
  expect(bits('platformInfo').filter(([, rule]) => rule !== 'any')).toEqual([])
  expect(bits('keyInfo').filter(([, rule]) => rule !== 'any')).toEqual([['unknown', 'forbidden']])
  expect(strictPolicy()).toMatchObject({ vmpls: [0], reservedBytes: 'zero', tcbOrder: 'required' })
})

// Goal: as text a policy says each thing once: JSON.parse would take the last of two, and a reader who looks for the
// first sees another policy.
test('a name twice in the text', () => {
  const text = JSON.stringify(fullJson())
  expect(parsePolicy(text)).toEqual(parsePolicy(fullJson()))
  expect(parsePolicy(new TextEncoder().encode(text))).toEqual(parsePolicy(fullJson()))
  for (const [once, twice, name] of [
    ['"debug":"forbidden"', '"debug":"forbidden","debug":"any"', 'debug'],
    ['"vmpls":[0,3]', '"vmpls":[0],"vmpls":[0,3]', 'vmpls'],
    ['"snp":8', '"snp":8,"\\u0073np":0', 'snp'],
  ] as const) {
    expect(text).toContain(once)
    expect(() => parsePolicy(text.replace(once, twice))).toThrow(Malformed)
    expect(() => parsePolicy(text.replace(once, twice))).toThrow(`policy has the field "${name}" twice`)
  }
})

describe('refused by parser and schema alike', () => {
  // Goal: nothing is optional: each field missing is an error that names it.
  test.each(paths)('%s missing', path => {
    const json = changed(path, undefined)
    expect(refusedField(json)).toBe(`policy.${path}`)
    expect(matches(policySchema, json)).toBe(false)
  })

  // Goal: no field takes a value of another kind, and the error names it.
  test.each(paths)('%s of another kind', path => {
    for (const wrong of [null, true, 'ANY', '', [], {}, -1, 0.5, 1e300, ['any'], [null]]) {
      const json = changed(path, wrong)
      expect(refusedField(json)).toStartWith(`policy.${path}`)
      expect(matches(policySchema, json)).toBe(false)
    }
  })

  // Goal: the edges of each kind.
  test.each([
    ['vmpls', [4]],
    ['vmpls', [0, 0]],
    ['vmpls', ['0']],
    ['products', ['rome']],
    ['products', ['milan', 'milan']],
    ['signers', ['none']],
    ['measurements', ['ab'.repeat(47)]],
    ['measurements', ['AB'.repeat(48)]],
    ['measurements', [`${'ab'.repeat(47)}ag`]],
    ['measurements', [`${'ab'.repeat(48)}\n`]],
    ['measurements', 'ab'.repeat(48)],
    ['measurements', Array.from({ length: policyListCountMax + 1 }, (_, i) => i.toString(16).padStart(96, '0'))],
    ['hostData', '01'.repeat(33)],
    ['reportData', '0x'.repeat(64)],
    ['chipIds', ['00'.repeat(64)]],
    ['chipIds', ['01'.repeat(8)]],
    ['minimumTcb.milan.snp', 256],
    ['minimumTcb.milan.fmc', 0],
    ['minimumTcb.rome', 'any'],
    ['minimumFirmware.patch', 1],
    ['minimumFirmware.minor', 'any'],
    ['minimumGuestSvn', 2 ** 32],
    ['minimumGuestSvn', '0'],
    ['guestPolicy.debug', 'allowed'],
    ['guestPolicy.unknown', 'required'],
    ['guestPolicy.bit26', 'any'],
    ['reservedBytes', 'forbidden'],
    ['tcbOrder', 'forbidden'],
    ['keyInfo.maskChipKey', 'zero'],
    ['keyInfo.unknown', 'required'],
    ['keyInfo.bit5', 'any'],
    ['format', 'strongroom/snp-policy/v2'],
    ['format', 'any'],
    ['extra', 'any'],
    ['toString', 'any'],
  ])('%s %j', (path, value) => {
    const json = changed(path, value)
    expect(refusedField(json)).toStartWith(`policy.${path}`)
    expect(matches(policySchema, json)).toBe(false)
  })

  // Goal: what is no object is refused, and a field called __proto__ is a field like any other.
  test('other values', () => {
    for (const json of [null, undefined, 1, 'any', [], [fullJson()]]) {
      expect(refusedField(json)).toBe(json === 'any' ? 'policy is not valid JSON.' : 'policy')
      expect(matches(policySchema, json)).toBe(false)
    }
    const hostile = JSON.parse(JSON.stringify(fullJson()).replace('{', '{"__proto__":{"hostData":"any"},'))
    expect(refusedField(hostile)).toBe('policy.__proto__')
    expect(matches(policySchema, hostile)).toBe(false)
    const inherited = Object.create(fullJson())
    expect(refusedField(inherited)).toBe('policy.format')
  })
})

// Goal: on any change of any field parser and schema agree, whatever the value.
test('parser and schema agree', () => {
  const value = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom('any', 'required', 'forbidden', 'zero', 'milan', 0, 3, 255, 256),
    fc.array(fc.constantFrom('milan', 'genoa', 'vcek', 'vlek', 0, 1, 4), { maxLength: 3 }),
    fc.uint8Array({ minLength: 30, maxLength: 65 }).map(bytes => Buffer.from(bytes).toString('hex')),
  )
  const seen = { accepted: 0, refused: 0 }
  fc.assert(
    fc.property(fc.constantFrom(...paths), value, (path, wanted) => {
      const json = changed(path, wanted)
      const isAccepted = refusedField(json) === null
      seen[isAccepted ? 'accepted' : 'refused'] += 1
      expect(matches(policySchema, json)).toBe(isAccepted)
    }),
    { numRuns: 3000 },
  )
  expect(Math.min(seen.accepted, seen.refused)).toBeGreaterThan(50)
})

// Goal: a file written before a field or a bit had its name still parses, takes the stated default, and meets the
// schema.
test('a field of a later version', () => {
  const old = object({ vmpl: integer(3), info: bits({ smt: 0 }) })
  const later = object({
    vmpl: integer(3),
    info: bits({ smt: 0, tio: 7 }, { tio: 'forbidden' }),
    level: { ...orAny(integer(9)), whenMissing: 'any' },
  })
  const file = { vmpl: 0, info: { smt: 'any', unknown: 'any' } }
  expect(JSON.stringify(old.parse(file, 'policy'))).toBe(JSON.stringify(file))
  expect(later.parse(file, 'policy')).toEqual({
    vmpl: 0,
    info: { smt: 'any', tio: 'forbidden', unknown: 'any' },
    level: 'any',
  })
  expect(matches(later.schema as Json, file)).toBe(true)
  expect(later.schema).toMatchObject({ required: ['vmpl', 'info'], properties: { level: { default: 'any' } } })
  expect(() => later.parse({ ...file, level: 10 }, 'policy')).toThrow('policy.level: not an integer from 0 to 9')
  expect(() => later.parse({ level: 1 }, 'policy')).toThrow('policy.vmpl: it is missing')
  expect(() => old.parse({ ...file, level: 1 }, 'policy')).toThrow('policy.level: unknown field')
})
