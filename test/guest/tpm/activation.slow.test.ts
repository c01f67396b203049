// Credential activation by a real TPM 2.0: swtpm, over its socket.

import { describe, expect, test } from 'bun:test'
import { decodeTpmEvidence } from '../../../src/attest/tpm/evidence.ts'
import { activationProof, makeCredential } from '../../../src/attest/tpm/make-credential.ts'
import { decodePublicArea } from '../../../src/attest/tpm/public-area.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createPrimary, readPrimary, responseCode } from '../../../src/guest/tpm/command.codec.ts'
import { createTpm, type Tpm } from '../../../src/guest/tpm/tpm.ts'
import { startSwtpm, type TestTpm } from '../../rigs/launch/swtpm.ts'

const measured = { commandLine: new Uint8Array(1), image: new Uint8Array(1) }

function guestOf({ device }: Pick<TestTpm, 'device'>): Tpm {
  return createTpm({ device, measured, svsm: Promise.resolve(null), clock: systemClock, log: silentLogger })
}

async function keysOf(tpm: Tpm) {
  const ek = await tpm.endorsementKey()
  const answer = await tpm.evidence(new Uint8Array(32))
  if (ek.kind !== 'endorsement-key' || answer.kind !== 'evidence') throw new Error(JSON.stringify([ek, answer]))
  return { endorsementKey: ek.area, name: decodePublicArea(decodeTpmEvidence(answer.bytes).key).name }
}

describe('a credential', () => {
  // Goal: the TPM of both keys shows that it knows the secret, anew each time, and neither it nor the agent keeps it.
  test('is activated by the TPM of both keys', async () => {
    await using tpm = await startSwtpm()
    const guest = guestOf(tpm)
    const startedMs = performance.now()
    const keys = await keysOf(guest)
    process.stdout.write(`endorsement key and quote: ${Math.round(performance.now() - startedMs)} ms\n`)
    expect(toHex(keys.endorsementKey).slice(0, 84)).toBe(
      '0001000b000300b20020837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa',
    )
    // More often than a TPM has room for what nobody flushes.
    for (let turn = 0; turn < 5; turn += 1) {
      const secret = systemRandom(32)
      const credential = await makeCredential({ ...keys, secret, seed: systemRandom(32) })
      expect(await guest.activate(credential)).toEqual({ kind: 'activated', proof: activationProof(secret) })
    }
    expect((await keysOf(guest)).endorsementKey).toEqual(keys.endorsementKey)
  })

  // Goal: a credential for another attestation key, for another endorsement key, or with any change, is not activated;
  // the TPM works on.
  test('and by no other, nor when changed', async () => {
    await using tpm = await startSwtpm()
    await using other = await startSwtpm()
    const guest = guestOf(tpm)
    const [keys, foreign] = [await keysOf(guest), await keysOf(guestOf(other))]
    expect(toHex(foreign.endorsementKey)).not.toBe(toHex(keys.endorsementKey))
    const parts = { secret: systemRandom(32), seed: systemRandom(32) }
    const good = await makeCredential({ ...keys, ...parts })
    // TPM_RC_INTEGRITY and TPM_RC_VALUE; of parameters 1 and 2.
    const refused = async (credential: Uint8Array) => {
      const answer = await guest.activate(credential)
      expect(answer).toMatchObject({ kind: 'failed' })
      return answer.kind === 'failed' ? answer.reason : ''
    }
    const mixed = { endorsementKey: keys.endorsementKey, name: foreign.name }
    expect(await refused(await makeCredential({ ...mixed, ...parts }))).toStartWith('TPM2_ActivateCredential: TPM_RC')
    // The endorsement key's own name, as a curious program might try.
    const ofEk = { ...keys, name: decodePublicArea(keys.endorsementKey).name }
    await refused(await makeCredential({ ...ofEk, ...parts }))
    await refused(await makeCredential({ ...keys, endorsementKey: foreign.endorsementKey, ...parts }))
    for (const at of [0, 3, 4, 35, 36, 69, 71, 72, 200, good.length - 1]) {
      const changed = Uint8Array.from(good)
      changed[at] = (changed[at] ?? 0) ^ 1
      await refused(changed)
    }
    for (const bad of [good.subarray(1), new Uint8Array(0), new Uint8Array(328)]) await refused(bad)
    expect(await guest.activate(good)).toEqual({ kind: 'activated', proof: activationProof(parts.secret) })
    expect(responseCode(await tpm.transmit(createPrimary()))).toBe(0)
    expect(readPrimary(await tpm.transmit(createPrimary())).area.length).toBeGreaterThan(80)
  })

  // Goal: no TPM, and one that has died, are said.
  test('without a TPM', async () => {
    const none = createTpm({
      device: null,
      measured,
      svsm: Promise.resolve(null),
      clock: systemClock,
      log: silentLogger,
    })
    expect([await none.endorsementKey(), await none.activate(new Uint8Array(328))]).toEqual([
      { kind: 'none' },
      { kind: 'none' },
    ])
    await using tpm = await startSwtpm()
    const guest = guestOf(tpm)
    await tpm.kill()
    expect(await guest.endorsementKey()).toMatchObject({ kind: 'failed' })
    expect(await guest.activate(new Uint8Array(328))).toMatchObject({ kind: 'failed' })
  })
})
