// Fetches and judges a gateway's evidence for a fresh nonce. Effects: through the given transport, clock and
// randomness.

import type { HybridVerifiers } from '../../attest/receipt/hybrid-verify.ts'
import type { PublicKeys } from '../../attest/receipt/public-keys.ts'
import { type Check, fail } from '../../attest/verdict.ts'
import { present } from '../../base/assert.ts'
import { fromUtf8, toBase64Url } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { workloadBytesMax } from '../../contract/vm/workload.ts'
import { attestationBytesMax, freshAgeMsMax, type GatewayVerdict, judgeGateway, nonceBytes } from '../gateway.ts'
import { workloadIn } from '../workload.ts'
import { EvidenceError, VerificationError } from './errors.ts'
import type { Settings } from './options.ts'
import type { EvidenceAnswer, EvidenceAnswers, Transport } from './transport.ts'

/** Verified evidence with its expiry. */
export type Evidence = {
  /** Time of verification by this machine's clock, in milliseconds since 1970. */
  readonly verifiedAtMs: number
  /** No new request relies on it after this time. */
  readonly validUntilMs: number
  /** True if no hardware attests it: it depends on the root in `simulatedRoot`. */
  readonly simulated: boolean
  /** Every check, including skipped ones. */
  readonly checks: readonly Check[]
  /** The whole verdict, with each receipt's own, and workload.json, which names models outside of the measured VM. */
  readonly verdict: GatewayVerdict
  /** SHA-256 of the public key (SPKI) with which the gateway terminates TLS, from its verified statement. */
  readonly tlsSpkiDigest: Uint8Array
  /** The gateway's public keys; bodies are encrypted to `x25519` and `mlkem768`. */
  readonly keys: PublicKeys
}

export type EvidenceDeps = {
  readonly settings: Settings
  readonly transport: Transport
  readonly clock: Clock
  readonly random: RandomBytes
  readonly verifiers: HybridVerifiers
}

type VerifiedEvidence = {
  readonly evidence: Evidence
  /** The gateway's replay epoch in hexadecimal; null if the response contains none. */
  readonly epoch: string | null
}

/**
 * Fetches and verifies evidence. Throws EvidenceError if none arrives in time, VerificationError if it does not meet
 * the policy.
 */
export async function takeEvidence({
  settings,
  transport,
  clock,
  random,
  verifiers,
}: EvidenceDeps): Promise<VerifiedEvidence> {
  const { origin, prefix, trust, limits } = settings
  const nonce = random(nonceBytes)
  const questions = [
    { url: new URL(`${prefix}/attestation?nonce=${toBase64Url(nonce)}`, origin), bodyBytesMax: attestationBytesMax },
    // Any host may serve it: HOST_DATA and the receipts contain its digest.
    ...(trust.workload === null
      ? [{ url: new URL(`${prefix}/workload.json`, origin), bodyBytesMax: workloadBytesMax }]
      : []),
  ]
  const { answers, tlsSpkiDigest } = await inTime(limits.evidenceTimeoutMs, clock, origin, signal =>
    transport.askEvidence(questions, signal),
  )
  const [attestation, workload] = answers
  if (attestation?.status !== 200) throw toEvidenceError(origin, attestation)
  if (workload !== undefined && workload.status !== 200 && workload.status !== 404)
    throw toEvidenceError(origin, workload)
  const nowMs = clock.nowMs()
  const verdict = await judgeGateway(attestation.body, {
    ...trust,
    verifiers,
    workload: workload === undefined ? trust.workload : workloadIn(workload),
    nonce,
    asOf: nowMs,
    ageMsMax: freshAgeMsMax,
    tlsSpkiDigest,
  })
  const { keys, gateway, simulated, checks } = verdict
  const attestedKey = gateway?.tlsSpkiDigest ?? null
  const details = verdict.receipts.flatMap(receipt => receipt.verdict.checks)
  if (!verdict.ok) throw new VerificationError(origin.host, checks, details)
  if (keys === null || attestedKey === null) {
    const missing = fail('tls-binding', "the gateway's receipt names no TLS key")
    throw new VerificationError(origin.host, [...checks, missing], details)
  }
  const evidence = {
    verifiedAtMs: nowMs,
    validUntilMs: nowMs + limits.evidenceAgeMaxMs,
    simulated,
    checks,
    verdict,
    tlsSpkiDigest: attestedKey,
    keys,
  }
  return { evidence, epoch: attestation.epoch }
}

async function inTime(
  timeoutMs: number,
  clock: Clock,
  { host }: URL,
  ask: (signal: AbortSignal) => Promise<EvidenceAnswers>,
): Promise<EvidenceAnswers> {
  const late = new AbortController()
  const answered = new AbortController()
  const timeout = clock.sleep(timeoutMs, answered.signal).then(() => {
    late.abort()
    throw new Error(`nothing within ${timeoutMs} ms`)
  })
  try {
    return await Promise.race([ask(late.signal), timeout])
  } catch (error) {
    const message = `no evidence from ${host}: ${messageOf(error)}. What to do: check address and network, and \`ca\` if it is about the certificate; then try again`
    throw new EvidenceError(message, { status: null, cause: error })
  } finally {
    answered.abort()
    timeout.catch(() => {})
  }
}

/** Converts a status other than 200 to an error, which quotes the body as unverified text. */
function toEvidenceError({ host }: URL, answer: EvidenceAnswer | undefined): EvidenceError {
  const { status, retryAfter, body } = present(answer, 'an answer for each question')
  const wait = retryAfter === null || !/^\d{1,6}$/.test(retryAfter) ? 'later' : `in ${retryAfter} s`
  const isTransient = status === 429 || status === 503
  const advice = isTransient ? `try again ${wait}` : 'check the address: it must be that of a gateway'
  return new EvidenceError(`no evidence from ${host}: status ${status}${codeOf(body)}. What to do: ${advice}`, {
    status,
  })
}

const errorBytesMax = 4096

function codeOf(body: Uint8Array): string {
  try {
    const code: unknown = JSON.parse(fromUtf8(body.subarray(0, errorBytesMax))).error.code
    return typeof code === 'string' && /^[a-z_]{1,64}$/.test(code) ? `, ${code}` : ''
  } catch {
    return ''
  }
}
