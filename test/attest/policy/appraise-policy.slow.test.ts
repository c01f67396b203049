import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { bits, integer, object, orAny, policyListCountMax } from '../../../src/attest/policy/kinds.ts'
import { parsePolicy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { POLICY_FIELDS, policySchema } from '../../../src/attest/policy/schema.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { FIELDS } from '../../rigs/attest/cases/policies.ts'
import { randomOf } from '../../rigs/attest/cases/random.ts'
import { AUTHORITY, forge } from '../../rigs/attest/forged-chain.ts'
import { readReport } from '../../rigs/attest/report-vectors.ts'

type Json = { [key: string]: unknown }

const milanReport = await readReport('milan-v3.bin')

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
    ...laterJson(),
  }
}

/** Fields that came after policies were written. Newer ones have a value of the random policies. */
function laterJson(): Json {
  const older = olderLaterJson()
  const newer = Object.entries<object>(POLICY_FIELDS).filter(
    ([name, field]) => 'whenMissing' in field && !Object.hasOwn(older, name),
  )
  return {
    ...older,
    ...Object.fromEntries(newer.map(([name]) => [name, FIELDS[name]?.(milanReport, randomOf(1), 'milan')])),
  }
}

function olderLaterJson(): Json {
  const tcb = { milan: 'any', genoa: { bootloader: 1, tee: 'any', snp: 0x1b, microcode: 255 }, turin: 'any' }
  const version = { major: 1, minor: 55, build: 29 }
  return {
    reportVersions: [2, 5],
    familyId: '05'.repeat(16),
    imageId: '06'.repeat(16),
    reportId: '07'.repeat(32),
    reportIdMa: 'ff'.repeat(32),
    processors: [
      { family: 0x19, model: 1, stepping: 1 },
      { family: 0x19, model: 1, stepping: 2 },
    ],
    chipIdMasked: 'forbidden',
    minimumPolicyAbi: { major: 1, minor: 0 },
    maximumPolicyAbi: { major: 1, minor: 58 },
    maximumGuestSvn: 9,
    ...Object.fromEntries(
      ['maximumTcb', 'maximumLaunchTcb', 'minimumCurrentTcb', 'maximumCurrentTcb']
        .concat('minimumCommittedTcb', 'maximumCommittedTcb')
        .map(name => [name, structuredClone(tcb)]),
    ),
    minimumCurrentFirmware: { ...version },
    maximumCurrentFirmware: { ...version },
    maximumCommittedFirmware: { ...version },
    minimumBuild: 29,
    committedFirmware: 'current',
    launchMitigations: { required: '0xb', forbidden: '0x0' },
    currentMitigations: { required: '0x0', forbidden: '0xffffffffffffffff' },
    cspIds: ['amazon', 'Azure SNP'],
    maxCrlAgeDays: 30,
    certificateEntries: ['63da758d-e664-4564-adc5-f4b93be8accd'],
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
    uniqueItems: () => !Array.isArray(value) || new Set(value.map(sameText)).size === value.length,
    pattern: (given: string) => typeof value !== 'string' || new RegExp(given, 'u').test(value),
    maxLength: (given: number) => typeof value !== 'string' || value.length <= given,
    minimum: (given: number) => typeof value !== 'number' || value >= given,
    maximum: (given: number) => typeof value !== 'number' || value <= given,
  }
  return Object.entries(schema).every(([keyword, given]) =>
    present(keywords[keyword], `the keyword ${keyword} is known`)(given as never),
  )
}

