// Statements: deterministic CBOR and the tables of fields.

import { describe, expect, test } from 'bun:test'
import { kinds, statementOf } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { type CborValue, decodeCbor, encodeCbor } from '../../../src/attest/encoding/cbor.ts'
import { sha512 } from '../../../src/attest/hash.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { PUBLIC_KEY_BYTES, SIGNATURE_BYTES } from '../../../src/attest/receipt/public-keys.ts'
import {
  decodeStatement,
  encodeStatement,
  reportDataOf,
  STATEMENT_FIELDS,
  STATEMENT_LIMITS,
  type Statement,
} from '../../../src/attest/receipt/statement.ts'
import { fromHex, toHex } from '../../../src/base/bytes.ts'
import { expectGolden } from '../../rigs/golden.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const limits = { sizeBytesMax: 1024, depthMax: 3 }

function bytesOf(hex: string): Uint8Array {
  const bytes = fromHex(hex)
  if (bytes === null) throw new Error(`no hex: ${hex}`)
  return bytes
}

describe('deterministic CBOR', () => {
  // Goal: values and bytes are those of RFC 8949, appendix A.
  test.each<[string, CborValue]>([
    ['00', 0],
    ['17', 23],
    ['1818', 24],
    ['18ff', 255],
    ['190100', 256],
    ['1903e8', 1000],
    ['1a000f4240', 1_000_000],
    ['1affffffff', 0xffff_ffff],
    ['1b0000000100000000', 2 ** 32],
    ['1b000000e8d4a51000', 1_000_000_000_000],
    ['1b001fffffffffffff', Number.MAX_SAFE_INTEGER],
    ['40', new Uint8Array(0)],
    ['4401020304', Uint8Array.of(1, 2, 3, 4)],
    ['60', ''],
    ['6449455446', 'IETF'],
    ['62c3bc', 'ü'],
    ['63e6b0b4', '水'],
    ['64f0908591', '𐅑'],
    ['63efbbbf', '\ufeff'],
    ['80', []],
    ['83010203', [1, 2, 3]],
    ['8301820203820405', [1, [2, 3], [4, 5]]],
    ['a0', new Map()],
    ['f6', null],
    [
      'a26161016162820203',
      new Map<string, CborValue>([
        ['b', [2, 3]],
        ['a', 1],
      ]),
    ],
    [
      'a3617a01626161026362626203',
      new Map([
        ['bbb', 3],
        ['aa', 2],
        ['z', 1],
      ]),
    ],
  ])('%s', (hex, value) => {
    expect(toHex(encodeCbor(value))).toBe(hex)
    expect(decodeCbor(bytesOf(hex), limits)).toEqual(value)
  })

  // Goal: bytes that a deterministic encoder would not have written, or of kinds that statements do not use, are
  // refused.
  test.each([
    ['nothing', ''],
    ['trailing byte', '0000'],
    ['zero in two bytes', '1800'],
    ['23 in two bytes', '1817'],
    ['255 in three bytes', '1900ff'],
    ['65535 in five bytes', '1a0000ffff'],
    ['2^32-1 in nine bytes', '1b00000000ffffffff'],
    ['an integer beyond 2^53', '1b0020000000000000'],
    ['the largest integer', '1bffffffffffffffff'],
    ['a negative integer', '20'],
    ['a long text head', '780161'],
    ['an indefinite byte string', '5f4101ff'],
    ['an indefinite text', '7f6161ff'],
    ['an indefinite array', '9f01ff'],
    ['an indefinite map', 'bf616101ff'],
    ['a lone break', 'ff'],
    ['a tag', 'c100'],
    ['a bignum', 'c249010000000000000000'],
    ['a half float', 'f93c00'],
    ['a single float', 'fa47c35000'],
    ['a double float', 'fb3ff199999999999a'],
    ['not a number', 'f97e00'],
    ['false', 'f4'],
    ['true', 'f5'],
    ['undefined', 'f7'],
    ['a simple value', 'f820'],
    ['null in two bytes', 'f816'],
    ['reserved heads', '1c'],
    ['a key that is a number', 'a10102'],
    ['a key that is bytes', 'a1416100'],
    ['a key that is a tag', 'a1c1616100'],
    ['a key twice', 'a2616101616102'],
    ['keys out of order', 'a2616201616102'],
    ['a longer key first', 'a262616101617a02'],
    ['text that is not UTF-8', '61ff'],
    ['an overlong NUL', '62c080'],
    ['a surrogate', '63eda080'],
    ['truncated bytes', '420a'],
    ['truncated text', '6261'],
    ['truncated head', '19ff'],
    ['a missing item', '8201'],
    ['a missing value', 'a16161'],
    ['a missing key', 'a1'],
    ['an array longer than the world', '9b001fffffffffffff'],
    ['a map longer than the world', 'bb001fffffffffffff'],
    ['bytes longer than the world', '5b001fffffffffffff'],
    ['nested too deeply', '8181818100'],
  ])('%s', (_what, hex) => {
    expect(() => decodeCbor(bytesOf(hex), limits)).toThrow(Malformed)
  })

  test('the bounds are met before anything is read', () => {
    // Goal: a large or deep input costs no more than looking at its length or at the depth allowed.
    expect(() => decodeCbor(new Uint8Array(1025), limits)).toThrow('at most 1024')
    expect(() => decodeCbor(new Uint8Array(1024).fill(0x81), limits)).toThrow('nested too deeply')
    expect(decodeCbor(bytesOf('81818100'), limits)).toEqual([[[0]]])
  })

  test('what has no deterministic form is not written', () => {
    // Goal: a float, a negative, an unsafe integer or half a character never becomes bytes.
    for (const value of [1.5, -1, -0, 2 ** 53, Number.NaN, Number.POSITIVE_INFINITY, '\ud800'])
      expect(() => encodeCbor(value)).toThrow(Malformed)
    expect(() => encodeCbor(new Map([['\udfff', 1]]))).toThrow(Malformed)
  })

  test('what is decoded shares no memory with the input', () => {
    // Goal: a caller that reuses its buffer does not change a decoded value, and finds nothing new on it.
    const bytes = bytesOf('4401020304')
    const value = decodeCbor(bytes, limits)
    bytes.fill(0)
    expect(value).toEqual(Uint8Array.of(1, 2, 3, 4))
    expect(Object.keys(bytes)).toEqual(Object.keys(new Uint8Array(bytes.length)))
    expect((value as Uint8Array).buffer.byteLength).toBe(4)
  })

  test('text of every length around a head’s border', () => {
    // Goal: lengths in bytes, not characters, choose the head.
    for (const character of ['a', 'é', '水']) {
      for (let count = 1; count < 300; count += 1) {
        const text = character.repeat(count)
        const bytes = encodeCbor(text)
        const length = new TextEncoder().encode(text).length
        expect(bytes.length).toBe(length + (length < 24 ? 1 : length < 256 ? 2 : 3))
        expect(decodeCbor(bytes, limits)).toBe(text)
      }
    }
  })

  test('hostile bytes', async () => {
    // Goal: whatever is read re-encodes to itself; everything else is Malformed and nothing else.
    const samples = [bytesOf('a26161016162820203'), bytesOf('8301820203820405'), encodeStatement(statementOf('claim'))]
    let readCount = 0
    await fuzz({ samples, count: 4000, sizeBytesMax: 64 }, bytes => {
      const value = readOrMalformed(() => decodeCbor(bytes, limits))
      if (value === undefined) return
      readCount += 1
      expect(toHex(encodeCbor(value))).toBe(toHex(bytes))
    })
    expect(readCount).toBeGreaterThan(0)
  })
})

