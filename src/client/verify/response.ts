// strongroom verify response: verifies a saved response with its receipt and the gateway's attestation. Effects: reads
// files.

import type { ResponseClaim } from '../../attest/receipt/response.ts'
import { iso, systemClock } from '../../base/clock.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { MIB, readInput, readTextInput } from '../../terminal/input-file.ts'
import { timeOption } from '../../terminal/options.ts'
import { verdictDocument } from '../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../terminal/verdict-exit.ts'
import { attestationBytesMax } from '../../verifier/gateway.ts'
import { verifyGatewayResponse } from '../../verifier/response.ts'
import { verifyGateway } from '../../verifier/verify-gateway.ts'
import { chipListChecks } from '../trust/chip-list.ts'
import { withFlags } from '../trust/pin-options.ts'
import { measurementSources } from '../trust/policy-flags.ts'
import {
  addTrustOptions,
  checksOfNamed,
  readTrust,
  type TrustOptions,
  withOutsideFlag,
} from '../trust/trust-options.ts'
import { plainVerdict } from '../verdict/plain.ts'
import { attestationDocument } from './gateway.ts'
import { responseWords } from './gateway-facts.ts'
import { nonceOption, saltOption } from './receipt-options.ts'

type ResponseOptions = TrustOptions & {
  receipt?: string
  salt?: Uint8Array
  request: string
  response: string
  attestation: string
  nonce?: Uint8Array
  asOf?: number
}

const bodyBytesMax = 512 * MIB

export function addVerifyResponse(verify: Command): void {
  const command = verify
    .command('response')
    .description(
      'verify a saved response of a gateway: its request, the upstream that answered, and the keys that signed it; offline',
    )
    .option(
      '--receipt <file>',
      'the value of the X-Strongroom-Receipt header, or the body of GET /v1/receipts/ID; a stream contains its own, unless the request had `keep`',
    )
    .option(
      '--salt <text>',
      'the value of the X-Strongroom-Receipt-Salt header, of a receipt that was fetched later',
      saltOption,
    )
    .requiredOption('--request <file>', 'the exact body of the request')
    .requiredOption('--response <file>', 'the exact body of the response')
    .requiredOption('--attestation <file>', "the gateway's saved response to GET /attestation")
    .option('--nonce <text>', 'the nonce that was sent with GET /attestation, 43 characters', nonceOption)
    .option('--as-of <time>', 'verify for this time in UTC, like 2026-06-01T00:00:00Z; default now', timeOption)
  addTrustOptions(command)
    .examples(
      'strongroom verify response --receipt receipt.txt --request request.json --response response.json --attestation attestation.json --nonce TEXT --as-of 2026-11-30T12:00:00Z --workload workload.json --policy gateway.json',
      'strongroom verify response --request request.json --response stream.txt --attestation attestation.json --nonce TEXT --as-of 2026-11-30T12:00:00Z --workload workload.json --policy gateway.json',
    )
    .runs(verifySaved)
}

async function verifySaved(run: Run, options: ResponseOptions): Promise<void> {
  const { receipt } = options
  const document = readInput({ path: options.attestation, param: 'attestation', bytesMax: attestationBytesMax })
  const exchange = {
    request: readInput({ path: options.request, param: 'request', bytesMax: bodyBytesMax }),
    response: readInput({ path: options.response, param: 'response', bytesMax: bodyBytesMax }),
    receipt: receipt === undefined ? null : readTextInput({ path: receipt, param: 'receipt', bytesMax: MIB }).trim(),
    salt: options.salt,
  }
  const asOf = options.asOf ?? systemClock.nowMs()
  const trust = await readTrust(options)
  const attestation = await verifyGateway(document, {
    ...trust,
    nonce: options.nonce ?? 'any',
    asOf,
    // The keys live as long as the gateway's process, and the document may have been saved at any time.
    ageMsMax: 'any',
    tlsSpkiDigest: 'any',
  })
  const judged = await verifyGatewayResponse(exchange, attestation, { outside: options.allowOutside })
  const found = {
    ...judged,
    checks: [...withFlags(judged.checks).map(withOutsideFlag), ...chipListChecks(trust.policy, asOf)],
  }
  const details = attestation.receipts.flatMap(({ verdict }) => verdict.checks)
  const sorting = { details, named: checksOfNamed(options) }
  const { outside = [], allow = [] } = trust
  const sources = measurementSources(trust.policy, options, options.policy)
  const { checks } = found
  const plain = responseWords({ found: attestation, checks, argv: run.argv, sources, outside, allow }, found.claim)
  await run.result(
    {
      ...verdictDocument(found, sorting),
      as_of: iso(asOf),
      response: found.claim === null ? null : claimDocument(found.claim),
      attestation: attestationDocument(attestation),
    },
    plainVerdict(found, plain, { verbose: options.verbose === true, details, sorting, paint: run.paint }),
  )
  run.exitWith(exitCodeOfVerdict(found, sorting))
}

function claimDocument(claim: ResponseClaim) {
  return {
    request_id: claim.requestId,
    key_made_by: claim.keyMadeBy,
    model: claim.model,
    upstream: claim.upstream,
    coverage: claim.coverage,
    issued_at: iso(claim.issuedAt),
    prompt_tokens: claim.promptTokens,
    completion_tokens: claim.completionTokens,
    events: claim.eventCount,
  }
}
