// Goal: `strongroom id-block create` writes what firmware takes, or nothing; `check` and `verify id-block` are one.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { createPublicKey, generateKeyPairSync, verify as verifySignature } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sha384 } from '../../../src/attest/hash.ts'
import { fromBase64, toHex } from '../../../src/base/bytes.ts'
import { expectUsageError, runHere, vectors } from '../../rigs/program.ts'

let dir: string
let idKey: string
let authorKey: string
let outputs: string[]
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'srt-id-block-'))
  idKey = keyFile('id-key.pem')
  authorKey = keyFile('author-key.pem')
  outputs = ['--out-id-block', join(dir, 'block.bin'), '--out-id-auth', join(dir, 'auth.bin')]
})
afterEach(() => rmSync(dir, { recursive: true }))

function file(name: string, content: string | Uint8Array): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

function keyFile(name: string, namedCurve = 'P-384', type: 'pkcs8' | 'sec1' = 'pkcs8'): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve })
  return file(name, privateKey.export({ format: 'pem', type }).toString())
}

async function runJson(...argv: string[]) {
  const { code, stdout, stderr } = await runHere([...argv, '--json'])
  expect([argv, stderr]).toEqual([argv, ''])
  return { code, document: JSON.parse(stdout) }
}

const read = (name: string) => new Uint8Array(readFileSync(join(dir, name)))

/** The block of the vector that was made elsewhere. */
const vectorBlock =
  fromBase64(
    'oU1jg0HlZ0Yo/h4C++3r5eWrT68d1y2JZgaOYVu5nv0T0hSzXCMXFbOOJj3GBZdFAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAAAAwAAAAAA',
  ) ?? new Uint8Array(0)
const measurement = toHex(vectorBlock.subarray(0, 48))
const create = (...more: string[]) => ['id-block', 'create', '--id-key', idKey, ...outputs, ...more]

/** A number of a structure, big-endian: 48 bytes that stand in it in the other order. */
const number = (bytes: Uint8Array, at: number) => Buffer.from(bytes.subarray(at, at + 48)).reverse()

/** By node:crypto and the offsets of AMD 56860 rev 1.58, table 77, without our codec. */
function isSigned(message: Uint8Array, auth: Uint8Array, at: { signature: number; key: string }): boolean {
  const signature = Buffer.concat([number(auth, at.signature), number(auth, at.signature + 72)])
  const key = createPublicKey(readFileSync(at.key))
  return verifySignature('sha384', message, { key, dsaEncoding: 'ieee-p1363' }, signature)
}

test('goal: the block is byte for byte that of another tool, and node:crypto finds both signatures good', async () => {
  const { code, document } = await runJson(...create('--measurement', measurement, '--author-key', authorKey))
  const [block, auth] = [read('block.bin'), read('auth.bin')]
  expect([code, block.length, auth.length]).toEqual([0, 96, 4096])
  expect(toHex(block)).toBe(toHex(vectorBlock))
  expect(isSigned(block, auth, { signature: 0x40, key: idKey })).toBe(true)
  expect(isSigned(auth.subarray(0x240, 0x240 + 0x404), auth, { signature: 0x680, key: authorKey })).toBe(true)
  expect(isSigned(block.with(0, 1), auth, { signature: 0x40, key: idKey })).toBe(false)
  const point = createPublicKey(readFileSync(idKey)).export({ format: 'jwk' })
  expect([number(auth, 0x244).toString('base64url'), number(auth, 0x28c).toString('base64url')]).toEqual([
    String(point.x),
    String(point.y),
  ])
  expect(document).toEqual({
    id_block: join(dir, 'block.bin'),
    id_auth: join(dir, 'auth.bin'),
    measurement,
    policy: '0x30000',
    family_id: '0'.repeat(32),
    image_id: '0'.repeat(32),
    guest_svn: 0,
    id_key_digest: toHex(sha384(auth.subarray(0x240, 0x240 + 0x404))),
    author_key_digest: toHex(sha384(auth.subarray(0x880, 0x880 + 0x404))),
  })
})

test('goal: what was made is found good by `check` and by `verify id-block`, in the same words', async () => {
  const family = '0123456789abcdef0123456789abcdef'
  const ids = ['--family-id', family, '--image-id', family.toUpperCase(), '--guest-svn', '0xffffffff']
  const made = await runJson(...create('--measurement', measurement, '--policy', '0xb0000', ...ids))
  expect(made.document).toMatchObject({ family_id: family, image_id: family, guest_svn: 0xffffffff, policy: '0xb0000' })
  const block = read('block.bin')
  expect(toHex(block.subarray(0x30))).toBe(`${family}${family}01000000ffffffff00000b0000000000`)
  const files = ['--id-block', join(dir, 'block.bin'), '--id-auth', join(dir, 'auth.bin')]
  const [check, verify] = await Promise.all([
    runHere(['id-block', 'check', ...files]),
    runHere(['verify', 'id-block', ...files]),
  ])
  expect(check).toEqual(verify)
  expect([check.code, check.stdout]).toEqual([
    0,
    expect.stringContaining(`id_key_digest: ${made.document.id_key_digest}\nauthor_key_digest: none\n`),
  ])
  const required = await runHere(['id-block', 'check', ...files, '--require-author'])
  expect([required.code, required.stdout]).toEqual([1, expect.stringContaining('FAIL id-key-signature: no author key')])
  const vector = ['--id-block', file('v.bin', vectorBlock), '--id-auth', join(vectors, 'id-block/test_auth_block.bin')]
  expect((await runHere(['id-block', 'check', ...vector, '--require-author'])).code).toBe(0)
  // QEMU takes both as base64, in one line; other tools break it.
  const base64 = (name: string) => Buffer.from(read(name)).toString('base64')
  const lines = base64('auth.bin').replaceAll(/.{64}/g, '$&\r\n')
  const texts = (auth: string) => [
    '--id-block',
    file('b.txt', `${base64('block.bin')}\n`),
    '--id-auth',
    file('a.txt', auth),
  ]
  expect(await runHere(['id-block', 'check', ...texts(lines)])).toEqual(check)
  for (const wrong of [lines.slice(4), `${lines}AAAA`, lines.replace(/^./, '*')]) {
    const { code, stdout } = await runHere(['id-block', 'check', ...texts(wrong)])
    expect([code, stdout]).toEqual([2, expect.stringContaining('FAIL')])
  }
})

