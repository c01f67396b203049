// Goal: a registration line carries a key's digest and never its secret, and no text is both a line
// and a key.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { systemRandom } from '../../../src/base/ids.ts'
import { readRegistration, registrationLine } from '../../../src/contract/admin/key-registration.ts'
import { KEY_FORMATS } from '../../../src/http/bearer.ts'

const hex = '0f'.repeat(32)

test('goal: the line of a minted key is read back with the SHA-256 of its secret', () => {
  for (const tag of ['ca', 'gw'] as const) {
    const minted = KEY_FORMATS[tag].mint(systemRandom)
    const [, prefix = '', secret = ''] = minted.key.split('_')
    const digest = createHash('sha256').update(secret).digest('hex')
    const line = registrationLine(tag, minted)
    expect(line).toBe(`${tag}_${prefix}_sha256_${digest}`)
    expect(line).not.toContain(secret)
    const read = readRegistration(tag, ` ${line}\n`)
    if (!read.ok) throw new Error(read.problem)
    expect([read.value.prefix, Buffer.from(read.value.secretSha256).toString('hex')]).toEqual([prefix, digest])
  }
})

test('goal: keys and lines are never taken for each other, whatever their random parts', () => {
  const byte = fc.infiniteStream(fc.nat(255))
  fc.assert(
    fc.property(fc.constantFrom('ca', 'gw'), byte, (tag, stream) => {
      const bytes = stream[Symbol.iterator]()
      const minted = KEY_FORMATS[tag].mint(lengthBytes =>
        Uint8Array.from({ length: lengthBytes }, () => bytes.next().value),
      )
      const line = registrationLine(tag, minted)
      for (const format of Object.values(KEY_FORMATS)) expect(format.parse(`Bearer ${line}`)).toBeNull()
      for (const text of [minted.key, `Bearer ${minted.key}`, `key ${minted.key}\n${line}`, `"${minted.key}"`]) {
        const read = readRegistration(tag, text)
        expect([text, read]).toEqual([text, { ok: false, problem: expect.stringContaining('this is a whole key') }])
        expect(read.ok ? '' : read.problem).not.toContain(minted.key.split('_')[2] ?? '?')
      }
    }),
    { numRuns: 200 },
  )
})

// Goal: a line of the other tag, or a text that is no line, is refused with what to do.
test.each([
  ['ca', `gw_k3v9x2ab_sha256_${hex}`, 'register it with `strongroom gateway key add`'],
  ['gw', `ca_k3v9x2ab_sha256_${hex}`, 'register it with `strongroom key add`'],
  ['gw', '', 'not a registration line, which is gw_, 8 characters, _sha256_ and 64 hexadecimal digits'],
  ['gw', `gw_k3v9x2ab_sha256_${hex.toUpperCase()}`, 'not a registration line'],
  ['gw', `gw_k3v9x2ab_sha256_${hex}0`, 'not a registration line'],
  ['gw', `gw_k3v9x2a_sha256_${hex}`, 'not a registration line'],
  ['gw', `gw_K3V9X2AB_sha256_${hex}`, 'not a registration line'],
  ['gw', `gw_k3v9x2ab_sha512_${hex}`, 'not a registration line'],
  ['gw', `gw_k3v9x2ab_sha256_${hex}\ngw_k3v9x2ab_sha256_${hex}`, 'not a registration line'],
  ['ca', `ca_k3v9x2ab_sha256_${'a'.repeat(18)}`, 'not a registration line'],
] as const)('%s refuses %j', (tag, text, problem) => {
  expect(readRegistration(tag, text)).toEqual({ ok: false, problem: expect.stringContaining(problem) })
})
