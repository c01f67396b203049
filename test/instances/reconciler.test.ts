// From a running VM to a ready or failed instance, with scripted VM engine and probe. Real SQLite.

import { expect, test } from 'bun:test'
import { evidenceOf, guestHostKey } from '../../scripts/rigs/guest/attested-guest.ts'
import { publicKey } from '../../scripts/rigs/instances/instances-service.ts'
import { sampleGateway } from '../../scripts/rigs/instances/sample-claim.ts'
import { until } from '../../scripts/rigs/until.ts'
import { Fault } from '../../src/base/fault.ts'
import { checkValue } from '../../src/contract/check.ts'
import { InstanceAttestation } from '../../src/contract/http/instance-attestation.ts'
import { readyMs } from '../../src/instances/billing.ts'
import { attestationOf } from '../../src/store/directory/attestation.query.ts'
import { listChangesOverlapping, moveInstance } from '../../src/store/directory/instance.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { provisioningBench as bench, claimedAs, sshTimeoutMs } from '../rigs/instances/provisioning-bench.ts'

test('a running VM is claimed, attested, opened, probed with the attested host key as the only one, and then ready', async () => {
  // Goal: the order of the steps; the claim names its owner and opens only with the VM's own key; evidence is stored
  // with it.
  const { reconciler, store, steps, claims, probes, ready, provisioned, instance, dismissed } = bench()
  reconciler.wake('instance')
  await provisioned()
  expect(claims).toEqual([
    {
      claimId: 'instance',
      organization: 'acme',
      name: 'abcd1234',
      hostname: 'abcd1234.acme.agents.test',
      publicKey,
      inference: {
        baseUrl: 'https://gateway/v1',
        address: '192.0.2.7',
        gateway: sampleGateway,
        model: 'tiny',
        drawsKey: true,
      },
      egress: { limitBytes: 1_000_000, names: 'listed' },
    },
  ])
  expect(steps).toEqual(['claim', 'probe', 'evidence', 'open', 'receipt'])
  expect(probes).toMatchObject([{ address: '10.88.0.1', port: 22, hostKey: guestHostKey }])
  expect(instance()).toMatchObject({ status: 'ready', failureCode: null, platform: 'kvm' })
  expect(dismissed()).toBe(false)
  expect(ready).toEqual(['instance'])
  const row = attestationOf(store.directory.db, 'instance')
  expect(row).toMatchObject({ sshHostKey: guestHostKey, attestedAtMs: instance().readyAtMs })
  const document: unknown = JSON.parse(row?.document ?? '')
  expect(checkValue(InstanceAttestation, document).ok).toBe(true)
  expect(document).toMatchObject({
    nonce: row?.nonce,
    known_hosts: `abcd1234.acme.agents.test ${guestHostKey}`,
    organization: 'acme',
    public_key: publicKey,
  })
})

test('evidence that is wrong is the end at once: never opened, never ready, whatever its SSH server says', async () => {
  // Goal: no second chance for a VM that proves something else, and the operator reads which check failed.
  const { reconciler, store, steps, provisioned, instance, dismissed } = bench({
    evidence: asked => evidenceOf({ ...asked, claimed: { ...asked.claimed, organization: 'globex' } }),
  })
  reconciler.wake('instance')
  await provisioned()
  expect(steps).toEqual(['claim', 'probe', 'evidence'])
  expect(instance()).toMatchObject({
    status: 'failed',
    failureCode: 'attestation_failed',
    failureMessage: 'The virtual machine could not prove what it is.',
    readyAtMs: null,
  })
  expect(attestationOf(store.directory.db, 'instance')).toBeNull()
  expect(dismissed()).toBe(true)
  const [event] = listEvents(store.ledger.db, { subject: 'instance', limit: 1 })
  expect(JSON.stringify(event?.detail)).toContain('expected-organization')
})

test('a replay of evidence for another nonce is refused', async () => {
  // Goal: the nonce is drawn anew for each attempt, and compared.
  const old = await evidenceOf({ nonce: new Uint8Array(32), claimed: claimedAs })
  const { reconciler, steps, provisioned, instance } = bench({ evidence: async () => old })
  reconciler.wake('instance')
  await provisioned()
  expect([instance().failureCode, steps.includes('open')]).toEqual(['attestation_failed', false])
})

test('a guest that does not answer for its evidence three times, or does not take its receipt, has failed', async () => {
  // Goal: bounded attempts; without evidence the network stays shut, and without a receipt inside the VM goes.
  const silent = () => Promise.reject(new Fault('channel.timeout', 'no answer'))
  for (const [step, repeated, opens] of [
    ['evidence', 'evidence', false],
    ['handReceipt', 'receipt', true],
  ] as const) {
    const { reconciler, steps, provisioned, instance, dismissed } = bench({ [step]: silent })
    reconciler.wake('instance')
    await provisioned()
    expect(steps.filter(step => step === repeated).length).toBe(3)
    expect(steps.includes('open')).toBe(opens)
    expect(instance()).toMatchObject({ status: 'failed', failureCode: 'attestation_failed' })
    expect(dismissed()).toBe(true)
  }
})

