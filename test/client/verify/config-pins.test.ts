// Goal: operator key and gateway image of client.toml are pins where a policy has none, and never replace one.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { withGatewayImage, withOperatorKey } from '../../../src/client/verify/config-pins.ts'
import { sampleManifestText } from '../../rigs/instances/instance-attestation.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-config-pins-'))
afterAll(() => rmSync(dir, { recursive: true }))
const image = join(dir, 'manifest.json')
writeFileSync(image, sampleManifestText)

const [key, other] = [new Uint8Array(48).fill(4), new Uint8Array(48).fill(5)]
const open = strictPolicy()
const operator_key = '04'.repeat(48)
/** The launch digests of the sample manifest. */
const measurements = [new Uint8Array(48).fill(0xbb), new Uint8Array(48).fill(9)]

test('goal: the operator key counts where the policy names none', async () => {
  expect((await withOperatorKey(open, {})).idKeyDigest).toBe('any')
  expect((await withOperatorKey(open, { operator_key })).idKeyDigest).toEqual(key)
  const named = { ...open, idKeyDigest: [other] }
  expect(await withOperatorKey(named, { operator_key })).toBe(named)
})

test('goal: the gateway image gives a policy its measurements, with the operator key, and replaces none', async () => {
  expect(await withGatewayImage('any', {})).toBe('any')
  expect(await withGatewayImage('any', { operator_key })).toBe('any')
  const made = await withGatewayImage('any', { operator_key, gateway_image: image })
  expect(made).toMatchObject({ measurements, idKeyDigest: key })
  expect(await withGatewayImage('any', { gateway_image: dir })).toMatchObject({ measurements, idKeyDigest: 'any' })
  const named = { ...open, measurements: [other] }
  const kept = await withGatewayImage(named, { operator_key, gateway_image: image })
  expect(kept).toMatchObject({ measurements: [other], idKeyDigest: key })
  expect(await withGatewayImage(open, { operator_key })).toMatchObject({ measurements: 'any', idKeyDigest: key })
})

test('goal: a file that is no manifest is refused', async () => {
  writeFileSync(join(dir, 'other.json'), '{}')
  await expect(withGatewayImage('any', { gateway_image: join(dir, 'other.json') })).rejects.toThrow('manifest')
})
