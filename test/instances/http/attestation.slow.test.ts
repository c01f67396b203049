// The attestation of an instance over HTTP: the kept one of the claim, fresh ones, refusals. On the simulated platform.

import { expect, test } from 'bun:test'
import { claimedOf, evidenceOf, guestHostKey, simulatedTrust } from '../../../scripts/rigs/guest/attested-guest.ts'
import { type Appliance, type Changes, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { toBase64Url } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import { toAttestation } from '../../../src/instances/attestation.codec.ts'
import type { ClaimedAs } from '../../../src/instances/evidence.verify.ts'
import { attestationOf, storeAttestation } from '../../../src/store/directory/attestation.query.ts'
import { moveInstance } from '../../../src/store/directory/instance.query.ts'
import type { Instance } from '../../../src/store/directory/instance.table.ts'
import type { VmEvidence } from '../../../src/vm/engine.ts'

const claimNonce = new Uint8Array(32).fill(1)
const freshNonce = Uint8Array.from({ length: 32 }, (_, at) => 255 - at)
const fresh = toBase64Url(freshNonce)

function claimedAs({ name, hostname, publicKey }: Instance): ClaimedAs {
  return claimedOf({ organization: 'acme', name, hostname, publicKey })
}

/** An appliance with a VM that answers as a test says; right, unless it says otherwise. */
async function withGuest(changes: Changes = {}) {
  const guest = {
    claimed: null as ClaimedAs | null,
    answer: async (nonce: Uint8Array): Promise<VmEvidence> => {
      if (guest.claimed === null) throw new Error('nobody has claimed it')
      return evidenceOf({ nonce, claimed: guest.claimed })
    },
    asked: [] as string[],
    handed: 0,
  }
  const appliance = await startAppliance({
    trust: simulatedTrust,
    engine: {
      evidence: (vmId, nonce) => {
        guest.asked.push(vmId)
        return guest.answer(nonce)
      },
      handReceipt: async () => {
        guest.handed += 1
      },
    },
    ...changes,
  })
  return { appliance, guest }
}

/** As the reconciler leaves it. */
async function makeReady(appliance: Appliance): Promise<Instance> {
  const instance = await appliance.create()
  const claimed = claimedAs(instance)
  const document = toAttestation(await evidenceOf({ nonce: claimNonce, claimed }), { nonce: claimNonce, claimed })
  const nowMs = appliance.clock.nowMs()
  appliance.store.transact(tx => {
    moveInstance(tx, { id: instance.id, from: 'provisioning', to: 'ready', nowMs, readyAtMs: nowMs })
    storeAttestation(tx, {
      instanceId: instance.id,
      nonce: document.nonce,
      sshHostKey: guestHostKey,
      attestedAtMs: nowMs,
      document: JSON.stringify(document),
    })
  })
  return instance
}

test('without a nonce it is what was made at the claim, with one it is made now', async () => {
  // Goal: envelope, platform header, nonce and known_hosts line; the kept one asks nobody, a fresh one asks the VM
  // once.
  const { appliance, guest } = await withGuest()
  await using _ = appliance
  const instance = await makeReady(appliance)
  guest.claimed = claimedAs(instance)
  const path = `/v1/instances/${instance.name}/attestation`
  const kept = await appliance.send('GET', path)
  expect([kept.status, kept.headers.get('x-strongroom-platform')]).toEqual([200, 'tcg; simulated'])
  expect(kept.data).toMatchObject({
    schemaVersion: 1,
    scope: 'claim-only',
    organization: 'acme',
    name: instance.name,
    hostname: instance.hostname,
    nonce: toBase64Url(claimNonce),
    known_hosts: `${instance.hostname} ${guestHostKey}`,
    public_key: instance.publicKey,
  })
  expect(guest.asked).toEqual([])
  const now = await appliance.send('GET', `${path}?nonce=${fresh}`, { key: appliance.keys.acmeRead })
  expect([now.status, now.headers.get('x-strongroom-platform')]).toEqual([200, 'tcg; simulated'])
  expect(now.data).toMatchObject({ nonce: fresh, known_hosts: `${instance.hostname} ${guestHostKey}` })
  expect(now.data.receipt).not.toEqual(kept.data.receipt)
  expect([guest.asked, guest.handed]).toEqual([[String(instance.vmId)], 1])
  expect((await appliance.send('HEAD', path)).status).toBe(200)

  const again = await appliance.restart()
  expect((await again.send('GET', path)).data).toEqual(kept.data)
  expect((await again.send('GET', `${path}?nonce=${fresh}`)).status).toBe(200)
  await again[Symbol.asyncDispose]()
})

test('a query that is not one nonce is refused, naming the field', async () => {
  // Goal: no nonce is guessed from something else, and nobody asks the VM for it.
  const { appliance, guest } = await withGuest()
  await using _ = appliance
  const instance = await makeReady(appliance)
  const path = `/v1/instances/${instance.name}/attestation`
  const cases = [
    ['?nonce=', 'nonce'],
    [`?nonce=${fresh}=`, 'nonce'],
    [`?nonce=${fresh.slice(1)}`, 'nonce'],
    [`?nonce=${'+'.repeat(43)}`, 'nonce'],
    // 43 characters whose last one has bits that no byte has.
    [`?nonce=${'A'.repeat(42)}B`, 'nonce'],
    [`?nonce=${fresh}&nonce=${fresh}`, 'nonce'],
    [`?nonce=${fresh}&format=cbor`, 'format'],
    ['?Nonce=a', 'Nonce'],
    ['?nonce%5B%5D=a', 'nonce[]'],
  ] as const
  for (const [query, param] of cases) {
    const { status, error } = await appliance.send('GET', path + query)
    expect([query, status, error.code, error.param]).toEqual([query, 400, 'invalid_request', param])
  }
  expect(guest.asked).toEqual([])
})

test('another organization learns nothing, and a missing key is told so first', async () => {
  // Goal: 404 as if there were no such instance; the VM is never asked.
  const { appliance, guest } = await withGuest()
  await using _ = appliance
  const instance = await makeReady(appliance)
  for (const query of ['', `?nonce=${fresh}`]) {
    const path = `/v1/instances/${instance.name}/attestation${query}`
    const answer = await appliance.send('GET', path, { key: appliance.keys.globex })
    expect([answer.status, answer.error.code]).toEqual([404, 'not_found'])
    expect((await appliance.send('GET', path, { key: null })).status).toBe(401)
    expect((await appliance.send('GET', `/v1/instances/zzzz9999/attestation${query}`)).status).toBe(404)
  }
  expect((await appliance.send('POST', `/v1/instances/${instance.name}/attestation`)).status).toBe(405)
  expect(guest.asked).toEqual([])
})

test('an instance that is not ready has no fresh attestation, and says what to do', async () => {
  // Goal: 409 by status; what was made at the claim is kept as long as the record is.
  const { appliance, guest } = await withGuest()
  await using _ = appliance
  const instance = await makeReady(appliance)
  const unready = await appliance.create()
  const ask = (name: string, query = `?nonce=${fresh}`) =>
    appliance.send('GET', `/v1/instances/${name}/attestation${query}`)
  for (const query of ['', `?nonce=${fresh}`]) {
    const { status, error } = await ask(unready.name, query)
    expect([status, error.code]).toEqual([409, 'conflict'])
    expect(String(error.message)).toContain('wait until its status is ready')
  }
  await appliance.send('DELETE', `/v1/instances/${instance.name}`)
  expect(await ask(instance.name)).toMatchObject({ status: 409, error: { code: 'conflict' } })
  expect((await ask(instance.name, '')).status).toBe(200)
  const nowMs = appliance.clock.nowMs()
  const { id } = instance
  moveInstance(appliance.store.db, {
    id,
    from: 'terminating',
    to: 'terminated',
    nowMs,
    terminatedAtMs: nowMs,
    vmId: null,
  })
  expect(await ask(instance.name)).toMatchObject({ status: 409, error: { code: 'conflict' } })
  expect((await ask(instance.name, '')).status).toBe(200)
  expect(guest.asked).toEqual([])
})

test('a ready instance from before there were attestations says so', async () => {
  // Goal: no attestation is made up for it.
  const { appliance } = await withGuest()
  await using _ = appliance
  const { id, name } = await appliance.create()
  const nowMs = appliance.clock.nowMs()
  moveInstance(appliance.store.db, { id, from: 'provisioning', to: 'ready', nowMs, readyAtMs: nowMs })
  const { status, error } = await appliance.send('GET', `/v1/instances/${name}/attestation`)
  expect([status, error.message]).toEqual([
    409,
    'The instance was made before instances were attested; create another one to have it attested.',
  ])
})

test('what a VM of an earlier release proved, which states no claim document, is a conflict and no crash', async () => {
  // Goal: nobody is shown less than owners ask for today, and the words say what to do.
  const { appliance, guest } = await withGuest()
  await using _ = appliance
  const instance = await makeReady(appliance)
  const kept = attestationOf(appliance.store.db, instance.id)
  if (kept === null) throw new Error('it is kept')
  const { claim: __, ...older } = JSON.parse(kept.document)
  storeAttestation(appliance.store.db, { ...kept, document: JSON.stringify(older) })
  for (const query of ['', `?nonce=${fresh}`]) {
    const answer = await appliance.send('GET', `/v1/instances/${instance.name}/attestation${query}`)
    expect([answer.status, answer.error.code]).toEqual([409, 'conflict'])
    expect(String(answer.error.message)).toContain('before its whole claim was attested; create another one')
  }
  expect(guest.asked).toEqual([])
})

test('a VM that does not answer, missing certificates, and evidence that is not good are 503 with Retry-After', async () => {
  // Goal: clients see nothing internal; evidence that does not verify is never served, and the operator reads why.
  const { appliance, guest } = await withGuest()
  await using _ = appliance
  const instance = await makeReady(appliance)
  const claimed = claimedAs(instance)
  const path = `/v1/instances/${instance.name}/attestation?nonce=${fresh}`
  const answers: [typeof guest.answer, string][] = [
    [() => Promise.reject(new Fault('channel.timeout', 'secret inside')), 'does not answer'],
    [() => Promise.reject(new Fault('attest.unavailable', 'secret inside')), 'certificates'],
    [nonce => evidenceOf({ nonce, claimed: { ...claimed, organization: 'globex' } }), 'does not verify'],
    [() => evidenceOf({ nonce: claimNonce, claimed }), 'does not verify'],
  ]
  for (const [answer, words] of answers) {
    guest.answer = answer
    const got = await appliance.send('GET', path)
    expect([got.status, got.headers.get('retry-after'), got.error.code]).toEqual([503, '5', 'internal_error'])
    expect(String(got.error.message)).toContain(words)
    expect(got.text).not.toContain('secret')
  }
  expect(guest.handed).toBe(0)
  expect(appliance.logged.some(line => line.includes('expected-organization'))).toBe(true)
  // An unforeseen failure is explained to nobody.
  guest.answer = () => Promise.reject(new Error('secret inside'))
  const unforeseen = await appliance.send('GET', path)
  expect([unforeseen.status, unforeseen.error.message]).toEqual([500, 'An unexpected error occurred.'])
})

test('one fresh attestation of a VM at a time, and so many per minute of a key', async () => {
  // Goal: a tenant cannot occupy the engine; what is kept is served all the same.
  const { appliance, guest } = await withGuest({ attestationsPerMinute: 3 })
  await using _ = appliance
  const instance = await makeReady(appliance)
  const path = `/v1/instances/${instance.name}/attestation`
  const gate = Promise.withResolvers<void>()
  const begun = Promise.withResolvers<void>()
  guest.answer = async nonce => {
    begun.resolve()
    await gate.promise
    return evidenceOf({ nonce, claimed: claimedAs(instance) })
  }
  const first = appliance.send('GET', `${path}?nonce=${fresh}`)
  await begun.promise
  const second = await appliance.send('GET', `${path}?nonce=${fresh}`)
  expect([second.status, second.headers.get('retry-after')]).toEqual([429, '1'])
  gate.resolve()
  expect((await first).status).toBe(200)
  expect((await appliance.send('GET', `${path}?nonce=${fresh}`)).status).toBe(200)
  const fourth = await appliance.send('GET', `${path}?nonce=${fresh}`)
  expect([fourth.status, fourth.headers.get('retry-after')]).toEqual([429, '20'])
  expect(String(fourth.error.message)).toContain('3 fresh attestations per minute')
  expect(guest.asked.length).toBe(2)
  expect((await appliance.send('GET', path)).status).toBe(200)
  // Another key has a rate of its own.
  const other = await appliance.send('GET', `${path}?nonce=${fresh}`, { key: appliance.keys.acmeRead })
  expect(other.status).toBe(200)
})
