// Goal: a relying party reads only what is an allowlist, and its digest is that of the exact bytes.

import { expect, test } from 'bun:test'
import { Malformed } from '../../src/attest/malformed.ts'
import { utf8 } from '../../src/base/bytes.ts'
import { encodeAllowlist } from '../../src/contract/allowlist.ts'
import { readAllowlist } from '../../src/verifier/allowlist.ts'

const workload = { workload: 'gateway' as const, imageDigests: ['00'.repeat(32)], commands: [['/usr/bin/strongroom']] }
const allowlist = { schemaVersion: 1 as const, workloads: [workload] }

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
  ['a name twice', '{"schemaVersion":1,"workloads":[],"workloads":[]}'],
  ['another version', '{"schemaVersion":2,"workloads":[]}'],
  ['a further field', '{"schemaVersion":1,"workloads":[],"allowAll":true}'],
  ['an unknown workload', JSON.stringify({ ...allowlist, workloads: [{ ...workload, workload: 'x' }] })],
  ['an empty command', JSON.stringify({ ...allowlist, workloads: [{ ...workload, commands: [[]] }] })],
  [
    'a digest in upper case',
    JSON.stringify({ ...allowlist, workloads: [{ ...workload, imageDigests: ['AA'.repeat(32)] }] }),
  ],
])('goal: %s is refused', (_name, content) => {
  const bytes = typeof content === 'string' ? utf8(content) : content
  expect(() => readAllowlist(bytes)).toThrow(Malformed)
  expect(() => readAllowlist(bytes)).toThrow(/^allowlist: /)
})
