// Goal: a relying party reads only what is an allowlist, and its digest is that of the exact bytes.

import { expect, test } from 'bun:test'
import { Malformed } from '../../src/attest/malformed.ts'
import { utf8 } from '../../src/base/bytes.ts'
import { encodeAllowlist } from '../../src/contract/vm/allowlist.ts'
import { readAllowlist } from '../../src/verifier/allowlist.ts'

const image = { digest: '00'.repeat(32), commands: [['/usr/bin/strongroom']] }
const workload = { workload: 'gateway' as const, images: [image] }
const allowlist = { schemaVersion: 2 as const, workloads: [workload] }

test('goal: the digest is that of the bytes, whitespace included', () => {
  const text = encodeAllowlist(allowlist)
  for (const bytes of [utf8(text), utf8(`${text}\n`)]) {
    const read = readAllowlist(bytes)
    expect(read.allowlist).toEqual(allowlist)
    expect(read.digest).toEqual(new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes)))
  }
})

// Goal: two readers can never read different lists out of one file, and no field is passed over.
test.each([
  ['no JSON', '{'],
  ['no UTF-8', Uint8Array.of(0x22, 0xff, 0x22)],
  ['a name twice', '{"schemaVersion":2,"workloads":[],"workloads":[]}'],
  ['another version', '{"schemaVersion":3,"workloads":[]}'],
  ['version 1', '{"schemaVersion":1,"workloads":[]}'],
  [
    'an image without commands',
    JSON.stringify({ ...allowlist, workloads: [{ ...workload, images: [{ ...image, commands: [] }] }] }),
  ],
  ['a further field', '{"schemaVersion":2,"workloads":[],"allowAll":true}'],
  ['an unknown workload', JSON.stringify({ ...allowlist, workloads: [{ ...workload, workload: 'x' }] })],
  [
    'an empty command',
    JSON.stringify({ ...allowlist, workloads: [{ ...workload, images: [{ ...image, commands: [[]] }] }] }),
  ],
  [
    'a digest in upper case',
    JSON.stringify({ ...allowlist, workloads: [{ ...workload, images: [{ ...image, digest: 'AA'.repeat(32) }] }] }),
  ],
])('goal: %s is refused', (_name, content) => {
  const bytes = typeof content === 'string' ? utf8(content) : content
  expect(() => readAllowlist(bytes)).toThrow(Malformed)
  expect(() => readAllowlist(bytes)).toThrow(/^allowlist: /)
})

test('goal: version 1, which crossed all images with all commands, is refused with what to write instead', () => {
  const old = { workload: 'gateway', imageDigests: ['00'.repeat(32)], commands: [['/usr/bin/strongroom']] }
  expect(() => readAllowlist(utf8(JSON.stringify({ schemaVersion: 1, workloads: [old] })))).toThrow(
    'allowlist: /schemaVersion: 1 let every image run with every command; write 2, and for each workload instead of imageDigests and commands: "images": [{ "digest": "…", "commands": [["…"]] }], each image with its own commands',
  )
})
