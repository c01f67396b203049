// The owner of an instance with an attested claim: asks for its evidence and checks it offline, by nothing but the
// document. Effects: requests, ssh processes, files in the appliance's directory.

import { expect } from 'bun:test'
import { randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Answer, decode } from 'dns-packet'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import type { Customer, Envelope } from '../../../scripts/rigs/instances/instances-client.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { AMD_ROOTS, type TrustedRoot } from '../../../src/attest/amd/roots.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { parsed } from '../../../src/attest/malformed.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { verifyReceipt } from '../../../src/attest/receipt/verifiers.ts'
import type { ReceiptVerdict } from '../../../src/attest/receipt/verify.ts'
import { fromBase64Url, fromHex, toBase64Url, toHex, utf8 } from '../../../src/base/bytes.ts'
import { checked, checkedJson } from '../../../src/contract/check.ts'
import { InstanceAttestation } from '../../../src/contract/http/instance-attestation.ts'
import { LaunchDocument } from '../../../src/contract/vm/launch.ts'
import { sshKeyDigest } from '../../../src/instances/public-key.codec.ts'
import { expectedClaim, readClaim } from '../../../src/verifier/claim.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'
import { query } from '../dns/query.ts'

const stepMs = 120_000

type Expecting = {
  readonly nonce: string
  readonly organization: string
  readonly name: string
  readonly hostname: string
}

/** The owner's verification, with only the document from the daemon, and the root that the owner trusts. */
export async function verifyAttested(
  { receipt, launch, claim, known_hosts, public_key }: InstanceAttestation,
  { nonce, organization, name, hostname }: Expecting,
  { roots, operatorKey }: { roots: readonly TrustedRoot[]; operatorKey: Uint8Array },
): Promise<ReceiptVerdict<'claim'>> {
  const document = checkedJson(LaunchDocument, utf8(launch), { what: 'launch', code: 'internal' })
  const [host, ...hostKey] = known_hosts.split(' ')
  expect(host).toBe(hostname)
  return verifyReceipt(receipt, {
    kind: 'claim',
    nonce: fromBase64Url(nonce) ?? new Uint8Array(),
    asOf: Date.now(),
    ageMsMax: 'any',
    roots,
    requireCrl: true,
    policy: {
      ...strictPolicy(),
      measurements: [fromHex(document.measurement) ?? new Uint8Array()],
      hostData: sha256(utf8(launch)),
      idKeyDigest: operatorKey,
    },
    expected: {
      imageName: { equals: 'instance' },
      operatorKey: { equals: operatorKey },
      organization: { equals: organization },
      name: { equals: name },
      hostname: { equals: hostname },
      sshHostKeyDigest: { equals: sshKeyDigest(hostKey.join(' ')) },
      publicKeyDigest: { equals: sshKeyDigest(public_key) },
      ...expectedClaim(parsed(() => readClaim(claim))),
      loginKeys: { equals: null },
      egressPolicy: 'any',
      secrets: { equals: null },
      published: { equals: null },
    },
    tpm: 'any',
  })
}

export function failed({ checks }: ReceiptVerdict<'claim'>): string[] {
  return checks.filter(({ outcome }) => outcome === 'fail').map(({ name }) => name)
}

export type OwnersTrust = Awaited<ReturnType<typeof trustOf>>

/** As an owner has it who was given the simulated root and the operator's public key. */
export async function trustOf({ stateDir }: Appliance) {
  const root = readSimulatedRoot(readFileSync(join(stateDir, 'simulator/root.pem')))
  const pem = readFileSync(join(stateDir, 'operator-key.pub.pem'), 'utf8')
  const spki = Buffer.from(pem.replaceAll(/-----[A-Z ]+-----|\s/g, ''), 'base64')
  const key = await crypto.subtle.importKey('spki', spki, { name: 'ECDSA', namedCurve: 'P-384' }, true, ['verify'])
  return { roots: [root], operatorKey: await idKeyDigest(await publicIdKey(key)) }
}

export const newNonce = () => toBase64Url(randomBytes(32))

export async function ask(appliance: Appliance, { key }: Pick<Customer, 'key'>, name: string, nonce?: string) {
  const path = `/v1/instances/${name}/attestation${nonce === undefined ? '' : `?nonce=${nonce}`}`
  return appliance.http<Envelope<unknown>>('GET', path, { key })
}

export async function attestation(...asked: Parameters<typeof ask>): Promise<InstanceAttestation> {
  const { status, body, headers } = await ask(...asked)
  expect([status, body.error?.message]).toEqual([200, undefined])
  expect(headers.get('x-strongroom-platform')).toBe('tcg; simulated')
  return checked(InstanceAttestation, body.data, { what: 'attestation', code: 'internal' })
}

/** Fingerprints by the appliance's own DNS; null if there is no such name. */
export async function fingerprintsOf(hostname: string): Promise<string[] | null> {
  const answered = Promise.withResolvers<Buffer>()
  const socket = await Bun.udpSocket({ socket: { data: (_, bytes) => answered.resolve(bytes) } })
  socket.send(query({ name: hostname, type: 'SSHFP' }), 53, '127.0.0.1')
  const timer = setTimeout(() => answered.reject(new Error('the DNS does not answer')), 60_000)
  try {
    const packet = decode(await answered.promise)
    if (Reflect.get(packet, 'rcode') !== 'NOERROR') return null
    return (packet.answers ?? []).map((record: Answer) =>
      record.type === 'SSHFP' ? `${record.data.algorithm} ${record.data.hash} ${record.data.fingerprint}` : record.type,
    )
  } finally {
    clearTimeout(timer)
    socket.close()
  }
}

