// One organization with one provisioning instance whose VM runs as the test says: real SQLite, a manual clock, real
// evidence of the simulated platform. A daemon can be abandoned halfway, and another started on the same store.

import nacl from 'tweetnacl'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { claimedOf, evidenceOf, guestHostKey, simulatedTrust } from '../../../scripts/rigs/guest/attested-guest.ts'
import { publicKey } from '../../../scripts/rigs/instances/instances-service.ts'
import { drawnOf, sampleGateway, sampleNetwork } from '../../../scripts/rigs/instances/sample-claim.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { fromBase64, fromUtf8, toBase64 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { SealedClaim } from '../../../src/contract/vm/agent.ts'
import type { Claim } from '../../../src/contract/vm/claim.ts'
import type { SshProbe } from '../../../src/host/network/ssh-probe.ts'
import { createInstanceKeys } from '../../../src/inference/keys/instance-keys.ts'
import { statedClaim } from '../../../src/instances/claim.plan.ts'
import type { ClaimedAs } from '../../../src/instances/evidence.verify.ts'
import { InstanceReconciler, type InstanceReconcilerDeps } from '../../../src/instances/reconciler.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertInstance, instanceById } from '../../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import type { VmEngine, VmEvidence, VmView } from '../../../src/vm/engine.ts'

export const claimTimeoutMs = 5_000
export const sshTimeoutMs = 5_000
export const claimedAs: ClaimedAs = claimedOf({
  organization: 'acme',
  name: 'abcd1234',
  hostname: 'abcd1234.acme.agents.test',
  publicKey,
})

export type Guest = {
  state: VmView['state']
  failureCode: VmView['failureCode']
  failedAtMs: VmView['failedAtMs']
  claim: (sealed: SealedClaim) => Promise<void>
  evidence: (asked: { nonce: Uint8Array; claimed: ClaimedAs }) => Promise<VmEvidence>
  handReceipt: () => Promise<void>
  /** Whether the firewall opens when it is asked to. */
  opens: boolean
  probe: (probe: SshProbe) => Promise<void>
  /** Why nobody outside reaches it. */
  cutOff: () => string | null
}

export function provisioningBench(behaviour: Partial<Guest> = {}) {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const box = nacl.box.keyPair()
  const guest: Guest = {
    state: 'running',
    failureCode: null,
    failedAtMs: null,
    claim: async () => {},
    evidence: asked => evidenceOf(asked),
    handReceipt: async () => {},
    opens: true,
    probe: async () => {},
    cutOff: () => null,
    ...behaviour,
  }
  const probes: SshProbe[] = []
  const claims: Claim[] = []
  /** Steps taken, in order. */
  const steps: string[] = []
  const ready: string[] = []
  const dismissed = new Set<string>()
  let opened = false
  store.directory.transact(tx => {
    insertOrganization(tx, { id: 'org', slug: 'acme', nowMs: clock.nowMs() })
    insertInstance(tx, {
      id: 'instance',
      hostId: store.hostId,
      organizationId: 'org',
      name: claimedAs.name,
      hostname: claimedAs.hostname,
      agent: 'opencode',
      publicKey,
      inferenceMode: 'default_gateway',
      inferenceModel: 'tiny',
      vmId: 'vm',
      nowMs: clock.nowMs(),
    })
  })
  const engine: VmEngine = {
    define: vmId => steps.push(`define ${vmId}`),
    dismiss: vmId => dismissed.add(vmId),
    view: id => ({
      id,
      state: guest.state,
      platform: 'kvm',
      address: '10.88.0.1',
      addressV6: null,
      failureCode: guest.failureCode,
      failureMessage: null,
      failedAtMs: guest.failedAtMs,
      guest: { boxKey: toBase64(box.publicKey), sshHostKey: guestHostKey, claimId: null },
      opened,
    }),
    claim: async (_vmId, sealed) => {
      const claim = openClaim(sealed, box.secretKey)
      claims.push(claim)
      steps.push('claim')
      await guest.claim(sealed)
      return { claimId: 'instance', sshHostKey: guestHostKey, key: drawnOf(claim), network: sampleNetwork }
    },
    evidence: async (_vmId, nonce) => {
      steps.push('evidence')
      const claim = claims.at(-1)
      const stated = claim === undefined ? claimedAs.claim : statedClaim(claim, sampleNetwork, drawnOf(claim))
      return await guest.evidence({ nonce, claimed: { ...claimedAs, claim: stated } })
    },
    handReceipt: async () => {
      steps.push('receipt')
      await guest.handReceipt()
    },
    handEgress: async () => {},
    pollIdle: async () => ({ isIdle: false }),
    guest: () => {
      throw new Error('no snapshots here')
    },
    open: () => {
      steps.push('open')
      opened = guest.opens
    },
    onChange: () => {},
  }
  /** A daemon on this store. */
  const start = (
    changed: Partial<VmEngine> = {},
    probe?: (probe: SshProbe) => Promise<void>,
    elsewhere?: InstanceReconcilerDeps['elsewhere'],
  ) =>
    new InstanceReconciler({
      bootingPerOrganizationMax: 4,
      store,
      engine: { ...engine, ...changed },
      vmSpec: { image: 'instance', vcpus: 1, memoryMib: 512 },
      clock,
      random: systemRandom,
      log: silentLogger,
      trust: simulatedTrust,
      onReady: id => ready.push(id),
      gateway: async () => ({ baseUrl: 'https://gateway/v1', address: '192.0.2.7', gateway: sampleGateway }),
      egress: { limitBytes: 1_000_000, names: 'listed' },
      drawsKeys: true,
      registerKey: createInstanceKeys({ store: store.directory, clock, log: silentLogger }).registerKey,
      claimTimeoutMs,
      sshTimeoutMs,
      cutOff: async () => guest.cutOff(),
      probe: async asked => {
        probes.push(asked)
        steps.push('probe')
        await (probe ?? guest.probe)(asked)
      },
      ...(elsewhere === undefined ? {} : { elsewhere }),
    })
  const instance = () => {
    const row = instanceById(store.directory.db, 'instance')
    if (row === null) throw new Error('the instance has gone')
    return row
  }
  /** Lets time pass until the instance has moved on from `provisioning`. */
  const provisioned = (stepMs = 20) =>
    until('the instance is provisioned, or has failed', 60_000, async () => {
      await clock.elapse(stepMs)
      return instance().status !== 'provisioning'
    })
  return {
    store,
    clock,
    guest,
    probes,
    claims,
    steps,
    ready,
    engine,
    instance,
    provisioned,
    start,
    reconciler: start(),
    dismissed: () => dismissed.has('vm'),
  }
}

function openClaim(sealed: SealedClaim, secretKey: Uint8Array): Claim {
  const [key, nonce, message] = [sealed.ephemeralKey, sealed.nonce, sealed.box].map(
    text => fromBase64(text) ?? new Uint8Array(),
  )
  const none = new Uint8Array()
  const plain = nacl.box.open(message ?? none, nonce ?? none, key ?? none, secretKey)
  if (plain === null) throw new Error('the claim does not open')
  return JSON.parse(fromUtf8(plain)) as Claim
}