describe('statements', () => {
  test.each(kinds)('%s comes back as it went in', kind => {
    // Goal: every field survives, and the bytes do not depend on the order in which fields were given.
    const statement = statementOf(kind)
    const bytes = encodeStatement(statement)
    expect(decodeStatement(bytes)).toEqual(statement)
    const reversed = Object.fromEntries(Object.entries(statement).reverse()) as Statement
    expect(toHex(encodeStatement(reversed))).toBe(toHex(bytes))
    expect(reportDataOf(bytes)).toEqual(sha512(bytes))
  })

  test('the bytes of a build statement', () => {
    // Goal: the format never changes by accident: keys in the order of their encodings, lengths and values as written
    // here.
    expect(toHex(encodeStatement(statementOf('build')))).toBe(
      [
        'ac',
        `646b696e64${'656275696c64'}`,
        `65696d616765a2${'646e616d6569696e666572656e6365'}${`6b6d6561737572656d656e745830${'09'.repeat(48)}`}`,
        `656e6f6e6365${'43010203'}`,
        `6573636f7065${'6a6275696c642d6f6e6c79'}`,
        `66666f726d6174${'777374726f6e67726f6f6d2f6174746573742d70712f7631'}`,
        `686973737565644174${'1b000001a1f8d3ea00'}`,
        `6a6b6579734469676573745820${'03'.repeat(32)}`,
        `6b6f70657261746f724b65795830${'04'.repeat(48)}`,
        `6c736f757263654469676573745820${'0b'.repeat(32)}`,
        `6d6e6574776f726b506f6c696379${'646e6f6e65'}`,
        `6e64697370617463684469676573745820${'0c'.repeat(32)}`,
        `7070726f76656e616e63654469676573745820${'0a'.repeat(32)}`,
      ].join(''),
    )
  })

  test('the fields of each kind', () => {
    // Goal: names, types and bounds of fields are deliberate; a change shows up in the golden text.
    const lines = Object.entries(STATEMENT_FIELDS).flatMap(([kind, fields]) =>
      Object.entries(fields).map(([name, field]) => `${kind}.${name} ${JSON.stringify(field)}`),
    )
    expectGolden('statement-fields.txt', `${lines.join('\n')}\n`)
    expect(STATEMENT_LIMITS).toEqual({ sizeBytesMax: 65_536, depthMax: 3 })
    expect([PUBLIC_KEY_BYTES, SIGNATURE_BYTES]).toEqual([
      { ed25519: 32, mldsa65: 1_952, x25519: 32, mlkem768: 1_184 },
      { ed25519: 64, mldsa65: 3_309 },
    ])
  })

  test.each(kinds)('%s with a field missing, added or of another type', kind => {
    // Goal: a statement has exactly the fields of its kind, each of its type and length, on both ways.
    const base: Readonly<Record<string, unknown>> = statementOf(kind)
    for (const [name, { type }] of Object.entries(STATEMENT_FIELDS[kind])) {
      const { [name]: _dropped, ...without } = base
      // Null stands for its absence.
      const isOptional = type.endsWith('-or-absent')
      if (!isOptional) refused(without)
      for (const wrong of [undefined, 1.5, -1, true, {}, [1], 'x'.repeat(30_000), new Uint8Array(65), ['a\0b'], 'a\0b'])
        refused({ ...base, [name]: wrong })
      if (!type.endsWith('-or-null') && !isOptional) refused({ ...base, [name]: null })
      if (type === 'text-or-null') refused({ ...base, [name]: '' })
    }
    refused({ ...base, extra: 'x' })
    refused({ ...base, image: { name: 'x', measurement: new Uint8Array(47) } })
    refused({ ...base, image: { name: 'x', measurement: new Uint8Array(48), extra: 1 } })
    refused({ ...base, image: { measurement: new Uint8Array(48) } })
    for (const other of kinds) if (other !== kind) refused({ ...base, kind: other })
    refused({ ...base, kind: 'toString' })
    refused({ ...base, kind: 'payment' })
    refused({ ...base, format: 'strongroom/attest-pq/v2' })
    refused({ ...base, nonce: new Uint8Array(0) })
  })

  test('a key of its prototype is no field', () => {
    // Goal: names that every JavaScript object has are unknown fields like others.
    const map = new Map(Object.entries(statementOf('claim') as unknown as Record<string, CborValue>))
    map.set('image', new Map<string, CborValue>(Object.entries(statementOf('claim').image)))
    expect(decodeStatement(encodeCbor(map))).toEqual(statementOf('claim'))
    for (const name of ['__proto__', 'constructor', 'hasOwnProperty']) {
      expect(() => decodeStatement(encodeCbor(new Map(map).set(name, 1)))).toThrow('unknown field')
    }
  })

  test('lengths at their borders', () => {
    // Goal: bounds are where the table says, one further is refused.
    const workload = (changes: object) => encodeStatement(statementOf('workload', { ...changes }))
    expect(workload({ target: 'x'.repeat(256) }).length).toBeGreaterThan(256)
    expect(() => workload({ target: 'é'.repeat(129) })).toThrow(Malformed)
    expect(() => workload({ target: '' })).toThrow(Malformed)
    expect(workload({ command: Array(256).fill('') }).length).toBeGreaterThan(256)
    expect(() => workload({ command: Array(257).fill('') })).toThrow(Malformed)
    expect(() => workload({ command: Array(256).fill('x'.repeat(300)) })).toThrow('too long')
    // Heads of five more bytes for each text of 256 bytes and more: the last text fills the statement up to 64 KiB.
    const filler = (last: number) => ({ command: [...Array(15).fill('x'.repeat(4096)), 'y'.repeat(last)] })
    const room = 65_536 - workload(filler(3000)).length
    expect(workload(filler(3000 + room)).length).toBe(65_536)
    expect(decodeStatement(workload(filler(3000 + room))).kind).toBe('workload')
    expect(() => workload(filler(3001 + room))).toThrow('statement: too long')
    expect(decodeStatement(workload({ issuedAt: 0 })).issuedAt).toBe(0)
    for (const issuedAt of [-1, 0.5, 2 ** 53, '0', null])
      expect(() => workload({ issuedAt })).toThrow('statement: issuedAt')
    expect(() => workload({ nonce: new Uint8Array(31) })).toThrow(Malformed)
    expect(workload({ tlsSpkiDigest: null }).length).toBeLessThan(workload({}).length)
    const build = (changes: object) => encodeStatement(statementOf('build', { ...changes }))
    expect(decodeStatement(build({ nonce: new Uint8Array(16) })).kind).toBe('build')
    expect(() => build({ nonce: new Uint8Array(17) })).toThrow(Malformed)
    expect(() => build({ nonce: new Uint8Array(0) })).toThrow(Malformed)
    // The same bytes, one zero longer, are another nonce.
    const [short, long] = [build({ nonce: new Uint8Array(1) }), build({ nonce: new Uint8Array(2) })]
    expect(toHex(reportDataOf(short))).not.toBe(toHex(reportDataOf(long)))
    expect(() => decodeStatement(new Uint8Array(STATEMENT_LIMITS.sizeBytesMax + 1))).toThrow(Malformed)
  })

  test('hostile bytes', async () => {
    // Goal: whatever is read as a statement re-encodes to itself; everything else is Malformed and nothing else.
    const samples = kinds.map(kind => encodeStatement(statementOf(kind)))
    let readCount = 0
    await fuzz({ samples, count: 3000, sizeBytesMax: 128 }, bytes => {
      const statement = readOrMalformed(() => decodeStatement(bytes))
      if (statement === undefined) return
      readCount += 1
      expect(toHex(encodeStatement(statement))).toBe(toHex(bytes))
    })
    expect(readCount).toBeGreaterThan(0)
  })
})

