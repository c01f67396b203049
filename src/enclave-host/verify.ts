// Verifies a gateway VM the way its clients do: five receipts over the connection that they name. Effects: one
// connection.

import { sha256 } from '../attest/hash.ts'
import { outsideEntry } from '../attest/receipt/outside.ts'
import { toBase64Url, utf8 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import { checkedJson } from '../contract/check.ts'
import { encodeAllowlist, parseAllowlist } from '../contract/vm/allowlist.ts'
import { exposuresIn } from '../contract/vm/exposure.ts'
import { WorkloadDocument } from '../contract/vm/workload.ts'
import { spkiDigestOf } from '../linux/keys/spki.ts'
import { getOverTls } from '../linux/net/tls-get.ts'
import { attestationBytesMax, freshAgeMsMax, nonceBytes } from '../verifier/gateway.ts'
import { allPins } from '../verifier/pins.ts'
import { verifyGateway } from '../verifier/verify-gateway.ts'
import {
  type HostTrust,
  launchPolicy,
  type RecordedLaunch,
  strangeOperatorKey,
} from '../vm/evidence/launch-policy.plan.ts'

export type VerifyDeps = {
  readonly trust: () => Promise<HostTrust>
  readonly clock: Clock
  readonly random: RandomBytes
}

export type VerifiedGatewayVm = {
  /** The VM's Ed25519 receipt key, base64url. */
  readonly receiptKey: string
}

/** Fields that a gateway VM reports, before or without verification. */
export type UnverifiedGatewayVm = VerifiedGatewayVm

/** Whether the gateway attests: that takes five receipts, one of them of the built-in worker (contract 4.2). */
export function isAttestable(workload: string): boolean {
  return readWorkload(workload).worker !== null
}

function readWorkload(workload: string): WorkloadDocument {
  return checkedJson(WorkloadDocument, utf8(workload), { what: 'workload', code: 'internal' })
}

const timeoutMs = 60_000

/**
 * Verifies a gateway VM. Throws Fault attest.unavailable for no answer, or a bad one; the message names the first
 * failed check.
 */
export async function verifyGatewayVm(
  { trust, clock, random }: VerifyDeps,
  { url, launch }: { readonly url: string; readonly launch: RecordedLaunch },
): Promise<VerifiedGatewayVm> {
  const believed = await trust()
  const strange = strangeOperatorKey(believed, launch.operatorKey)
  if (strange !== null) throw unfit(strange)
  const { workload } = launch
  if (workload === null) throw unfit('it was launched without a workload')
  const document = readWorkload(workload)
  const nonce = random(nonceBytes)
  const address = new URL(`/attestation?nonce=${toBase64Url(nonce)}`, url)
  const { status, body, certificate } = await getOverTls({
    url: address,
    ca: undefined,
    timeoutMs,
    bodyBytesMax: attestationBytesMax,
  })
  if (status !== 200) throw unfit(`/attestation answered with status ${status}`)
  const bytes = utf8(encodeAllowlist(document.allowlist))
  const allowlist = parseAllowlist(bytes)
  if (!allowlist.ok) throw unfit(`its allowlist: ${allowlist.problem}`)
  const found = await verifyGateway(body, {
    nonce,
    asOf: clock.nowMs(),
    ageMsMax: freshAgeMsMax,
    roots: believed.roots,
    policy: launchPolicy(launch),
    pins: believed.simulated ? { ...allPins, tcb: 'any', crl: 'any' } : { ...allPins, tcb: 'any' },
    crl: undefined,
    allowlist: { allowlist: allowlist.value, digest: sha256(bytes) },
    tlsSpkiDigest: spkiDigestOf(certificate),
    configurationDigest: sha256(utf8(workload)),
    workload: utf8(workload),
    // The host launched it with these.
    outside: document.upstreams.map(({ name, url }) => outsideEntry(name, url)),
    allow: exposuresIn(document.gateway),
  })
  const bad = found.checks.find(
    check => check.outcome === 'fail' || (check.outcome === 'not-checked' && check.required),
  )
  if (!found.ok || found.keys === null)
    throw unfit(bad === undefined ? 'its verdict is a failure' : `${bad.name}: ${bad.reason}`)
  return { receiptKey: toBase64Url(found.keys.ed25519) }
}

function unfit(reason: string): Fault {
  return new Fault('attest.unavailable', `the gateway VM: ${reason}`)
}
