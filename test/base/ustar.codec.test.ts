// Tar headers and pax records against the layout of POSIX and against archives that another writer made, byte by byte.

import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { paxRecord, tarHeader } from '../../scripts/rigs/archive-bytes.ts'
import { utf8 } from '../../src/base/bytes.ts'
import {
  decodePax,
  decodeUstar,
  encodePax,
  encodeUstar,
  looksLikeTar,
  type NewUstarHeader,
  tarBlockBytes,
  tarPaddingBytes,
  USTAR,
  ustarPath,
  ustarSizeBytesEnd,
} from '../../src/base/ustar.codec.ts'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')
const plain: NewUstarHeader = {
  name: 'a',
  prefix: '',
  type: '0',
  mode: 0o644,
  sizeBytes: 5,
  mtimeSeconds: 0,
  linkName: '',
}

test('the fields of a header follow each other without a gap, up to 12 bytes of padding', () => {
  // Goal: the table is POSIX's.
  let at = 0
  const fields: readonly (readonly [number, number])[] = Object.values(USTAR)
  for (const [offset, sizeBytes] of fields) {
    expect(offset).toBe(at)
    at += sizeBytes
  }
  expect(at).toBe(tarBlockBytes - 12)
})

describe('a header', () => {
  test('reads as it was written', () => {
    // Goal: what this side packs is what the other side unpacks, for every path that has a place.
    const component = fc.stringMatching(/^[a-zé]{1,60}$/)
    const path = fc.array(component, { minLength: 1, maxLength: 5 }).map(parts => parts.join('/'))
    fc.assert(
      fc.property(path, fc.nat(0o7777), fc.nat(2 ** 31 - 1), (name, mode, sizeBytes) => {
        const place = ustarPath(name)
        if (place === null) return utf8(name).length > USTAR.name[1]
        const read = decodeUstar(encodeUstar({ ...plain, ...place, mode, sizeBytes }))
        if (read.kind !== 'header') return false
        const { header } = read
        return (
          text(header.name) === name && header.mode === mode && header.sizeBytes === sizeBytes && header.type === '0'
        )
      }),
    )
  })

  test('is what other writers make of it', () => {
    // Goal: `tar` lists what is packed here; checked against the system's own.
    const header = encodeUstar({ ...plain, name: 'b', prefix: 'p'.repeat(155), sizeBytes: 0, mtimeSeconds: 1_000_000 })
    const archive = Buffer.concat([header, new Uint8Array(2 * tarBlockBytes)])
    const listed = Bun.spawnSync(
      ['tar', '--list', '--verbose', '--utc', '--full-time', '--numeric-owner', '--file=-'],
      {
        stdin: archive,
      },
    )
    expect(listed.stderr.toString()).toBe('')
    expect(listed.stdout.toString().trim()).toMatch(
      new RegExp(`^-rw-r--r-- 0/0 +0 1970-01-12 13:46:40 ${'p'.repeat(155)}/b$`),
    )
  })

  test('is refused with one bit flipped anywhere', () => {
    // Goal: damage and content are distinct.
    const sound = encodeUstar(plain)
    for (let at = 0; at < tarBlockBytes; at += 1) {
      const block = sound.slice()
      block[at] = (block[at] ?? 0) ^ 1
      expect([at, decodeUstar(block).kind === 'header']).toEqual([at, false])
    }
  })

  test('of another format, or with numbers that are none, says so', () => {
    // Goal: its reader decides what a blank or malformed number comes to, and never gets NaN.
    expect(decodeUstar(tarHeader({ name: 'a', magic: '' }))).toEqual({ kind: 'no-magic' })
    expect(decodeUstar(new Uint8Array(tarBlockBytes))).toEqual({ kind: 'empty' })
    expect(decodeUstar(tarHeader({ name: 'a', checksum: '        ' }))).toEqual({ kind: 'wrong-checksum' })
    const numbersOf = (size: string, mode: string) => {
      const read = decodeUstar(tarHeader({ name: 'a', size, mode }))
      return read.kind === 'header' ? [read.header.sizeBytes, read.header.mode] : []
    }
    expect(numbersOf('  17 ', '   \0')).toEqual([15, 'blank'])
    expect(numbersOf('\x80\0\0\0\0\0\0\0\0\0\0\x01', '8')).toEqual(['malformed', 'malformed'])
    expect(numbersOf('1 1', '-1')).toEqual(['malformed', 'malformed'])
  })

  test("of GNU's format has no prefix", () => {
    // Goal: times that GNU tar writes there do not become a directory.
    const [posix, gnu] = ['ustar\x0000', 'ustar  \0'].map(magic =>
      decodeUstar(tarHeader({ name: 'a', prefix: '15000000000', magic })),
    )
    expect([posix, gnu].map(read => (read?.kind === 'header' ? text(read.header.name) : ''))).toEqual([
      '15000000000/a',
      'a',
    ])
  })

  test('takes no more than fits', () => {
    // Goal: nothing that is written runs over into the next field.
    const wrong: Partial<NewUstarHeader>[] = [
      { name: 'a'.repeat(101) },
      { linkName: 'a'.repeat(101) },
      { prefix: 'a'.repeat(156) },
      { sizeBytes: ustarSizeBytesEnd },
      { mode: 0o10_000_000 },
    ]
    for (const change of wrong) expect(() => encodeUstar({ ...plain, ...change })).toThrow('fits')
    expect(decodeUstar(encodeUstar({ ...plain, sizeBytes: ustarSizeBytesEnd - 1 }))).toMatchObject({
      header: { sizeBytes: ustarSizeBytesEnd - 1 },
    })
  })
})

test('a path has its place, or none', () => {
  // Goal: the split is at a slash, both parts fit, and no path is cut.
  expect(ustarPath('a'.repeat(100))).toEqual({ prefix: '', name: 'a'.repeat(100) })
  expect(ustarPath('a'.repeat(101))).toBeNull()
  expect(ustarPath(`${'a'.repeat(155)}/${'b'.repeat(100)}`)).toEqual({ prefix: 'a'.repeat(155), name: 'b'.repeat(100) })
  expect(ustarPath(`${'a'.repeat(156)}/b`)).toBeNull()
  expect(ustarPath(`${'a'.repeat(101)}/`)).toBeNull()
})

test('pax records read as they were written, and no other way', () => {
  // Goal: a length that lies moves no boundary.
  const records = [
    ['path', 'é'.repeat(200)],
    ['comment', ''],
    ['linkpath', 'a=b\nc'],
  ] as const
  const bytes = Buffer.concat(records.map(([key, value]) => encodePax(key, value)))
  expect(bytes.toString()).toBe(records.map(([key, value]) => paxRecord(key, value)).join(''))
  expect(decodePax(bytes)?.map(([key, value]) => [key, text(value)])).toEqual(records.map(record => [...record]))
  const broken = ['8 path=a\n', '11 path=a\n', '9 path=a', '0 a=b\n', '-5 a=b\n', '6 ab=\n7', '8 a b c\n', '4 a\n=']
  expect(broken.map(text => decodePax(utf8(text)))).toEqual(broken.map(() => null))
  expect([decodePax(utf8('')), decodePax(utf8('9 path=a\n'))]).toEqual([[], [['path', utf8('a')]]])
})

test('a tar is told by its magic, and content is padded to a block', () => {
  // Goal: what is shorter than a header is no tar.
  expect([looksLikeTar(encodeUstar(plain)), looksLikeTar(encodeUstar(plain).subarray(0, 261))]).toEqual([true, false])
  expect([0, 1, 511, 512, 513].map(tarPaddingBytes)).toEqual([0, 511, 1, 0, 511])
})