/** Neither written, nor read where CBOR can say it. */
function refused(fields: Readonly<Record<string, unknown>>): void {
  expect(() => encodeStatement(fields as unknown as Statement)).toThrow(Malformed)
  const bytes = readOrMalformed(() => encodeCbor(mapOf(fields)))
  if (bytes !== undefined) expect(() => decodeStatement(bytes)).toThrow(Malformed)
}

function mapOf(fields: Readonly<Record<string, unknown>>): ReadonlyMap<string, CborValue> {
  const entries = Object.entries(fields).map(([name, value]): [string, CborValue] => {
    if (value === undefined || typeof value === 'boolean') return [name, new Map()]
    const isPlain = typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
    return [name, isPlain ? mapOf(value as Record<string, unknown>) : (value as CborValue)]
  })
  return new Map(entries)
}

/** Undefined for Malformed; anything else that is thrown goes on. */
function readOrMalformed<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (error instanceof Malformed) return undefined
    throw error
  }
}

// Goal: a claim of a VM that drew no gateway key, as those of the former release, has the bytes of before.
test('the digest of a gateway key is in a claim where the VM drew one, and else leaves no trace', () => {
  const { gatewayKeyDigest: digest, ...former } = statementOf('claim') as Extract<Statement, { kind: 'claim' }>
  expect(digest).toEqual(new Uint8Array(32).fill(15))
  const without = encodeStatement({ ...former, gatewayKeyDigest: null })
  const map = decodeCbor(without, STATEMENT_LIMITS)
  if (!(map instanceof Map)) throw new Error('a statement is a map')
  expect(map.has('gatewayKeyDigest')).toBe(false)
  expect(decodeStatement(without)).toEqual({ ...former, gatewayKeyDigest: null })
  for (const value of [null, new Uint8Array(31), 'x']) {
    expect(() => decodeStatement(encodeCbor(new Map([...map, ['gatewayKeyDigest', value]])))).toThrow(Malformed)
  }
})

