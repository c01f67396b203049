// Goal: notes, checkpoints and proofs of a log are read and written as other tools do, counted by keys that are known
// alone, and refused where they are not whole.

import { describe, expect, test } from 'bun:test'
import { decodeCheckpoint, encodeCheckpoint, verifiedSigners } from '../../../src/attest/log/checkpoint.ts'
import { inclusionProof, isIncluded, leafHash, nodeHash, rootOf } from '../../../src/attest/log/merkle.ts'
import { decodeNote, decodeNoteKey, encodeNote, encodeNoteKey, noteBytesMax } from '../../../src/attest/log/note.ts'
import { decodeLogProof, encodeLogProof } from '../../../src/attest/log/proof.ts'
import { decodeEntries, encodeEntries, tileAt, tilePath, tileWidth } from '../../../src/attest/log/tiles.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { newSigner, signedBy } from '../../rigs/log/log-signer.ts'

/** Key and note of the documentation of Go's package note. */
const neumann = decodeNoteKey('PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW')
const neumannNote = `If you think cryptography is the answer to your problem,
then you don't know what your problem is.

— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=
`

const log = newSigner('log.example/a', 'ed25519')
const witness = newSigner('witness.example/w1', 'cosignature')
const root = leafHash(utf8('x'))
const text = encodeCheckpoint({ origin: 'log.example/a', size: 1, root, extensions: [] })
const whole = { text, signatures: [signedBy(log, text), signedBy(witness, text, 1_700_000_000_000)] }

describe('notes', () => {
  test('goal: a note of another tool verifies, byte for byte, and no other text does', async () => {
    const note = decodeNote(utf8(neumannNote))
    expect(encodeNote(note)).toBe(neumannNote)
    expect(await verifiedSigners(note, [neumann])).toEqual([{ key: neumann, atMs: null }])
    expect(await verifiedSigners({ ...note, text: `${note.text}!` }, [neumann])).toEqual([])
    expect(encodeNoteKey(neumann)).toStartWith('PeterNeumann+c74f20a3+')
  })

  test('goal: only keys that are known count, each by name, ID, type and signature', async () => {
    const note = decodeNote(utf8(encodeNote(whole)))
    const both = await verifiedSigners(note, [log.key, witness.key])
    expect(both.map(({ key, atMs }) => [key.name, atMs])).toEqual([
      ['log.example/a', null],
      ['witness.example/w1', 1_700_000_000_000],
    ])
    const others = [newSigner('log.example/a', 'ed25519').key, { ...witness.key, name: 'witness.example/w2' }]
    expect(await verifiedSigners(note, [...others, { ...witness.key, type: 'ed25519' }])).toEqual([])
    const [, cosigned] = whole.signatures
    if (cosigned === undefined) throw new Error('a cosignature')
    const later = { ...cosigned, signature: cosigned.signature.with(7, 1) }
    expect(await verifiedSigners({ text, signatures: [later] }, [witness.key])).toEqual([])
    const again = { text, signatures: [cosigned, signedBy(witness, text, 1_800_000_000_000)] }
    expect((await verifiedSigners(again, [witness.key]))[0]?.atMs).toBe(1_800_000_000_000)
  })

  // Goal: a note is refused as a whole where anything of it is not as the specification says.
  test.each([
    ['no empty line', 'a\n— b AAAAAAA=\n'],
    ['no last newline', neumannNote.slice(0, -1)],
    ['a line that is no signature', `${neumannNote}x\n`],
    ['a control character', neumannNote.replace('answer', 'ans\twer')],
    ['a name with a plus', neumannNote.replace('— PeterNeumann', '— Peter+Neumann')],
    ['a signature without bytes', 'a\n\n— b AAAAAA==\n'],
    ['too many signatures', `a\n\n${'— b AAAAAAA=\n'.repeat(65)}`],
    ['too long', `${'a'.repeat(noteBytesMax)}\n\n— b AAAAAAA=\n`],
  ])('goal: a note with %s is refused', (_, bad) => {
    expect(() => decodeNote(utf8(bad))).toThrow(Malformed)
  })

  // Goal: a key counts only with the ID that belongs to it.
  test.each([
    'a+00000000+AQ==',
    'PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW',
    'a',
    '+c74f20a3+AQ==',
  ])('goal: the key %s is refused', bad => {
    expect(() => decodeNoteKey(bad)).toThrow(Malformed)
  })
})