test('goal: the digest may come from a document of `measure`, but not from one that was not as expected', async () => {
  const inputs = join(vectors, 'launch-digest/bare-metal-milan.inputs.json')
  const measured = await runHere(['measure', 'ovmf', '--inputs', inputs, '--json'])
  const document = JSON.parse(measured.stdout)
  expect(document.digest).toStartWith('7f51e17f')
  const launch = file('launch.json', measured.stdout)
  expect((await runJson(...create('--launch', launch))).document.measurement).toBe(document.digest)
  for (const name of ['block.bin', 'auth.bin']) rmSync(join(dir, name))
  const refused: [unknown, string][] = [
    [{ ...document, ok: false }, 'the digest in it is not the expected one'],
    [{ ...document, digest: 'ab' }, 'no launch digest: /digest'],
    [{ error: { code: 'internal' } }, 'no launch digest: /digest'],
    [[], 'no launch digest'],
  ]
  for (const [content, message] of refused)
    await expectUsageError(create('--launch', file('bad.json', JSON.stringify(content))), message)
  await expectUsageError(create(), 'exactly one of --measurement and --launch names the launch digest; neither is')
  await expectUsageError(create('--launch', launch, '--measurement', measurement), 'both are there')
  expect(readdirSync(dir)).not.toContain('block.bin')
})

test('goal: keys of another kind, behind a passphrase or none at all are refused, and their text is never repeated', async () => {
  const pkcs8 = { format: 'pem', type: 'pkcs8' } as const
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' })
  const closed = privateKey.export({ ...pkcs8, cipher: 'aes-256-cbc', passphrase: 'x' }).toString()
  const keys: [string, string][] = [
    [keyFile('p256.pem', 'P-256'), 'the key is not on P-384 but prime256v1'],
    [keyFile('p521.pem', 'P-521', 'sec1'), 'the key is not on P-384 but secp521r1'],
    [
      file('ed.pem', generateKeyPairSync('ed25519').privateKey.export(pkcs8).toString()),
      'the key is not on P-384 but ed25519',
    ],
    [file('closed.pem', closed), 'the key is encrypted'],
    [file('public.pem', publicKey.export({ format: 'pem', type: 'spki' }).toString()), 'no private key in PEM'],
    [file('none.pem', 'SECRETWORD'), 'no private key in PEM'],
    [join(dir, 'missing'), 'there is no such file'],
  ]
  for (const [path, message] of keys) {
    for (const option of ['--id-key', '--author-key']) {
      const argv = create('--measurement', measurement, option, path)
      await expectUsageError(argv, `${option} ${path}: ${message}`)
      const { stderr } = await runHere(argv)
      expect(stderr).not.toMatch(/SECRETWORD|-----BEGIN/)
    }
  }
  const sec1 = keyFile('sec1.pem', 'P-384', 'sec1')
  expect((await runJson(...create('--measurement', measurement, '--id-key', sec1))).code).toBe(0)
})

test('goal: no file is replaced, and no half of a pair is left', async () => {
  const argv = create('--measurement', measurement)
  const own = file('auth.bin', 'mine')
  await expectUsageError(argv, `--out-id-auth ${own}: it exists`)
  expect([readFileSync(own, 'utf8'), readdirSync(dir).includes('block.bin')]).toEqual(['mine', false])
  rmSync(own)
  const same = join(dir, 'same')
  await expectUsageError([...argv, '--out-id-block', same, '--out-id-auth', same], 'it is named twice')
  await expectUsageError([...argv, '--out-id-auth', join(dir, 'none/auth.bin')], 'there is no such directory')
  expect(readdirSync(dir).toSorted()).toEqual(['author-key.pem', 'id-key.pem'])
})

test('goal: a policy that no firmware starts is refused; one that lets the host in is named', async () => {
  const argv = create('--measurement', measurement, '--policy')
  await expectUsageError([...argv, '0x10000'], '--policy: bit 17 must be one')
  await expectUsageError([...argv, '0x10000000000000000'], 'at most 64 bits')
  const { code, stderr } = await runHere([...argv, '0xf0000'])
  expect(code).toBe(0)
  expect(stderr).toContain('the policy has debug set: the host may read and write the memory of the guest\n')
  expect(stderr).toContain('the policy has migrate set: ')
  await expectUsageError(create('--measurement', 'ab'), 'It must be 48 bytes in hexadecimal')
  await expectUsageError(create('--measurement', measurement, '--family-id', 'ab'), 'It must be 16 bytes')
  await expectUsageError(create('--measurement', measurement, '--guest-svn', '4294967296'), 'at most 32 bits')
})
