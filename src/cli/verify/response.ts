// strongroom verify response: a saved exchange with a gateway against its receipt and the gateway's saved attestation. Offline.

import { type Command, InvalidArgumentError } from 'commander'
import { Malformed } from '../../attest/malformed.ts'
import { nativeVerifiers } from '../../attest/receipt/hybrid-verify.ts'
import { splitResponse } from '../../attest/receipt/response.ts'
import { verifyResponse } from '../../attest/receipt/response-verify.ts'
import { type Check, fail, pass, verdict } from '../../attest/verdict.ts'
import { fromBase64Url } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { attestationBytesMax, verifyAttestation } from '../../verifier/gateway.ts'
import { type Cli, helpText, type Run, runOf } from '../cli.ts'
import { EXIT } from '../exit.ts'
import { MIB, readInput, readTextInput, timeOption } from '../input-file.ts'
import { verdictDocument, verdictText } from '../verdict-render.ts'
import { addTrustOptions, attestationDocument, trustOf } from './gateway.ts'

type ResponseOptions = Parameters<typeof trustOf>[0] & {
  receipt?: string
  request: string
  response: string
  attestation: string
  nonce?: Uint8Array
  asOf?: number
}

const bodyBytesMax = 512 * MIB

export function addVerifyResponse(verify: Command, cli: Cli): void {
  const command = verify
    .command('response')
    .description('verify a saved answer of a gateway: what was answered to what, by which keys; offline')
    .option('--receipt <file>', 'the value of the X-Strongroom-Receipt header; a stream carries its own')
    .requiredOption('--request <file>', 'the exact body of the request')
    .requiredOption('--response <file>', 'the exact body of the answer')
    .requiredOption('--attestation <file>', "the gateway's answer of /attestation, saved")
    .option('--nonce <text>', 'the nonce that was sent for it, 43 characters', nonceOption)
    .option('--as-of <time>', 'verify for this time in UTC, like 2026-06-01T00:00:00Z; default now', timeOption)
  addTrustOptions(command)
    .addHelpText(
      'after',
      helpText(
        'strongroom verify response --receipt receipt.txt --request request.json --response answer.json --attestation attestation.json',
        'strongroom verify response --request request.json --response stream.txt --attestation attestation.json --policy policy.json',
      ),
    )
    .action(async (options: ResponseOptions, one: Command) => verifyExchange(runOf(cli, one), options))
}

async function verifyExchange(run: Run, options: ResponseOptions): Promise<void> {
  const body = (path: string, param: string) => readInput({ path, param, bytesMax: bodyBytesMax })
  const attestation = readInput({ path: options.attestation, param: 'attestation', bytesMax: attestationBytesMax })
  const request = body(options.request, 'request')
  const response = body(options.response, 'response')
  const asOf = options.asOf ?? systemClock.nowMs()
  const attested = await verifyAttestation(attestation, {
    ...(await trustOf(options)),
    nonce: options.nonce ?? 'any',
    asOf,
    // It may have been saved at any time: the keys live as long as the gateway's process.
    ageMsMax: 'any',
    tlsSpkiDigest: 'any',
  })
  const { checks, claim } = await judge(options.receipt, { request, response, keys: attested.keys })
  const whole = verdict([...attested.checks, ...checks])
  const shown = { ok: whole.ok && attested.ok, checks: whole.checks, simulated: attested.simulated }
  const document = {
    ...verdictDocument(shown),
    as_of: iso(asOf),
    response: claim === null ? null : claimDocument(claim),
    attestation: attestationDocument(attested),
  }
  await run.result(document, verdictText(shown, run.paint))
  if (!shown.ok) run.exitWith(EXIT.failed)
}

type Exchange = {
  readonly request: Uint8Array
  readonly response: Uint8Array
  readonly keys: Awaited<ReturnType<typeof verifyAttestation>>['keys']
}
type Judged = {
  readonly checks: readonly Check[]
  readonly claim: Awaited<ReturnType<typeof verifyResponse>>['claim']
}

async function judge(receiptPath: string | undefined, { request, response, keys }: Exchange): Promise<Judged> {
  const name = 'response-receipt'
  const bad = (reason: string): Judged => ({ checks: [fail(name, reason)], claim: null })
  let split: ReturnType<typeof splitResponse>
  try {
    split = splitResponse(response)
  } catch (error) {
    if (error instanceof Malformed) return bad(error.message)
    throw error
  }
  const given =
    receiptPath === undefined ? null : readTextInput({ path: receiptPath, param: 'receipt', bytesMax: MIB }).trim()
  const receipt = given ?? split.receipt
  if (receipt === null) return bad('there is none: the answer carries none, and no --receipt was given')
  if (given !== null && split.receipt !== null && given !== split.receipt) {
    return bad('the one in the answer is another than that of --receipt')
  }
  if (keys === null) return bad('the attestation has no keys to check it with')
  const found = await verifyResponse(receipt, { keys, request, response: split.body, verifiers: nativeVerifiers })
  const where = split.receipt === null ? 'beside the answer' : 'in the stream, right before its end'
  return { checks: [pass(name, where), ...found.checks], claim: found.claim }
}

function claimDocument(claim: NonNullable<Judged['claim']>) {
  return {
    request_id: claim.requestId,
    model: claim.model,
    issued_at: iso(claim.issuedAt),
    prompt_tokens: claim.promptTokens,
    completion_tokens: claim.completionTokens,
    events: claim.eventCount,
  }
}

function nonceOption(text: string): Uint8Array {
  const bytes = fromBase64Url(text)
  if (bytes?.length !== 32) throw new InvalidArgumentError('It must be 32 bytes in base64url, which is 43 characters.')
  return bytes
}
