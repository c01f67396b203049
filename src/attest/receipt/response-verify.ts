// Verifies response receipts offline, with the keys of an attestation receipt that was verified before. Pure.
//
// The checks are always the same ones in the same order. Nothing is thrown: a bad receipt is a failed check.

import { sha256 } from '@noble/hashes/sha2.js'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { parsed, reasonOf } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import { type HybridVerifiers, verifyHybrid } from './hybrid-verify.ts'
import { keysDigest, type PublicKeys } from './public-keys.ts'
import { decodeResponseReceipt, type ResponseClaim, signedBytesOf } from './response.ts'
import { createResponseChain } from './response-sign.ts'

export type ResponseQuestion = {
  /** Of the gateway. Trust them only if the verdict on its attestation receipt is good. */
  readonly keys: PublicKeys
  /** The exact body of the request. */
  readonly request: Uint8Array
  /** The exact body of the response; of a stream, without the receipt in it (`splitResponse`). */
  readonly response: Uint8Array
  /** Names of the upstreams outside of what the attestation covers whose answers are accepted; none where it is empty. */
  readonly outside: readonly string[]
  readonly verifiers?: HybridVerifiers
}

export type ResponseVerdict = Verdict & {
  /** Null when it could not be read. Trust it only in a good verdict. */
  readonly claim: ResponseClaim | null
}

/** Takes the receipt's text. Never throws. */
export async function verifyResponse(receipt: string, question: ResponseQuestion): Promise<ResponseVerdict> {
  const decoded = parsed(() => decodeResponseReceipt(receipt))
  if (!decoded.ok) {
    const skipped = laterNames.map(name => notChecked(name, 'the receipt cannot be read', true))
    return { ...verdict([fail(formatName, decoded.reason), ...skipped]), claim: null }
  }
  const { claim, claimBytes, signatures } = decoded.value
  const signed = await verifyHybrid(question.keys, signedBytesOf(claimBytes), signatures, {
    context: new Uint8Array(0),
    ...(question.verifiers === undefined ? {} : { verifiers: question.verifiers }),
  })
  const checks = [
    pass(formatName),
    keysCheck(claim, question.keys),
    ...signed.map((one, at) => renamed(one, signatureNames[at])),
    upstreamCheck(claim, question.outside),
    digestCheck('response-request', claim.requestDigest, sha256(question.request), 'request'),
    ...responseChecks(claim, question.response),
  ]
  return { ...verdict(checks), claim }
}

const formatName = 'response-format'
const signatureNames = ['response-signature-ed25519', 'response-signature-mldsa65'] as const
export const upstreamCheckName = 'response-upstream'
const laterNames = [
  ...['response-keys', ...signatureNames, upstreamCheckName],
  ...['response-request', 'response-size', 'response-answer'],
]

/** A verdict can hold these checks and those of attestation receipts, so the names must differ. */
function renamed(one: Check, name = one.name): Check {
  const reason = one.reason.replace('the statement', 'the response')
  return { ...one, name, reason }
}

function keysCheck(claim: ResponseClaim, keys: PublicKeys): Check {
  const name = 'response-keys'
  try {
    const holds = equalConstantTime(keysDigest(keys), claim.keysDigest)
    return check(
      name,
      holds,
      'the keys are not those of the attestation: another gateway, or one that restarted in between',
    )
  } catch (error) {
    return fail(name, reasonOf(error))
  }
}

/** By the gateway's own word: it is to be trusted because the attestation says which program the gateway is. */
function upstreamCheck({ upstream, coverage }: ResponseClaim, accepted: ResponseQuestion['outside']): Check {
  const name = upstreamCheckName
  const who = `upstream ${JSON.stringify(upstream)}`
  if (coverage === 'inside') return pass(name, `${who} answered, inside what the attestation covers`)
  if (isAllowed(accepted, upstream)) {
    return notChecked(name, `accepted ${who}, OUTSIDE what the attestation covers: the caller allowed its name`, false)
  }
  return fail(
    name,
    `${who} answered, OUTSIDE what the attestation covers: nothing vouches for it; ${outsideAdvice(upstream)}`,
  )
}

/** Whether the relying party named it. Whatever is no list of names, in JavaScript, allows nothing. */
export function isAllowed(outside: readonly string[], upstream: string): boolean {
  return Array.isArray(outside) && outside.includes(upstream)
}

/** How a caller of the library allows an upstream; the command line has words of its own for it. */
export function outsideAdvice(upstream: string): string {
  return `allow it by outside: [${JSON.stringify(upstream)}]`
}

function responseChecks(claim: ResponseClaim, response: Uint8Array): Check[] {
  const chain = createResponseChain(() => sha256.create())
  chain.update(response)
  const { answerDigest, eventCount, sizeBytes } = chain.finish()
  const isSize = claim.sizeBytes === sizeBytes && claim.eventCount === eventCount
  const sizes = (one: { sizeBytes: number; eventCount: number }) => `${one.sizeBytes} bytes in ${one.eventCount} events`
  return [
    check('response-size', isSize, `${sizes({ sizeBytes, eventCount })}, not ${sizes(claim)}`, sizes(claim)),
    digestCheck('response-answer', claim.answerDigest, answerDigest, 'response'),
  ]
}

function digestCheck(name: string, claimed: Uint8Array, found: Uint8Array, what: string): Check {
  return check(
    name,
    equalConstantTime(claimed, found),
    `the hash of the ${what} is ${toHex(found)}, not ${toHex(claimed)}`,
  )
}