// Goal: a claim of a VM whose keys no order has changed has the bytes of before, and there is no second form.
test('all keys that log in are in a claim where an order changed them, and else leave no trace', () => {
  const { loginKeys: keys, ...former } = statementOf('claim') as Extract<Statement, { kind: 'claim' }>
  expect(keys).toEqual([`SHA256:${'A'.repeat(43)}`])
  const without = encodeStatement({ ...former, loginKeys: null })
  const map = decodeCbor(without, STATEMENT_LIMITS)
  if (!(map instanceof Map)) throw new Error('a statement is a map')
  expect(map.has('loginKeys')).toBe(false)
  expect(decodeStatement(without)).toEqual({ ...former, loginKeys: null })
  const most = Array.from({ length: 16 }, () => 'x'.repeat(50))
  expect(decodeStatement(encodeStatement({ ...former, loginKeys: most }))).toEqual({ ...former, loginKeys: most })
  for (const value of [null, [], [...most, 'x'], ['x'.repeat(51)], 'x', [1]]) {
    expect(() => decodeStatement(encodeCbor(new Map([...map, ['loginKeys', value as never]])))).toThrow(Malformed)
  }
})

// Goal: a claim of a VM that restricts nothing has the bytes of before, and there is no second form.
test('the policy of egress is in a claim where the VM enforces one, and else leaves no trace', () => {
  const former = { ...(statementOf('claim') as Extract<Statement, { kind: 'claim' }>), egressPolicy: null }
  const map = decodeCbor(encodeStatement(former), STATEMENT_LIMITS)
  if (!(map instanceof Map)) throw new Error('a statement is a map')
  expect(decodeStatement(encodeStatement(former))).toEqual(former)
  expect(map.has('egressPolicy')).toBe(false)
  const most = 'x'.repeat(20_480)
  expect(decodeStatement(encodeStatement({ ...former, egressPolicy: most }))).toEqual({ ...former, egressPolicy: most })
  for (const value of [null, '', `${most}x`, [most], new Uint8Array(1)]) {
    expect(() => decodeStatement(encodeCbor(new Map([...map, ['egressPolicy', value]])))).toThrow(Malformed)
  }
})

