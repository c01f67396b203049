// Verifies response receipts offline, by keys out of an attestation receipt that has been verified before. Pure.
//
// The order of the checks is fixed, and each is always there by its name. Nothing escapes: a bad receipt is a failed check.

import { sha256 } from '@noble/hashes/sha2.js'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { parsed, reasonOf } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import { type HybridVerifiers, verifyHybrid } from './hybrid-verify.ts'
import { keysDigest, type PublicKeys } from './public-keys.ts'
import { decodeResponseReceipt, type ResponseClaim, signedBytesOf } from './response.ts'
import { createAnswerChain } from './response-seal.ts'

export type ResponseQuestion = {
  /** Of the gateway. Worth something only out of a good verdict on its attestation receipt. */
  readonly keys: PublicKeys
  /** The exact body of the request. */
  readonly request: Uint8Array
  /** The exact body of the answer; of a stream, without the receipt in it (`splitAnswer`). */
  readonly answer: Uint8Array
  readonly verifiers?: HybridVerifiers
}

export type ResponseVerdict = Verdict & {
  /** Null when it could not be read. What it says is worth something only in a good verdict. */
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
    digestCheck('response-request', claim.requestDigest, sha256(question.request), 'request'),
    ...answerChecks(claim, question.answer),
  ]
  return { ...verdict(checks), claim }
}

const formatName = 'response-format'
const signatureNames = ['response-signature-ed25519', 'response-signature-mldsa65'] as const
const laterNames = ['response-keys', ...signatureNames, 'response-request', 'response-size', 'response-answer']

/** The checks of attestation receipts have the plain names; both stand in one verdict. */
function renamed(one: Check, name = one.name): Check {
  const reason = one.reason.replace('the statement', 'the response')
  return { ...one, name, reason }
}

function keysCheck(claim: ResponseClaim, keys: PublicKeys): Check {
  const name = 'response-keys'
  try {
    const holds = equalConstantTime(keysDigest(keys), claim.keysDigest)
    return check(name, holds, 'other keys than those of the attestation: another gateway, or a restart in between')
  } catch (error) {
    return fail(name, reasonOf(error))
  }
}

function answerChecks(claim: ResponseClaim, answer: Uint8Array): Check[] {
  const chain = createAnswerChain(() => sha256.create())
  chain.update(answer)
  const { answerDigest, eventCount, sizeBytes } = chain.finish()
  const isSize = claim.sizeBytes === sizeBytes && claim.eventCount === eventCount
  const sizes = (one: { sizeBytes: number; eventCount: number }) => `${one.sizeBytes} bytes in ${one.eventCount} events`
  return [
    check('response-size', isSize, `${sizes({ sizeBytes, eventCount })}, not ${sizes(claim)}`, sizes(claim)),
    digestCheck('response-answer', claim.answerDigest, answerDigest, 'answer'),
  ]
}

function digestCheck(name: string, claimed: Uint8Array, found: Uint8Array, what: string): Check {
  return check(name, equalConstantTime(claimed, found), `the ${what}'s hash is ${toHex(found)}, not ${toHex(claimed)}`)
}
