// The path from a running VM to a ready or failed instance, with a VM engine and a probe that do what each test says. Real SQLite.

import { expect, test } from 'bun:test'
import nacl from 'tweetnacl'
import { fromBase64, fromUtf8, toBase64 } from '../../src/base/bytes.ts'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import type { Claim, SealedClaim } from '../../src/contract/agent.ts'
import type { SshProbe } from '../../src/host/network/ssh-probe.ts'
import { readyMs } from '../../src/instances/billing.ts'
import { InstanceReconciler } from '../../src/instances/reconciler.ts'
import { openStore } from '../../src/store/db.ts'
import {
  insertInstance,
  instanceById,
  listChangesOverlapping,
  moveInstance,
} from '../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import type { VmEngine, VmView } from '../../src/vm/engine.ts'
import { createManualClock } from '../rigs/clock.ts'

const hostKey = 'ssh-ed25519 AAAAhost'
const claimTimeoutMs = 5_000
const sshTimeoutMs = 5_000

type Guest = {
  state: VmView['state']
  failureCode: VmView['failureCode']
  failureMessage: string | null
  failedAtMs: VmView['failedAtMs']
  claim: (sealed: SealedClaim) => Promise<void>
  probe: (probe: SshProbe) => Promise<void>
}

/** One organization with one provisioning instance whose VM runs. */
function bench(behaviour: Partial<Guest> = {}) {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const box = nacl.box.keyPair()
  const guest: Guest = {
    state: 'running',
    failureCode: null,
    failureMessage: null,
    failedAtMs: null,
    claim: async () => {},
    probe: async () => {},
    ...behaviour,
  }
  const probes: SshProbe[] = []
  const claims: Claim[] = []
  const open = (sealed: SealedClaim): Claim => {
    const [key, nonce, message] = [sealed.ephemeralKey, sealed.nonce, sealed.box].map(
      text => fromBase64(text) ?? new Uint8Array(),
    )
    const plain = nacl.box.open(
      message ?? new Uint8Array(),
      nonce ?? new Uint8Array(),
      key ?? new Uint8Array(),
      box.secretKey,
    )
    if (plain === null) throw new Error('the claim does not open')
    return JSON.parse(fromUtf8(plain)) as Claim
  }
  store.directory.transact(tx => {
    insertOrganization(tx, { id: 'org', slug: 'acme', nowMs: clock.nowMs() })
    insertInstance(tx, {
      id: 'instance',
      hostId: store.hostId,
      organizationId: 'org',
      name: 'abcd1234',
      hostname: 'abcd1234.acme.agents.test',
      agent: 'opencode',
      publicKey: 'ssh-ed25519 AAAA me',
      inferenceMode: 'default_gateway',
      inferenceModel: 'tiny',
      vmId: 'vm',
      nowMs: clock.nowMs(),
    })
  })
  const dismissed = new Set<string>()
  const engine: VmEngine = {
    define: () => {},
    dismiss: vmId => dismissed.add(vmId),
    view: id => ({
      id,
      state: guest.state,
      platform: 'kvm',
      address: '10.88.0.1',
      failureCode: guest.failureCode,
      failureMessage: guest.failureMessage,
      failedAtMs: guest.failedAtMs,
      guest: { boxKey: toBase64(box.publicKey), sshHostKey: hostKey, claimId: null },
    }),
    claim: async (_vmId, sealed) => {
      claims.push(open(sealed))
      await guest.claim(sealed)
      return { claimId: 'instance', sshHostKey: hostKey }
    },
    evidence: () => Promise.reject(new Error('nobody asks here')),
    handReceipt: async () => {},
    onChange: () => {},
  }
  const reconciler = new InstanceReconciler({
    store,
    engine,
    vmSpec: { image: 'instance', vcpus: 1, memoryMib: 512 },
    clock,
    random: systemRandom,
    log: silentLogger,
    gateway: { baseUrl: 'https://gateway/v1', address: '192.0.2.7', ca: 'PEM' },
    inferenceKey: (id: string) => `gw_of_${id}`,
    claimTimeoutMs,
    sshTimeoutMs,
    probe: async probe => {
      probes.push(probe)
      await guest.probe(probe)
    },
  })
  const instance = () => {
    const row = instanceById(store.directory.db, 'instance')
    if (row === null) throw new Error('the instance has gone')
    return row
  }
  return {
    store,
    clock,
    guest,
    probes,
    claims,
    reconciler,
    instance,
    dismissed: () => dismissed.has('vm'),
  }
}

test('a running VM is claimed, probed with the reported host key as the only one, and then ready', async () => {
  // Goal: the order claim, probe, ready; the claim names its owner and opens only with the VM's own key.
  const { reconciler, clock, claims, probes, instance, dismissed } = bench()
  reconciler.wake('instance')
  await clock.elapse(0)
  expect(claims).toEqual([
    {
      claimId: 'instance',
      organization: 'acme',
      name: 'abcd1234',
      hostname: 'abcd1234.acme.agents.test',
      publicKey: 'ssh-ed25519 AAAA me',
      inference: {
        baseUrl: 'https://gateway/v1',
        address: '192.0.2.7',
        ca: 'PEM',
        model: 'tiny',
        key: 'gw_of_instance',
      },
    },
  ])
  expect(probes).toMatchObject([{ address: '10.88.0.1', port: 22, hostKey }])
  expect(instance()).toMatchObject({ status: 'ready', readyAtMs: clock.nowMs(), failureCode: null, platform: 'kvm' })
  expect(dismissed()).toBe(false)
})