test('certificates that are not there yet are waited for, for minutes and no longer', async () => {
  // Goal: a slow key distribution service costs time, not the instance; an absent one does not hold it for ever.
  for (const [minutesAway, status] of [
    [2, 'ready'],
    [60, 'failed'],
  ] as const) {
    let awayUntilMs = 0
    const { reconciler, clock, steps, provisioned, instance } = bench({
      evidence: asked =>
        clock.monotonicMs() < awayUntilMs
          ? Promise.reject(new Fault('attest.unavailable', 'no VCEK'))
          : evidenceOf(asked),
    })
    awayUntilMs = minutesAway * 60_000
    reconciler.wake('instance')
    await provisioned(5_000)
    expect([instance().status, instance().failureCode]).toEqual([
      status,
      status === 'ready' ? null : 'attestation_failed',
    ])
    expect(clock.monotonicMs()).toBeLessThan(5 * 60_000)
    expect(steps.filter(step => step === 'evidence').length).toBeGreaterThan(10)
  }
})

test('an instance is not ready before the firewall has opened', async () => {
  // Goal: an instance that the probe reaches by this host's own way, and nobody else, is of no use.
  const { reconciler, steps, provisioned, instance } = bench({ opens: false })
  reconciler.wake('instance')
  await provisioned(1_000)
  expect(instance()).toMatchObject({ status: 'failed', failureCode: 'ssh_unreachable' })
  expect(steps.filter(step => step === 'probe').length).toBe(1)
})

test('an instance that a firewall of this host cuts off is never ready: it fails in time, or becomes ready once that is mended', async () => {
  // Goal: an instance that nobody outside can reach is never `ready`, though this host itself reaches it.
  const cut = bench({ cutOff: () => 'ip filter FORWARD drops SSH to instances' })
  cut.reconciler.wake('instance')
  await cut.provisioned(500)
  expect(cut.instance()).toMatchObject({ status: 'failed', failureCode: 'ssh_unreachable' })
  // Its owner learns that it cannot be reached, and nothing of this host's rules.
  expect(cut.instance().failureMessage).not.toContain('FORWARD')
  expect(cut.dismissed()).toBe(true)

  let asked = 0
  const mended = bench({
    cutOff: () => {
      asked += 1
      return asked < 3 ? 'ip filter FORWARD drops SSH to instances' : null
    },
  })
  mended.reconciler.wake('instance')
  await mended.provisioned(50)
  expect([mended.instance().status, asked]).toEqual(['ready', 3])
})

test('the hours of an instance whose VM fell silent end with its last sign of life, never before it was ready', async () => {
  // Goal: nobody pays for what was noticed late; and no log runs backwards, whatever the clock did.
  for (const [failedMinutesAgo, endMinutesAgo] of [
    [3, 3],
    [90, 60],
    [-5, 0],
  ] as const) {
    const { reconciler, clock, guest, instance, provisioned, store } = bench()
    reconciler.wake('instance')
    await provisioned()
    const sinceMs = instance().readyAtMs ?? 0
    await clock.elapse(sinceMs + 60 * 60_000 - clock.nowMs())
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
  const { reconciler, provisioned, instance } = bench({
    claim: async () => {
      attempts += 1
      if (attempts === 1) throw new Fault('channel.refused', 'bad_claim')
    },
  })
  reconciler.wake('instance')
  await provisioned()
  expect(instance().status).toBe('ready')
})

test('a guest that nobody can reach becomes ssh_unreachable when its time is over, not before', async () => {
  // Goal: the probe is repeated until the deadline; each attempt fits into what is left.
  const { reconciler, clock, probes, steps, instance, dismissed, provisioned } = bench({
    probe: async () => {
      throw new Fault('ssh.unreachable', 'refused')
    },
  })
  reconciler.wake('instance')
  // The evidence takes real time; the probes wait for the clock.
  await until('all but the probe is done', 15_000, async () => {
    await clock.elapse(0)
    return probes.length > 0 && steps.includes('open')
  })
  await clock.elapse(sshTimeoutMs - 200)
  expect(instance().status).toBe('provisioning')
  await clock.elapse(400)
  await provisioned()
  expect(instance()).toMatchObject({ status: 'failed', failureCode: 'ssh_unreachable' })
  expect(probes.length).toBeGreaterThan(10)
  expect(Math.max(...probes.map(probe => probe.timeoutMs))).toBeLessThanOrEqual(sshTimeoutMs)
  expect(dismissed()).toBe(true)
})

test('another host key at the address fails at once', async () => {
  // Goal: something in the VM's place is no reason to wait, and never leads to ready.
  const { reconciler, provisioned, probes, instance } = bench({
    probe: async () => {
      throw new Fault('ssh.wrong_host_key', 'another key')
    },
  })
  reconciler.wake('instance')
  await provisioned()
  expect(probes.length).toBe(1)
  expect(instance()).toMatchObject({
    status: 'failed',
    failureCode: 'ssh_unreachable',
    // The owner must not take it for a firewall.
    failureMessage: expect.stringContaining('presented another SSH host key than the instance attested'),
  })
})

test('a delete in the middle of a claim wins', async () => {
  // Goal: its VM is dismissed at once, though the claim still waits; it never becomes ready or failed; it ends with
  // its VM.
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
    const { reconciler, clock, guest, instance, provisioned } = bench()
    if (ready) {
      reconciler.wake('instance')
      await provisioned()
      expect(instance().status).toBe('ready')
    }
    guest.state = 'failed'
    guest.failureCode = 'host_restarted'
    reconciler.wake('instance')
    await clock.elapse(0)
    expect(instance()).toMatchObject({ status: 'failed', failureCode: 'host_restarted' })
  }
})
