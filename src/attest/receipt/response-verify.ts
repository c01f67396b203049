// Verifies response receipts offline, with the keys of an attestation receipt that was verified before. Pure.
//
// The checks and their order are always the same. Nothing is thrown: a bad receipt is a failed check.

import { sha256 } from '@noble/hashes/sha2.js'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { keyMakerCheckName, upstreamCheckName } from '../check-names.ts'
import { type Parsed, parsed, reasonOf } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import type { HybridVerifiers } from './hybrid-verify.ts'
import { isAllowed, outsideAdvice } from './outside.ts'
import { keysDigest, type PublicKeys } from './public-keys.ts'
import { type ResponseClaim, saltBytes, saltHeader, signedBytesOf } from './response.ts'
import { createResponseChain, requestDigest } from './response-digest.ts'
import { decodeResponseReceipt, readCarriedReceipt } from './response-read.ts'
import { verifyHybrid } from './verifiers.ts'

export type ResponseQuestion = {
  /** The gateway's keys. Trust them only if the verdict on its attestation receipt is good. */
  readonly keys: PublicKeys
  /** The exact body of the request, without a Content-Encoding. */
  readonly request: Uint8Array
  /** The exact body of the response; for a stream, without the receipt in it (`splitResponse`). */
  readonly response: Uint8Array
  /** Allowed upstreams outside of the attestation, in the form of outside.ts; empty for none. */
  readonly outside: readonly string[]
  /** For each upstream outside, by name, how it must attest itself, in words. Default: unknown. */
  readonly attestedBy?: ReadonlyMap<string, string>
  /** Value of `X-Strongroom-Receipt-Salt`, for a receipt without its salt. Default: the receipt's own salt. */
  readonly salt?: Uint8Array | undefined
  readonly verifiers?: HybridVerifiers
}

type ResponseVerdict = Verdict & {
  /** Null if the claim is unreadable. Trust it only in a good verdict. */
  readonly claim: ResponseClaim | null
}

/** Verifies a receipt's text, from the response or fetched later. Never throws. */
export async function verifyResponse(receipt: string, question: ResponseQuestion): Promise<ResponseVerdict> {
  const decoded = parsed(() => {
    const carried = readCarriedReceipt(receipt)
    return { salt: carried.salt, ...decodeResponseReceipt(carried.receipt) }
  })
  if (!decoded.ok) {
    const skipped = laterNames.map(name => notChecked(name, 'the receipt cannot be read', true))
    return { ...verdict([fail(formatName, decoded.reason), ...skipped]), claim: null }
  }
  const { claim, claimBytes, signatures } = decoded.value
  const salt = saltOf(decoded.value.salt, question.salt)
  const signed = await verifyHybrid(question.keys, signedBytesOf(claimBytes), signatures, {
    context: new Uint8Array(0),
    ...(question.verifiers === undefined ? {} : { verifiers: question.verifiers }),
  })
  const checks = [
    pass(formatName),
    keysCheck(claim, question.keys),
    ...signed.map((check, at) => renamed(check, signatureNames[at])),
    keyMakerCheck(claim),
    upstreamCheck(claim, question),
    ...(salt.ok ? digestChecks(claim, salt.value, question) : unsalted(salt.reason)),
  ]
  return { ...verdict(checks), claim }
}

const formatName = 'response-format'
const signatureNames = ['response-signature-ed25519', 'response-signature-mldsa65'] as const
const saltedNames = ['response-salt', 'response-request', 'response-size', 'response-answer'] as const
const laterNames = [...['response-keys', ...signatureNames, keyMakerCheckName, upstreamCheckName], ...saltedNames]

/** Renames a check of attestation receipts: a verdict can contain both kinds, so their names must differ. */
function renamed(check: Check, name = check.name): Check {
  const reason = check.reason.replace('the statement', 'the response')
  return { ...check, name, reason }
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

/** Never decides a verdict: a client whose key the host minted has no other key. */
function keyMakerCheck({ keyMadeBy }: ResponseClaim): Check {
  const said =
    keyMadeBy === 'client'
      ? 'the gateway has only a digest of your key, which its host registered; if you made that key yourself, the host cannot act as you'
      : 'the host minted the key that asked, so it can act as you; `strongroom gateway key new` makes a key that it never sees'
  return keyMadeBy === 'client' ? pass(keyMakerCheckName, said) : notChecked(keyMakerCheckName, said, false)
}

/** Relies on the gateway's own claim, which is trustworthy because the attestation identifies the gateway program. */
function upstreamCheck(
  { upstream, coverage }: ResponseClaim,
  { outside: accepted, attestedBy }: Pick<ResponseQuestion, 'outside' | 'attestedBy'>,
): Check {
  const name = upstreamCheckName
  const who = `upstream ${JSON.stringify(upstream)}`
  if (coverage === 'inside') return pass(name, `${who} answered, inside what the attestation covers`)
  const isAttested = coverage === 'outside-attested'
  const by = attestedBy?.get(upstream)
  if (isAttested && attestedBy !== undefined && by === undefined)
    return fail(name, `${who} answered as an attested one, but workload.json requires no evidence of it`)
  const where = isAttested
    ? `OUTSIDE what the attestation covers, attested ${by ?? 'by evidence of its own'}`
    : 'OUTSIDE what the attestation covers'
  if (isAllowed(accepted, upstream))
    return notChecked(name, `accepted ${who}, ${where}: the caller allowed its name`, false)
  const vouching = isAttested ? "only the gateway's policy names it" : 'nothing attests it'
  return fail(name, `${who} answered, ${where}: ${vouching}; ${outsideAdvice(upstream)}`)
}

/** Returns the receipt's own salt, or the caller's. Fails if both are missing. */
function saltOf(carried: Uint8Array | null, given: Uint8Array | undefined): Parsed<Uint8Array> {
  if (given === undefined) {
    return carried === null
      ? { ok: false, reason: `the receipt came without its salt: give the value of the response's ${saltHeader}` }
      : { ok: true, value: carried }
  }
  const isSame = given.length === saltBytes && (carried === null || equalConstantTime(carried, given))
  return isSame ? { ok: true, value: given } : { ok: false, reason: 'another salt than the one of the receipt' }
}

function unsalted(reason: string): Check[] {
  const [name = '', ...rest] = saltedNames
  return [fail(name, reason), ...rest.map(other => notChecked(other, 'there is no salt to hash with', true))]
}

function digestChecks(
  claim: ResponseClaim,
  salt: Uint8Array,
  { request, response }: Pick<ResponseQuestion, 'request' | 'response'>,
): Check[] {
  const asked = requestDigest(() => sha256.create(), salt, request)
  return [
    pass(saltedNames[0]),
    digestCheck('response-request', claim.requestDigest, asked, 'request'),
    ...responseChecks(claim, salt, response),
  ]
}

function responseChecks(claim: ResponseClaim, salt: Uint8Array, response: Uint8Array): Check[] {
  const chain = createResponseChain(() => sha256.create(), salt)
  chain.update(response)
  const { answerDigest, eventCount, sizeBytes } = chain.finish()
  const isSize = claim.sizeBytes === sizeBytes && claim.eventCount === eventCount
  const sizes = (counted: { sizeBytes: number; eventCount: number }) =>
    `${counted.sizeBytes} bytes in ${counted.eventCount} events`
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