/** An instance, and the evidence that its owner kept of its claim. */
export type Attested = {
  readonly appliance: Appliance
  readonly acme: Customer
  readonly name: string
  readonly hostname: string
  readonly kept: InstanceAttestation
  readonly trust: OwnersTrust
}

/** Good with the simulated root alone, for this nonce, instance and organization alone; plain ssh can use it. */
export async function theEvidence(attested: Attested, other: Customer): Promise<void> {
  const { appliance, acme, name, hostname, kept, trust } = attested
  const expecting = { organization: 'acme', name, hostname }
  const good = await verifyAttested(kept, { ...expecting, nonce: kept.nonce }, trust)
  expect([good.ok, good.simulated, failed(good)]).toEqual([true, true, []])
  const unbelieved = await verifyAttested(kept, { ...expecting, nonce: kept.nonce }, { ...trust, roots: AMD_ROOTS })
  expect(unbelieved.ok).toBe(false)

  const nonce = newNonce()
  const fresh = await attestation(appliance, acme, name, nonce)
  expect((await verifyAttested(fresh, { ...expecting, nonce }, trust)).ok).toBe(true)
  expect(fresh.known_hosts).toBe(kept.known_hosts)
  const replays: [Partial<Expecting>, string][] = [
    [{ nonce: newNonce() }, 'statement-nonce'],
    [{ name: 'zzzz9999' }, 'expected-name'],
    [{ organization: 'other' }, 'expected-organization'],
  ]
  for (const [change, check] of replays) {
    const replayed = await verifyAttested(fresh, { ...expecting, nonce, ...change }, trust)
    expect([replayed.ok, failed(replayed)]).toEqual([false, [check]])
  }
  expect((await ask(appliance, other, name, newNonce())).status).toBe(404)

  // The verifier inside has the newest receipt.
  const inside = await appliance.ssh(hostname, ['cat /run/strongroom/receipt.json'])
  expect(JSON.parse(inside.stdout)).toEqual(fresh.receipt)

  const strictly = async (line: string) => {
    const file = join(appliance.directory, 'attested_hosts')
    writeFileSync(file, `${line}\n`)
    const options = ['-o', 'StrictHostKeyChecking=yes', '-o', `UserKnownHostsFile=${file}`]
    return (await appliance.sshWith(options, hostname, ['true'])).exitCode
  }
  expect(await strictly(fresh.known_hosts)).toBe(0)
  // The same line with another key, which is 32 bytes at its end.
  expect(await strictly(fresh.known_hosts.replace(/.{43}$/, 'A'.repeat(43)))).toBe(255)
  const digest = toHex(sshKeyDigest(fresh.known_hosts.slice(hostname.length + 1))).toUpperCase()
  expect(await fingerprintsOf(hostname)).toEqual([`4 2 ${digest}`])
}

/** A daemon that is killed while it claims makes the same VM ready. Gives the instance's record. */
export async function readyDespiteKill(appliance: Appliance, acme: Customer, name: string, bootedMs: number) {
  type Shown = { vm: { id: string; state: string } | null }
  const vmOf = async () => (await appliance.admin<Shown>('instance', 'show', `acme/${name}`)).vm
  await until('its VM runs', bootedMs, async () => (await vmOf())?.state === 'running')
  const started = await vmOf()
  await appliance.kill()
  await appliance.start()
  const ready = await acme.reached(name, 'ready', bootedMs)
  expect((await vmOf())?.id).toBe(started?.id)
  return ready
}

/** The same after the daemon has been killed, and once the operator has taken another key. */
export async function theEvidenceLater(attested: Attested, replaceOperatorKey: () => Promise<void>): Promise<void> {
  const { appliance, acme, name, hostname, kept, trust } = attested
  const expecting = { organization: 'acme', name, hostname }
  const foundAgain = () =>
    until('the daemon has found its VM again', stepMs, async () => {
      const { status } = await ask(appliance, acme, name, newNonce())
      if (![200, 503].includes(status)) throw new Error(`status ${status}`)
      return status === 200
    })
  await appliance.kill()
  await appliance.start()
  await foundAgain()
  const later = newNonce()
  const again = await attestation(appliance, acme, name, later)
  expect((await verifyAttested(again, { ...expecting, nonce: later }, trust)).ok).toBe(true)
  expect([again.known_hosts, again.launch]).toEqual([kept.known_hosts, kept.launch])
  expect(await attestation(appliance, acme, name)).toEqual(kept)
  const shown = await appliance.admin<{ attested_at: string | null }>('instance', 'show', `acme/${name}`)
  expect(shown.attested_at).not.toBeNull()

  // The VM keeps the key of its launch, for this host and for whoever has pinned it.
  await replaceOperatorKey()
  await foundAgain()
  const latest = newNonce()
  const afterChange = await attestation(appliance, acme, name, latest)
  const changed = await trustOf(appliance)
  expect(toHex(changed.operatorKey)).not.toBe(toHex(trust.operatorKey))
  expect((await verifyAttested(afterChange, { ...expecting, nonce: latest }, trust)).ok).toBe(true)
  expect((await verifyAttested(afterChange, { ...expecting, nonce: latest }, changed)).ok).toBe(false)
}