/** One text for equal values, whatever the order of an object's fields. */
function sameText(value: unknown): string {
  const isFlat = typeof value === 'object' && value !== null && !Array.isArray(value)
  return JSON.stringify(isFlat ? Object.entries(value).toSorted() : value)
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
const laterNames = Object.keys(laterJson())

// Goal: each field that may be left out is in the policy above, so that the tests below reach it.
test('a policy that says everything', () => {
  expect(Object.keys(fullJson()).toSorted()).toEqual(Object.keys(POLICY_FIELDS).toSorted())
})

// Goal: a field that may be left out says 'any' then, and a policy that says no more than before is written as before:
// verifiers from before the field refuse a policy that names it.
test('fields that came later', () => {
  const before = Object.fromEntries(Object.entries(fullJson()).filter(([name]) => !laterNames.includes(name)))
  const policy = parsePolicy(before)
  expect(laterNames.map(name => policy[name as keyof typeof policy])).toEqual(laterNames.map(() => 'any'))
  expect(encodePolicy(policy)).toEqual(before)
  expect(Object.keys(encodePolicy(strictPolicy())).filter(name => laterNames.includes(name))).toEqual([])
  for (const name of laterNames) {
    const json = { ...before, [name]: laterJson()[name] }
    expect(encodePolicy(parsePolicy(json))).toEqual(json)
    expect(matches(policySchema, json)).toBe(true)
  }
})

describe('keys of a launch', () => {
  const spki = `-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE`

  // Goal: a key and its certificate are the digest that a report of its launch carries, alone or in a list.
  test('as digest, as key and as certificate', async () => {
    const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
    const expected = await idKeyDigest(await publicIdKey(keys.publicKey))
    const key = toPem(new Uint8Array(await crypto.subtle.exportKey('spki', keys.publicKey)), 'PUBLIC KEY')
    const certificate = toPem(await certificateOf(keys), 'CERTIFICATE')
    for (const field of ['idKeyDigest', 'authorKeyDigest'] as const) {
      for (const given of [toHex(expected), key, certificate]) {
        const json = changed(field, given)
        expect(matches(policySchema, json)).toBe(true)
        expect(parsePolicy(json)[field]).toEqual(expected)
        const listed = changed(field, ['05'.repeat(48), given])
        expect(matches(policySchema, listed)).toBe(true)
        expect(parsePolicy(listed)[field]).toEqual([new Uint8Array(48).fill(5), expected])
        expect(encodePolicy(parsePolicy(listed))[field]).toEqual(['05'.repeat(48), toHex(expected)])
      }
    }
  })

  // Goal: a key of another kind, a broken one and two in one text are refused, and the error names the field.
  test('refused', async () => {
    const rsa = { name: 'RSA-PSS', hash: 'SHA-384', modulusLength: 2048, publicExponent: Uint8Array.of(1, 0, 1) }
    const other = await crypto.subtle.generateKey(rsa, true, ['sign', 'verify'])
    const pem = toPem(new Uint8Array(await crypto.subtle.exportKey('spki', other.publicKey)), 'PUBLIC KEY')
    const broken = `${spki}\n-----END PUBLIC KEY-----\n`
    for (const wrong of [pem, broken, `${spki}`, `${pem}${pem}`, `${pem}${'\n'.repeat(17_000)}`]) {
      expect(refusedField(changed('idKeyDigest', wrong))).toBe('policy.idKeyDigest')
      expect(refusedField(changed('authorKeyDigest', [wrong]))).toBe('policy.authorKeyDigest[0]')
    }
  })
})

async function certificateOf(keys: CryptoKeyPair): Promise<Uint8Array> {
  return await forge({
    subject: 'CN=ID key',
    issuer: 'CN=ID key',
    publicKey: keys.publicKey,
    signingKey: keys.privateKey,
    algorithm: { name: 'ECDSA', hash: 'SHA-384' },
    extensions: AUTHORITY.root,
  })
}

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
  test.each(paths.filter(path => !laterNames.includes(path)))('%s missing', path => {
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
    ['reportVersions', [1]],
    ['reportVersions', [6]],
    ['processors', [{ family: 0x19, model: 1 }]],
    ['processors', [{ family: 256, model: 1, stepping: 0 }]],
    [
      'processors',
      [
        { family: 0x19, model: 1, stepping: 0 },
        { stepping: 0, model: 1, family: 0x19 },
      ],
    ],
    ['chipIdMasked', 'zero'],
    ['minimumPolicyAbi', { major: 1 }],
    ['minimumBuild', 256],
    ['committedFirmware', 'required'],
    ['launchMitigations.required', 11],
    ['launchMitigations.required', '0x0b'],
    ['launchMitigations.required', '0x10000000000000000'],
    ['currentMitigations.bit3', '0x0'],
    ['cspIds', ['']],
    ['cspIds', ['a'.repeat(65)]],
    ['cspIds', ['line\n']],
    ['maxCrlAgeDays', 3651],
    ['certificateEntries', ['63DA758D-E664-4564-ADC5-F4B93BE8ACCD']],
    ['certificateEntries', ['vcek']],
    ['idKeyDigest', []],
    ['idKeyDigest', ['03'.repeat(48), '03'.repeat(48)]],
    ['idKeyDigest', ['any']],
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
    { numRuns: casesOf(3_000) },
  )
  expect(Math.min(seen.accepted, seen.refused)).toBeGreaterThan(20)
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
