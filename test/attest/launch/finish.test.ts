// Firmware's refusals at the end of a launch, each by its name.

import { expect, test } from 'bun:test'
import { finishLaunch } from '../../../src/attest/launch/finish.ts'
import { signIdBlock } from '../../../src/attest/launch/id-block-sign.ts'

const P384 = { name: 'ECDSA', namedCurve: 'P-384' } as const
const newKey = () => crypto.subtle.generateKey(P384, true, ['sign', 'verify'])
const none = new Uint8Array(16)
const digest = new Uint8Array(48).fill(9)
const policy = 0x30000n

test('goal: an ID block is accepted for its own digest and policy alone, signed by its own key', async () => {
  const block = { measurement: digest, familyId: none, imageId: none, guestSvn: 0, policy }
  const { idBlock, idAuth } = await signIdBlock(block, { idKey: await newKey(), authorKey: await newKey() })
  const failures = async (change: Partial<Parameters<typeof finishLaunch>[0]>) => {
    const { ok, checks } = await finishLaunch({ digest, policy, idBlock, idAuth, ...change })
    const failed = checks.filter(check => check.outcome === 'fail').map(check => check.name)
    expect(ok).toBe(failed.length === 0)
    return failed
  }
  const flipped = (bytes: Uint8Array, at: number) => bytes.map((byte, index) => (index === at ? byte ^ 1 : byte))
  expect(await failures({})).toEqual([])
  expect(await failures({ digest: flipped(digest, 47) })).toEqual(['launch-digest'])
  expect(await failures({ policy: policy | (1n << 19n) })).toEqual(['launch-policy'])
  expect(await failures({ idBlock: flipped(idBlock, 0) })).toEqual(['id-block-signature', 'launch-digest'])
  expect(await failures({ idBlock: flipped(idBlock, 0x58) })).toEqual(['id-block-signature', 'launch-policy'])
  expect(await failures({ idBlock: idBlock.subarray(1) })).toEqual(['id-block-format'])
  expect(await failures({ idAuth: flipped(idAuth, 0x680) })).toEqual(['id-key-signature'])
})