describe('checkpoints', () => {
  test('goal: origin, size, root and further lines come back as they were', () => {
    const checkpoint = { origin: 'log.example/a', size: 20_852_163, root, extensions: ['b', 'c d'] }
    expect(decodeCheckpoint(encodeCheckpoint(checkpoint))).toEqual(checkpoint)
  })

  // Goal: a checkpoint has one spelling, and sizes that count exactly.
  test.each([
    'a\n1\n',
    'a\n01\nAAAA\n',
    `a\n-1\n${text.split('\n')[2]}\n`,
    `a\n9007199254740993\n${text.split('\n')[2]}\n`,
    `a\n1\n${text.split('\n')[2]}\n\nb\n`,
    `a\n1\n${text.split('\n')[2]}`,
    `\n1\n${text.split('\n')[2]}\n`,
  ])('goal: %j is refused', bad => {
    expect(() => decodeCheckpoint(bad)).toThrow(Malformed)
  })
})

describe('proofs', () => {
  const leaves = ['a', 'b', 'c', 'd', 'e'].map(entry => leafHash(utf8(entry)))
  const read = (level: number, index: number): Uint8Array =>
    level === 0 ? (leaves[index] as Uint8Array) : nodeHash(read(level - 1, 2 * index), read(level - 1, 2 * index + 1))

  test('goal: index, hashes and checkpoint come back, and show that the entry is in the log', () => {
    const head = { size: 5, root: rootOf(5, read) }
    const own = encodeCheckpoint({ origin: 'log.example/a', ...head, extensions: [] })
    const proof = {
      index: 2,
      hashes: inclusionProof(2, 5, read),
      note: { text: own, signatures: [signedBy(log, own)] },
    }
    const back = decodeLogProof(utf8(encodeLogProof(proof)))
    expect(back).toEqual(proof)
    const checkpoint = decodeCheckpoint(back.note.text)
    expect(isIncluded({ index: back.index, leaf: leafHash(utf8('c')), proof: back.hashes }, checkpoint)).toBe(true)
    expect(isIncluded({ index: back.index, leaf: leafHash(utf8('d')), proof: back.hashes }, checkpoint)).toBe(false)
    const withExtra = encodeLogProof(proof).replace('\nindex', '\nextra AAAA\nindex')
    expect(decodeLogProof(utf8(withExtra))).toEqual(proof)
    for (const bad of [
      encodeLogProof(proof).replace('@v1', '@v2'),
      encodeLogProof(proof).replace('index 2', 'index 02'),
      encodeLogProof(proof).replace('index 2\n', 'index 2\nAAAA\n'),
      encodeLogProof(proof).replace(
        'index 2\n',
        `index 2\n${'A'.repeat(43)}=\n`.repeat(1) + `${'A'.repeat(43)}=\n`.repeat(106),
      ),
      encodeLogProof(proof).replace(`\n\n${own}`, `\n${own}`),
    ])
      expect(() => decodeLogProof(utf8(bad))).toThrow(Malformed)
  })
})

describe('tiles', () => {
  test('goal: paths are those of the specification, and each tile has one', () => {
    expect(tilePath({ level: 0, index: 1_234_067, width: 256 })).toBe('tile/0/x001/x234/067')
    expect(tilePath({ level: 'entries', index: 5, width: 112 })).toBe('tile/entries/005.p/112')
    for (const path of ['tile/0/000', 'tile/2/x001/x234/067.p/8', 'tile/entries/x001/000']) {
      expect([path, tilePath(tileAt(path) ?? { level: 0, index: 0, width: 0 })]).toEqual([path, path])
    }
    const bad = [
      'tile/0/1',
      'tile/0/x000/001',
      'tile/00/001',
      'tile/7/001',
      'tile/0/001.p/0',
      'tile/0/001.p/256',
      '../a',
    ]
    expect(bad.map(tileAt)).toEqual(bad.map(() => null))
  })

  test('goal: a tree of 70,000 has the tiles that the specification counts', () => {
    const widths = (level: number, count: number) =>
      Array.from({ length: count }, (_, index) => tileWidth(70_000, { level, index }))
    expect(widths(0, 275)).toEqual([...new Array(273).fill(256), 112, 0])
    expect(widths(1, 3)).toEqual([256, 17, 0])
    expect(widths(2, 2)).toEqual([1, 0])
    expect([tileWidth(256, { level: 0, index: 0 }), tileWidth(256, { level: 1, index: 0 })]).toEqual([256, 1])
  })

  test('goal: bundles of entries come back, and a cut one is refused', () => {
    const entries = [utf8(''), utf8('a'), new Uint8Array(65_535)]
    const bundle = encodeEntries(entries)
    expect(decodeEntries(bundle, 3).map(toHex)).toEqual(entries.map(toHex))
    for (const [bytes, count] of [
      [bundle, 2],
      [bundle, 4],
      [bundle.subarray(1), 3],
      [bundle.subarray(0, -1), 3],
    ] as const)
      expect(() => decodeEntries(bytes, count)).toThrow(Malformed)
    expect(() => encodeEntries([new Uint8Array(65_536)])).toThrow(Malformed)
  })
})
