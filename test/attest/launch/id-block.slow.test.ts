// ID blocks against a vector made elsewhere, against our own signatures, and against tampering.

import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import {
  ID_AUTH,
  ID_BLOCK,
  ID_SIGNATURE,
  readIdAuth,
  readIdBlock,
  writeIdAuth,
  writeIdBlock,
  writeIdSignature,
} from '../../../src/attest/launch/id-block.ts'
import { publicIdKey, signIdBlock } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest, verifyIdBlock } from '../../../src/attest/launch/id-block-verify.ts'
import { ID_KEY } from '../../../src/attest/launch/id-key.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { fromBase64, toBase64, toHex } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const vector = (name: string) => new Uint8Array(readFileSync(`${import.meta.dir}/../../vectors/id-block/${name}`))
const text =
  'oU1jg0HlZ0Yo/h4C++3r5eWrT68d1y2JZgaOYVu5nv0T0hSzXCMXFbOOJj3GBZdFAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAAAAwAAAAAA'
const idBlock = fromBase64(text) ?? new Uint8Array(0)
const idAuth = vector('test_auth_block.bin')

const generate = () => crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, false, ['sign', 'verify'])
const outcomes = async (block: Uint8Array, auth: Uint8Array, author: 'required' | 'any' = 'required') =>
  (await verifyIdBlock({ idBlock: block, idAuth: auth, author })).checks.map(({ name, outcome }) => [name, outcome])
const blockPass = ['id-block-signature', 'pass']
const keyPass = ['id-key-signature', 'pass']
const bothPass = [blockPass, keyPass]

describe('the vector', () => {
  // Goal: both signatures verify, the digests are those the report would name, and the codec gives the same bytes
  // again.
  test('verifies', async () => {
    const verdict = await verifyIdBlock({ idBlock, idAuth, author: 'required' })
    expect(verdict.ok).toBe(true)
    expect(toHex(verdict.idKeyDigest ?? idBlock)).toMatch(/^59fb2c68.*fe2$/)
    expect(toHex(verdict.authorKeyDigest ?? idBlock)).toMatch(/^eed81169.*6c5f$/)
    expect(toBase64(writeIdBlock(readIdBlock(idBlock)))).toBe(text)
    expect(readIdBlock(idBlock)).toMatchObject({ guestSvn: 0, policy: 0x30000n })
    const auth = readIdAuth(idAuth)
    expect(writeIdAuth(auth)).toEqual(idAuth)
    expect(writeIdSignature(auth.idSignature)).toEqual(vector('test_id_sig.bin'))
    expect(writeIdSignature(auth.author?.signature ?? auth.idSignature)).toEqual(vector('test_auth_sig.bin'))
  })

  // Goal: no byte of either page can be changed without a failed check, and nothing throws.
  test('tampered with at every byte', async () => {
    for (const [source, which] of [
      [idBlock, 'block'],
      [idAuth, 'auth'],
    ] as const)
      for (let at = 0; at < source.length; at += 1) {
        const changed = source.slice()
        changed[at] = (changed[at] ?? 0) ^ (1 << (at % 8))
        const block = which === 'block' ? changed : idBlock
        const { ok } = await verifyIdBlock({
          idBlock: block,
          idAuth: which === 'auth' ? changed : idAuth,
          author: 'any',
        })
        if (ok) throw new Error(`byte ${at} of the ${which} may be changed`)
      }
  }, 60_000)

  // Goal: lengths are exact.
  test('cut and extended', async () => {
    const longer = (bytes: Uint8Array) => Uint8Array.from([...bytes, 0])
    for (const [block, auth] of [
      [idBlock.subarray(1), idAuth],
      [longer(idBlock), idAuth],
      [idBlock, idAuth.subarray(1)],
      [idBlock, longer(idAuth)],
    ] as const)
      expect(await outcomes(block, auth)).toEqual([['id-block-format', 'fail']])
  })
})

describe('our own', () => {
  const block = readIdBlock(idBlock)

  // Goal: what we sign verifies, with and without an author; an author that is demanded must be there.
  test('signatures', async () => {
    const [idKey, authorKey] = await Promise.all([generate(), generate()])
    const authored = await signIdBlock(block, { idKey, authorKey })
    expect(authored.idBlock).toEqual(idBlock)
    expect(await outcomes(authored.idBlock, authored.idAuth)).toEqual(bothPass)
    const digest = await idKeyDigest(await publicIdKey(idKey.publicKey))
    const { idKeyDigest: named } = await verifyIdBlock({ ...authored, author: 'required' })
    expect(named).toEqual(digest)
    const alone = await signIdBlock(block, { idKey })
    expect((await verifyIdBlock({ ...alone, author: 'any' })).ok).toBe(true)
    expect(await outcomes(alone.idBlock, alone.idAuth)).toEqual([
      ['id-block-signature', 'pass'],
      ['id-key-signature', 'fail'],
    ])
    expect(readIdAuth(alone.idAuth).author).toBeNull()
  })

  // Goal: signatures and keys of different pairs do not go together.
  test('signatures of others', async () => {
    const [pair, two] = await Promise.all([generate(), generate()])
    const a = await signIdBlock(block, { idKey: pair, authorKey: two })
    const b = await signIdBlock(block, { idKey: two, authorKey: pair })
    const mixed = writeIdAuth({ ...a.auth, idSignature: b.auth.idSignature })
    expect(await outcomes(idBlock, mixed)).toEqual([['id-block-signature', 'fail'], keyPass])
    const stolen = writeIdAuth({ ...a.auth, author: b.auth.author })
    expect(await outcomes(idBlock, stolen)).toEqual([blockPass, ['id-key-signature', 'fail']])
    const other = writeIdBlock({ ...block, guestSvn: 1 })
    expect(await outcomes(other, a.idAuth)).toEqual([['id-block-signature', 'fail'], keyPass])
  })

  // Goal: keys of another curve are refused before anything is signed with them.
  test('keys of another curve', async () => {
    const algorithm = { name: 'ECDSA', namedCurve: 'P-256' }
    const idKey = await crypto.subtle.generateKey(algorithm, false, ['sign', 'verify'])
    await expect(signIdBlock(block, { idKey })).rejects.toBeInstanceOf(Malformed)
  })
})

// Goal: the layouts have no gap and no overlap.
test('layouts', () => {
  for (const [layout, total] of [
    [ID_BLOCK, 96],
    [ID_AUTH, 4096],
    [ID_KEY, 0x404],
    [ID_SIGNATURE, 512],
  ] as const) {
    let end = 0
    for (const [offset, sizeBytes] of Object.values(layout)) {
      expect(offset).toBe(end)
      end += sizeBytes
    }
    expect(end).toBe(total)
  }
})

// Goal: hostile pages give a verdict that is not good, and never an exception.
test('hostile input', async () => {
  await fuzz({ samples: [idAuth, idBlock], count: 1500, sizeBytesMax: 5000 }, async input => {
    const isSame = (bytes: Uint8Array) => toHex(bytes) === toHex(input)
    if (isSame(idAuth) || isSame(idBlock)) return
    const verdict = await verifyIdBlock({ idBlock, idAuth: input, author: 'any' })
    const two = await verifyIdBlock({ idBlock: input, idAuth, author: 'any' })
    if (verdict.ok || two.ok) throw new Error('a mutation verifies')
  })
}, 60_000)