test('the hours of an instance whose VM fell silent end with its last sign of life, never before it was ready', async () => {
  // Goal: nobody pays for what was noticed late; and no log runs backwards, whatever the clock did.
  for (const [failedMinutesAgo, endMinutesAgo] of [
    [3, 3],
    [90, 60],
    [-5, 0],
  ] as const) {
    const { reconciler, clock, guest, instance, store } = bench()
    reconciler.wake('instance')
    await clock.elapse(0)
    const sinceMs = clock.nowMs()
    await clock.elapse(60 * 60_000)
    const nowMs = clock.nowMs()
    Object.assign(guest, {
      state: 'failed',
      failureCode: 'agent_unreachable',
      failedAtMs: nowMs - failedMinutesAgo * 60_000,
    })
    reconciler.wake('instance')
    await clock.elapse(0)
    expect(instance()).toMatchObject({ status: 'failed', failureCode: 'agent_unreachable' })
    const changes = listChangesOverlapping(store.directory.db, { organizationId: 'org', fromMs: 0 })
    const within = { startMs: 0, endMs: nowMs + 1, nowMs }
    expect(readyMs(changes, within)).toBe(nowMs - endMinutesAgo * 60_000 - sinceMs)
  }
})

test('a claim that fails three times makes claim_failed, and the VM goes', async () => {
  // Goal: bounded attempts, a message without secrets, no VM that serves nobody, and never a probe.
  const { reconciler, clock, claims, probes, instance, dismissed } = bench({
    claim: async () => {
      throw new Fault('channel.refused', 'failed: ca_abcdefgh_abcdefghijklmnopqr')
    },
  })
  reconciler.wake('instance')
  await clock.elapse(60_000)
  expect(claims.length).toBe(3)
  expect(probes).toEqual([])
  expect(instance()).toMatchObject({ status: 'failed', failureCode: 'claim_failed', readyAtMs: null })
  expect(instance().failureMessage).not.toMatch(/ca_|channel/)
  expect(dismissed()).toBe(true)
})

test('a claim that fails once is tried again', async () => {
  // Goal: a restarted agent costs an attempt, not the instance.
  let attempts = 0
  const { reconciler, clock, instance } = bench({
    claim: async () => {
      attempts += 1
      if (attempts === 1) throw new Fault('channel.refused', 'bad_claim')
    },
  })
  reconciler.wake('instance')
  await clock.elapse(1_000)
  expect(instance().status).toBe('ready')
})

test('a guest that nobody can reach becomes ssh_unreachable when its time is over, not before', async () => {
  // Goal: the probe is repeated until the deadline; each attempt fits into what is left.
  const { reconciler, clock, probes, instance, dismissed } = bench({
    probe: async () => {
      throw new Fault('ssh.unreachable', 'refused')
    },
  })
  reconciler.wake('instance')
  await clock.elapse(sshTimeoutMs - 200)
  expect(instance().status).toBe('provisioning')
  await clock.elapse(400)
  expect(instance()).toMatchObject({ status: 'failed', failureCode: 'ssh_unreachable' })
  expect(probes.length).toBeGreaterThan(10)
  expect(Math.max(...probes.map(probe => probe.timeoutMs))).toBeLessThanOrEqual(sshTimeoutMs)
  expect(dismissed()).toBe(true)
})

test('another host key at the address fails at once', async () => {
  // Goal: something in the VM's place is no reason to wait, and never leads to ready.
  const { reconciler, clock, probes, instance } = bench({
    probe: async () => {
      throw new Fault('ssh.wrong_host_key', 'another key')
    },
  })
  reconciler.wake('instance')
  await clock.elapse(0)
  expect(probes.length).toBe(1)
  expect(instance()).toMatchObject({ status: 'failed', failureCode: 'ssh_unreachable' })
})

test('a delete in the middle of a claim wins', async () => {
  // Goal: its VM is dismissed at once, though the claim still waits; it never becomes ready or failed; it ends when its VM is gone.
  const gate = Promise.withResolvers<void>()
  const { reconciler, clock, store, guest, probes, instance, dismissed } = bench({ claim: () => gate.promise })
  reconciler.wake('instance')
  await clock.elapse(0)
  const nowMs = clock.nowMs()
  moveInstance(store.directory.db, {
    id: 'instance',
    from: 'provisioning',
    to: 'terminating',
    desired: 'absent',
    nowMs,
  })
  reconciler.wakeDeleted(instance())
  expect(dismissed()).toBe(true)
  gate.resolve()
  await clock.elapse(1_000)
  expect(instance()).toMatchObject({ status: 'terminating', readyAtMs: null, failureCode: null })
  expect(probes).toEqual([])
  guest.state = 'gone'
  reconciler.wake('instance')
  await clock.elapse(0)
  expect(instance()).toMatchObject({ status: 'terminated', terminatedAtMs: clock.nowMs(), vmId: null })
})

test('an instance fails with its VM, with the code of its VM, ready or not', async () => {
  // Goal: a lost VM is reported as what it was lost to.
  for (const ready of [false, true]) {
    const { reconciler, clock, guest, instance } = bench()
    if (ready) {
      reconciler.wake('instance')
      await clock.elapse(0)
      expect(instance().status).toBe('ready')
    }
    guest.state = 'failed'
    guest.failureCode = 'host_restarted'
    reconciler.wake('instance')
    await clock.elapse(0)
    expect(instance()).toMatchObject({ status: 'failed', failureCode: 'host_restarted' })
  }
})
