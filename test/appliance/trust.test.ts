// Trust anchors of the appliance for evidence of guests.

import { expect, test } from 'bun:test'
import { simulatedPlatform } from '../../scripts/rigs/launch/simulated-platform.ts'
import { createTrust } from '../../src/appliance/trust.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'

const operatorKeys = [new Uint8Array(48).fill(4), new Uint8Array(48).fill(5)]

test("hardware is believed by AMD's roots alone, a simulation by this host's root alone", async () => {
  // Goal: no simulation counts as hardware or the reverse; a VM is judged by the platform it was made on.
  const { root } = (await simulatedPlatform('genoa')).authority
  const parts = { simulatedPlatform: async () => ({ root }), operatorKeys }
  const onSnp = createTrust({ ...parts, platform: 'snp' })
  const onTcg = createTrust({ ...parts, platform: 'tcg' })
  const hardware = { roots: AMD_ROOTS, simulated: false, operatorKeys }
  const simulated = { roots: [root], simulated: true, operatorKeys }
  expect([await onSnp(), await onTcg(), await onSnp('kvm'), await onTcg('snp')]).toEqual([
    hardware,
    simulated,
    simulated,
    hardware,
  ])
})