// Goal: a claim of a VM without secrets has the bytes of before, and there is no second form.
test('secrets are in a claim where an order put them, without values, and else leave no trace', () => {
  const { secrets, ...former } = statementOf('claim') as Extract<Statement, { kind: 'claim' }>
  expect(secrets).toHaveLength(1)
  const without = encodeStatement({ ...former, secrets: null })
  const map = decodeCbor(without, STATEMENT_LIMITS)
  if (!(map instanceof Map)) throw new Error('a statement is a map')
  expect(map.has('secrets')).toBe(false)
  const most = Array.from({ length: 32 }, () => 'x'.repeat(1_024))
  expect(decodeStatement(encodeStatement({ ...former, secrets: most }))).toEqual({ ...former, secrets: most })
  for (const value of [null, [], [...most, 'x'], ['x'.repeat(1_025)], 'x']) {
    expect(() => decodeStatement(encodeCbor(new Map([...map, ['secrets', value as never]])))).toThrow(Malformed)
  }
})

// Goal: a statement of a worker without GPUs has the bytes of before there were any, and no second form.
test('evidence of GPUs is in a statement where there is some, and else leaves no trace', () => {
  const { gpuEvidenceDigest, ...former } = statementOf('workload') as Extract<Statement, { kind: 'workload' }>
  expect(gpuEvidenceDigest).toBeNull()
  const without = encodeStatement({ ...former, gpuEvidenceDigest: null })
  const map = decodeCbor(without, STATEMENT_LIMITS)
  if (!(map instanceof Map)) throw new Error('a statement is a map')
  expect(map.has('gpuEvidenceDigest')).toBe(false)
  expect(decodeStatement(without)).toEqual({ ...former, gpuEvidenceDigest: null })
  const digest = new Uint8Array(32).fill(3)
  const bytes = encodeStatement({ ...former, gpuEvidenceDigest: digest })
  expect(decodeStatement(bytes)).toEqual({ ...former, gpuEvidenceDigest: digest })
  for (const value of [null, new Uint8Array(31), 'x']) {
    expect(() => decodeStatement(encodeCbor(new Map([...map, ['gpuEvidenceDigest', value]])))).toThrow(Malformed)
  }
})
