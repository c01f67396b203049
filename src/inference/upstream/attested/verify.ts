// Verifies an outside upstream against its policy, by fresh evidence that names the TLS key of its connection. Effects:
// connections to the upstream, the collateral's file.
//
// snp: the upstream is a gateway like this one. Its receipts are verified under its workload.json, with the code that
// every client uses, and its prompts must stay in its VM. tdx: one document for the nonce
// (attest/tdx/upstream-evidence.ts).

import { readFileSync } from 'node:fs'
import { AMD_ROOTS } from '../../../attest/amd/roots.ts'
import { parsed } from '../../../attest/malformed.ts'
import type { Policy } from '../../../attest/policy/policy.ts'
import { webVerifiers } from '../../../attest/receipt/hybrid-verify.ts'
import { INTEL_ROOT, type TdxRoot } from '../../../attest/tdx/chain.ts'
import type { TdxPolicy } from '../../../attest/tdx/policy.ts'
import {
  parseUpstreamEvidence,
  upstreamEvidenceBytesMax,
  upstreamReportData,
} from '../../../attest/tdx/upstream-evidence.ts'
import { verifyTdxQuote } from '../../../attest/tdx/verify.ts'
import type { Verdict } from '../../../attest/verdict.ts'
import { toBase64Url, toHex, utf8 } from '../../../base/bytes.ts'
import type { Clock } from '../../../base/clock.ts'
import { messageOf } from '../../../base/fault.ts'
import type { RandomBytes } from '../../../base/ids.ts'
import { workloadBytesMax } from '../../../contract/vm/workload.ts'
import { spkiDigestOf } from '../../../linux/keys/spki.ts'
import { getOverTls, type TlsResponse } from '../../../linux/net/tls-get.ts'
import { attestationBytesMax, freshAgeMsMax, judgeGateway, nonceBytes } from '../../../verifier/gateway.ts'
import { allPins } from '../../../verifier/pins.ts'
import { readSimulatedRoot } from '../../../verifier/simulated-root.ts'
import { workloadIn } from '../../../verifier/workload.ts'
import { endpointOf, isPinned, type UpstreamTarget } from '../target.ts'
import { readUpstreamPolicy, type UpstreamAttestation } from './attestation.ts'

export type Attested =
  /** `untilMs`: expiry of the evidence by the wall clock; null if it does not expire. */
  | { readonly ok: true; readonly spkiSha256: string; readonly untilMs: number | null }
  /** `check`: the name of the first failed check. */
  | { readonly ok: false; readonly check: string; readonly reason: string }

export type AttestDeps = { readonly clock: Pick<Clock, 'nowMs'>; readonly random: RandomBytes }

/** A failure before the verdict, which counts under its own name. */
class Unmet extends Error {
  readonly check: string

  constructor(check: string, reason: string) {
    super(reason)
    this.check = check
  }
}

/** Limit for one connection, from its start to the last byte of the answer. */
export const evidenceTimeoutMs = 20_000

type EvidenceQuery = {
  readonly target: UpstreamTarget
  readonly attestation: UpstreamAttestation
  readonly nonce: Uint8Array
  readonly nowMs: number
}

/** Verifies an upstream. Never rejects. */
export async function verifyUpstream(
  target: UpstreamTarget,
  attestation: UpstreamAttestation,
  { clock, random }: AttestDeps,
): Promise<Attested> {
  try {
    const read = readUpstreamPolicy(attestation)
    const asked = { target, attestation, nonce: random(nonceBytes), nowMs: clock.nowMs() }
    return read.kind === 'snp' ? await verifySnp(asked, read.policy) : await verifyTdx(asked, read.policy)
  } catch (error) {
    return { ok: false, check: error instanceof Unmet ? error.check : 'connection', reason: messageOf(error) }
  }
}

