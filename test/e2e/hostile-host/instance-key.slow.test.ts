// A host that wants to send requests as an instance. The guest's own code takes the claim; the host's own code makes
// it, judges the evidence and registers the key. Everything that the host has is searched for the secret.

import { expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sql } from 'drizzle-orm'
import { evidenceOf, guestHostKey } from '../../../scripts/rigs/guest/attested-guest.ts'
import { makeParts, makeSandbox } from '../../../scripts/rigs/guest/root.ts'
import { sampleNetwork } from '../../../scripts/rigs/instances/sample-claim.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { fromUtf8 } from '../../../src/base/bytes.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Claim, DrawnKey } from '../../../src/contract/vm/claim.ts'
import { createGatewayAuthenticate } from '../../../src/inference/keys/stored-keys.ts'
import { statedClaim } from '../../../src/instances/claim.plan.ts'
import { attestationOf } from '../../../src/store/directory/attestation.query.ts'
import { listGatewayKeys } from '../../../src/store/directory/gateway-key.query.ts'
import type { VmEngine } from '../../../src/vm/engine.ts'
import { bearer, prefixOf, secretOf } from '../../rigs/gateway/keys.ts'
import { claimedAs, provisioningBench } from '../../rigs/instances/provisioning-bench.ts'

const defaults = { requestsPerMinute: 600, tokensPerMinute: 1_000_000, concurrencyMax: 32 }

/** Where a daemon is killed: after the guest's part of the step, before the daemon reads the answer. */
type Boundary = 'claim' | 'evidence' | 'receipt'

/** A guest in a sandbox, and a host whose daemons can be killed at a boundary. */
async function openRig() {
  const sandbox = await makeSandbox()
  const { claiming, identity } = await makeParts(sandbox)
  const bench = provisioningBench()
  /** Messages between host and guest, as the host has them: claims before they are sealed. */
  const messages: string[] = []
  let stated = claimedAs.claim
  let reached: Boundary | null = null
  const engineUntil = (dies: Boundary | null): Partial<VmEngine> => {
    const answer = async <T>(step: Boundary, value: T): Promise<T> => {
      if (step !== dies) return value
      reached = step
      return await new Promise<T>(() => {})
    }
    return {
      view: id => {
        const view = bench.engine.view(id)
        if (view === null) return null
        return { ...view, guest: { boxKey: identity.boxKey, sshHostKey: guestHostKey, claimId: null } }
      },
      claim: async (_vmId, sealed) => {
        const plain = identity.openBox(sealed)
        if (plain === null) throw new Error('the claim does not open')
        messages.push(fromUtf8(plain))
        const taken = await claiming.claim(sealed, identity)
        if (!taken.ok) throw new Error(taken.message)
        const key: DrawnKey | null = claiming.record()?.document.claim.inference.key ?? null
        const claimed = { claimId: taken.claimId, sshHostKey: guestHostKey, key }
        messages.push(JSON.stringify(claimed))
        const claim: Claim = JSON.parse(fromUtf8(plain))
        stated = statedClaim(claim, sampleNetwork, key)
        return await answer('claim', { ...claimed, network: sampleNetwork })
      },
      evidence: async (_vmId, nonce) =>
        await answer('evidence', await evidenceOf({ nonce, claimed: { ...claimedAs, claim: stated } })),
      handReceipt: async () => await answer('receipt', undefined),
    }
  }
  return {
    bench,
    messages,
    ownKey: () => readFileSync(sandbox.paths.gatewayKey, 'utf8').trim(),
    keys: () => listGatewayKeys(bench.store.directory.db, 'org'),
    /** Runs a daemon until it is killed at the boundary. */
    runUntil: async (dies: Boundary) => {
      reached = null
      bench.start(engineUntil(dies)).wake('instance')
      await until(`the daemon dies at ${dies}`, 60_000, async () => {
        await bench.clock.elapse(20)
        return reached === dies
      })
    },
    finish: async () => {
      bench.start(engineUntil(null)).wake('instance')
      await bench.provisioned()
    },
    [Symbol.asyncDispose]: () => sandbox[Symbol.asyncDispose](),
  }
}

test('goal: nothing that a host has, or is sent, opens the gateway as an instance; the instance itself does', async () => {
  await using rig = await openRig()
  const { bench, messages } = rig
  await rig.finish()
  expect(bench.instance().status).toBe('ready')
  const key = rig.ownKey()
  expect(key).toMatch(/^gw_[a-z0-9]{8}_[a-z0-9]{32}$/)

  const directory = mkdtempSync(join(tmpdir(), 'strongroom-instance-key-'))
  try {
    const copy = join(directory, 'copy.db')
    bench.store.directory.db.run(sql.raw(`VACUUM INTO '${copy}'`))
    const database = readFileSync(copy)
    const evidence = attestationOf(bench.store.directory.db, 'instance')?.document ?? ''
    // The same search finds the prefix, which is no secret.
    for (const text of [messages.join('\n'), evidence]) expect(text).toContain(prefixOf(key))
    expect(database.includes(prefixOf(key))).toBe(true)
    for (const text of [messages.join('\n'), evidence]) expect(text).not.toContain(secretOf(key))
    expect(database.includes(secretOf(key))).toBe(false)
  } finally {
    rmSync(directory, { recursive: true })
  }

  const digest = new Bun.CryptoHasher('sha256').update(secretOf(key)).digest('hex')
  expect(rig.keys()).toMatchObject([{ prefix: prefixOf(key), instanceId: 'instance', isClientMade: true }])
  const { directory: store } = bench.store
  const authenticate = createGatewayAuthenticate({ db: store.db, clock: bench.clock, log: silentLogger, defaults })
  expect(authenticate(bearer(key))).toMatchObject({ instanceId: 'instance', keyDigest: digest })
})

// Goal: a repeated claim gives the same key, and it is registered once, wherever the daemon was killed.
test.each<readonly Boundary[]>([['claim'], ['evidence'], ['receipt']])(
  'after a daemon that was killed at its %s',
  async boundary => {
    await using rig = await openRig()
    await rig.runUntil(boundary)
    const key = rig.ownKey()
    // Before the evidence was judged nothing is registered.
    expect(rig.keys().map(({ prefix }) => prefix)).toEqual(boundary === 'receipt' ? [prefixOf(key)] : [])
    await rig.finish()
    expect(rig.bench.instance().status).toBe('ready')
    expect(rig.ownKey()).toBe(key)
    const digest = new Bun.CryptoHasher('sha256').update(secretOf(key)).digest()
    expect(rig.keys().map(({ prefix, secretSha256 }) => [prefix, secretSha256])).toEqual([[prefixOf(key), digest]])
  },
)

test('goal: a guest whose prefix is taken gets no key of somebody else: its claim fails', async () => {
  await using rig = await openRig()
  await rig.runUntil('claim')
  const { store, clock } = rig.bench
  const taken = prefixOf(rig.ownKey())
  store.directory.db.run(sql`INSERT INTO gateway_keys (prefix, organization_id, secret_sha256, created_at_ms)
    VALUES (${taken}, 'org', ${Buffer.alloc(32, 7)}, ${clock.nowMs()})`)
  await rig.finish()
  expect(rig.bench.instance()).toMatchObject({ status: 'failed', failureCode: 'claim_failed', readyAtMs: null })
  expect(rig.bench.dismissed()).toBe(true)
  expect(rig.keys()).toMatchObject([{ prefix: taken, instanceId: null, secretSha256: Buffer.alloc(32, 7) }])
})
