// Inference provider attestation: the gateway's own evidence, asked for with a fresh nonce over the very connection. Effects: the network.

import { createHash, X509Certificate } from 'node:crypto'
import type { TrustedRoot } from '../../attest/amd/roots.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import { type Check, check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { toBase64Url, utf8 } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { workloadBytesMax } from '../../contract/workload.ts'
import { getOverTls, type TlsResponse } from '../../linux/tls-get.ts'
import type { ExpectedAllowlist } from '../../verifier/allowlist.ts'
import { attestationBytesMax, freshAgeMsMax, nonceBytes, verifyGateway } from '../../verifier/gateway.ts'
import { allPins } from '../../verifier/pins.ts'
import { workloadIn } from '../../verifier/workload.ts'
import { jsonOf } from '../wire.codec.ts'
import { type Line, lineOf } from './line.ts'

export type GatewayLineQuestion = {
  /** Null when the instance has no gateway. */
  readonly baseUrl: string | null
  /** PEM; null: the system's authorities. */
  readonly ca: string | null
  readonly nowMs: () => number
  readonly random: RandomBytes
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  readonly allowlist: ExpectedAllowlist | 'any'
  readonly timeoutMs: number
  readonly get?: typeof getOverTls
}

const name = 'inference provider attestation'

export async function judgeGateway(question: GatewayLineQuestion): Promise<Line> {
  const { baseUrl, ca, timeoutMs, get = getOverTls } = question
  const url = baseUrl === null ? null : URL.parse(baseUrl)
  if (url === null) return lineOf(name, [notChecked('gateway', 'this instance has no inference gateway', true)], '')
  if (url.protocol !== 'https:') {
    return lineOf(name, [fail('connection', `${url.origin} is not https: nobody vouches for such a connection`)], '')
  }
  const nonce = question.random(nonceBytes)
  const address = new URL(`/attestation?nonce=${toBase64Url(nonce)}`, url)
  let response: TlsResponse
  try {
    response = await get({ url: address, ca: ca ?? undefined, timeoutMs, bodyBytesMax: attestationBytesMax })
  } catch (error) {
    return lineOf(name, [notChecked('connection', `${url.host}: ${messageOf(error)}`, true)], '')
  }
  const { certificateFault, status, body, certificate } = response
  const connection = [
    pass('connection', url.host),
    check('tls-certificate', certificateFault === null, certificateFault ?? ''),
  ]
  if (status !== 200) {
    return lineOf(
      name,
      [...connection, notChecked('attestation', `${url.host} answers ${status}: ${problemIn(body)}`, true)],
      '',
    )
  }
  const { roots, policy, allowlist } = question
  const workload = await fetchWorkload(question, url)
  const found = await verifyGateway(body, {
    ...{ nonce, asOf: question.nowMs(), ageMsMax: freshAgeMsMax, roots, policy, pins: allPins },
    ...{ crl: undefined, allowlist, configurationDigest: 'any', workload },
    tlsSpkiDigest: spkiDigestOf(certificate),
  })
  const good = `${url.host}, over its own TLS key${found.simulated ? ' (SIMULATED)' : ''}`
  return lineOf(name, [...connection, ...found.checks.map(pinAsAdvice)], good)
}

/** Whoever hands it out: the receipts name its digest. Null: the gateway has none. */
async function fetchWorkload(
  { ca, timeoutMs, get = getOverTls }: GatewayLineQuestion,
  url: URL,
): Promise<Uint8Array | null> {
  const address = new URL('/workload.json', url)
  try {
    return workloadIn(await get({ url: address, ca: ca ?? undefined, timeoutMs, bodyBytesMax: workloadBytesMax }))
  } catch {
    // Then the receipts, which name one, do not verify.
    return null
  }
}

/** Nothing is wrong with the gateway when its owner names nothing to compare it with: then it was not checked. */
function pinAsAdvice(one: Check): Check {
  const isPin = one.name.startsWith('pin-') && one.outcome === 'fail'
  return isPin ? { ...one, outcome: 'not-checked', reason: one.reason.replace(/, or say 'any'$/, '') } : one
}

function spkiDigestOf(certificate: Uint8Array): Uint8Array {
  const { publicKey } = new X509Certificate(Buffer.from(certificate))
  return new Uint8Array(
    createHash('sha256')
      .update(publicKey.export({ format: 'der', type: 'spki' }))
      .digest(),
  )
}

/** The message of an error document, where the body is one. */
function problemIn(body: Uint8Array): string {
  const text = Buffer.from(body.subarray(0, 4_096)).toString('utf8')
  const message: unknown = Reflect.get(Object(Reflect.get(Object(jsonOf(text)), 'error')), 'message')
  return typeof message === 'string' ? message : 'no attestation'
}

/** Where the packaged agent finds the gateway: baseURL of the provider that the claim wrote. Null when there is none. */
export function gatewayIn(opencodeConfig: string | null): string | null {
  let value: unknown = jsonOf(opencodeConfig ?? 'null')
  for (const key of ['provider', 'strongroom', 'options', 'baseURL']) value = Reflect.get(Object(value), key)
  return typeof value === 'string' && utf8(value).length <= 2_048 ? value : null
}