async function verifySnp(asked: EvidenceQuery, policy: Policy): Promise<Attested> {
  const { target, attestation, nonce, nowMs } = asked
  const { simulatedRoot } = attestation
  const answer = await evidenceOf(asked, attestationBytesMax)
  // The document's digest is HOST_DATA of the report, so the connection need not be authenticated.
  const workload = await get(target, '/workload.json', workloadBytesMax)
  const spki = spkiDigestOf(answer.certificate)
  const found = await judgeGateway(answer.body, {
    verifiers: webVerifiers,
    nonce,
    asOf: nowMs,
    ageMsMax: freshAgeMsMax,
    roots: simulatedRoot === null ? AMD_ROOTS : [...AMD_ROOTS, readSimulatedRoot(utf8(simulatedRoot))],
    policy,
    // A simulated platform has neither AMD's firmware nor AMD's lists.
    pins: simulatedRoot === null ? allPins : { ...allPins, tcb: 'any', crl: 'any' },
    crl: undefined,
    allowlist: 'any',
    tlsSpkiDigest: spki,
    configurationDigest: 'any',
    workload: workloadIn(workload),
    outside: [],
  })
  return found.ok ? { ok: true, spkiSha256: toHex(spki), untilMs: null } : firstFault(found)
}

async function verifyTdx(asked: EvidenceQuery, policy: TdxPolicy): Promise<Attested> {
  const { attestation, nonce, nowMs } = asked
  const answer = await evidenceOf(asked, upstreamEvidenceBytesMax)
  const evidence = parsed(() => parseUpstreamEvidence(answer.body))
  if (!evidence.ok) return { ok: false, check: 'evidence-format', reason: evidence.reason }
  const { quote, collateral: sent } = evidence.value
  const { collateralFile, simulatedRoot } = attestation
  const collateral = collateralFile === null ? sent : collateralIn(collateralFile)
  if (collateral === null)
    throw new Unmet('collateral', 'it sends no collateral, and attestation_collateral is not set')
  const root: TdxRoot =
    simulatedRoot === null ? INTEL_ROOT : { certificate: simulatedRoot, names: 'SIMULATED SGX', simulated: true }
  const spki = spkiDigestOf(answer.certificate)
  const bound = { ...policy, reportData: upstreamReportData(nonce, spki) }
  const found = await verifyTdxQuote(quote, collateral, { asOfMs: nowMs, policy: bound, root })
  if (!found.ok) return firstFault(found)
  return { ok: true, spkiSha256: toHex(spki), untilMs: found.untilMs }
}

async function evidenceOf({ target, attestation, nonce }: EvidenceQuery, bodyBytesMax: number): Promise<TlsResponse> {
  const answer = await get(target, `${attestation.path}?nonce=${toBase64Url(nonce)}`, bodyBytesMax)
  if (answer.status !== 200)
    throw new Unmet('evidence-status', `${attestation.path} answered with status ${answer.status}`)
  return answer
}

/** Fetches a document from the server that would get the prompts, with the same authorities and configured keys. */
async function get(target: UpstreamTarget, path: string, bodyBytesMax: number): Promise<TlsResponse> {
  const url = new URL(path, target.url)
  const answer = await getOverTls({ url, ca: target.ca ?? undefined, timeoutMs: evidenceTimeoutMs, bodyBytesMax })
  if (answer.certificateFault !== null)
    throw new Unmet('tls-certificate', `its certificate: ${answer.certificateFault}`)
  if (!isPinned(endpointOf(target).configuredPins, answer.certificate))
    throw new Unmet('tls-key', 'its key is not pinned')
  return answer
}

function collateralIn(path: string): Uint8Array {
  try {
    return new Uint8Array(readFileSync(path))
  } catch (error) {
    throw new Unmet('collateral', messageOf(error))
  }
}

function firstFault({ checks }: Verdict): Attested {
  const failed = checks.filter(({ outcome }) => outcome === 'fail')
  // A group of checks only reports that another one in it failed.
  const telling = failed.find(({ reason }) => !reason.startsWith('evidence: ')) ?? failed[0]
  const bad = telling ?? checks.find(({ outcome, required }) => outcome === 'not-checked' && required)
  const check = bad?.name ?? 'verdict'
  return { ok: false, check, reason: bad === undefined ? 'the verdict is not good' : `${bad.name}: ${bad.reason}` }
}
