// Verifies a gateway's response: its receipt, with the keys of the gateway's verified attestation. Pure.

import { Malformed } from '../attest/malformed.ts'
import type { ResponseClaim } from '../attest/receipt/response.ts'
import { type SplitResponse, splitResponse } from '../attest/receipt/response-read.ts'
import { type ResponseQuestion, verifyResponse } from '../attest/receipt/response-verify.ts'
import { nativeVerifiers } from '../attest/receipt/verifiers.ts'
import { type Check, fail, pass, type Verdict, verdict } from '../attest/verdict.ts'
import type { WorkloadDocument } from '../contract/vm/workload.ts'
import type { GatewayVerdict } from './gateway.ts'
import { attestationWords } from './workload.ts'

export type GatewayResponse = {
  /** The exact body of the request. */
  readonly request: Uint8Array
  /** The exact body of the response; for a stream, including the receipt in it. */
  readonly response: Uint8Array
  /** Value of the header X-Strongroom-Receipt, or the response to GET /v1/receipts/ID; null without either. */
  readonly receipt: string | null
  /** Value of X-Strongroom-Receipt-Salt, for a receipt fetched later. Default: the receipt's own. */
  readonly salt?: Uint8Array | undefined
}

export type GatewayResponseVerdict = Verdict & {
  readonly simulated: boolean
  /** The receipt's claim; null if unreadable. Trust it only in a good verdict. */
  readonly claim: ResponseClaim | null
}

export type ResponseWaivers = {
  /** Allowed upstreams outside of the attestation (`NAME`, `NAME=ORIGIN`), which the verdict names. Default: none. */
  readonly outside?: readonly string[] | undefined
}

/** Returns the checks of the attestation, then those of the receipt. Good only if both are. Never throws. */
export async function verifyGatewayResponse(
  exchange: GatewayResponse,
  attestation: GatewayVerdict,
  waivers: ResponseWaivers = {},
): Promise<GatewayResponseVerdict> {
  const { checks, claim } = await judgeReceipt(exchange, attestation, waivers.outside ?? [])
  const all = verdict([...attestation.checks, ...checks])
  return { ok: all.ok && attestation.ok, checks: all.checks, simulated: attestation.simulated, claim }
}

type JudgedReceipt = { readonly checks: readonly Check[]; readonly claim: ResponseClaim | null }

async function judgeReceipt(
  { request, response, receipt: given, salt }: GatewayResponse,
  { keys, workload }: GatewayVerdict,
  outside: ResponseQuestion['outside'],
): Promise<JudgedReceipt> {
  const name = 'response-receipt'
  const failed = (reason: string): JudgedReceipt => ({ checks: [fail(name, reason)], claim: null })
  let split: SplitResponse
  try {
    split = splitResponse(response)
  } catch (error) {
    if (error instanceof Malformed) return failed(error.message)
    throw error
  }
  const receipt = given ?? split.receipt
  if (receipt === null) return failed('there is no receipt: none in the response, and none was given beside it')
  if (given !== null && split.receipt !== null && given !== split.receipt) {
    return failed('the receipt in the response differs from the one that was given beside it')
  }
  if (keys === null) return failed('the attestation has no keys to verify the receipt with')
  const { checks, claim } = await verifyResponse(receipt, {
    keys,
    request,
    response: split.body,
    outside,
    ...(workload === null ? {} : { attestedBy: attestedBy(workload) }),
    salt,
    verifiers: nativeVerifiers,
  })
  const where = split.receipt === null ? 'beside the response' : 'in the stream, right before its end'
  return { checks: [pass(name, where), ...checks], claim }
}

function attestedBy({ upstreams }: WorkloadDocument): ReadonlyMap<string, string> {
  return new Map(
    upstreams.flatMap(({ name, attestation }) =>
      attestation === undefined ? [] : [[name, attestationWords(attestation)] as const],
    ),
  )
}
