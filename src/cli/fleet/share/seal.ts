// strongroom fleet share seal: verifies the evidence of a request, and answers a valid one. Effects: reads the
// request and the secrets of this host, reads the fleet's directory, writes the sealed file.

import { outsideEntry } from '../../../attest/receipt/outside.ts'
import { type Check, check, verdict } from '../../../attest/verdict.ts'
import { toHex, utf8 } from '../../../base/bytes.ts'
import { systemClock } from '../../../base/clock.ts'
import { readCrl } from '../../../client/trust/crl-file.ts'
import { type PinOptions, readPins, withFlags } from '../../../client/trust/pin-options.ts'
import type { PolicyFlags } from '../../../client/trust/policy-flags.ts'
import { type EvidenceOptions, readPolicy, readRoots } from '../../../client/trust/trust-options.ts'
import { verdictSummary } from '../../../client/verdict/summary.ts'
import type { FleetHosts } from '../../../contract/admin/fleet.ts'
import { exposuresIn } from '../../../contract/vm/exposure.ts'
import {
  decodeShareRequest,
  isSignedByControlKey,
  nonceOf,
  type ShareRequest,
  shareRequestBytesMax,
} from '../../../fleet/shared-identity/request.codec.ts'
import { readSecrets, sealSecrets, sharedSecretsFormat } from '../../../fleet/shared-identity/secrets.ts'
import { fleetName } from '../../../fleet/target.ts'
import { writeFileAtomic } from '../../../linux/files.ts'
import { inputFault, readInput, readingInput } from '../../../terminal/input-file.ts'
import { refuseExisting } from '../../../terminal/output-file.ts'
import { verdictDocument } from '../../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../../terminal/verdict-exit.ts'
import type { GatewayVerdict } from '../../../verifier/gateway.ts'
import { pinCheckName } from '../../../verifier/pins.ts'
import { verifyGateway } from '../../../verifier/verify-gateway.ts'
import { readWorkload } from '../../../verifier/workload.ts'
import type { Run } from '../../operator-run.ts'
import { fleetHosts } from '../ask.ts'

/** From the request's evidence until it is sealed to. */
const requestAgeMsMax = 3_600_000

export type SealOptions = PinOptions & PolicyFlags & EvidenceOptions & { readonly policy?: string }

type Sealing = { readonly path: string; readonly file: string; readonly options: SealOptions }

/** Writes the file for a good verdict alone. Faults: invalid_request (input), not_found (nothing to share), fleet.*. */
export async function seal(run: Run, { path, file, options }: Sealing): Promise<void> {
  refuseExisting(file)
  const request = await readRequest(path)
  const { hosts } = await fleetHosts(run)
  const found = await judgeEvidence(request, options)
  const checks = [...requestChecks(request, { hosts, found }), ...withFlags(found.checks).map(withOwnAdvice)]
  const whole = verdict(checks)
  const shown = { ok: whole.ok && found.ok, checks, simulated: found.simulated }
  const details = found.receipts.flatMap(({ verdict }) => verdict.checks)
  const { asked } = request
  const requestSha256 = toHex(nonceOf(asked))
  if (shown.ok) {
    const { config } = await run.config()
    const secrets = { format: sharedSecretsFormat, request_sha256: requestSha256, from: fleetName(config) } as const
    const sealed = await sealSecrets({ ...secrets, files: readSecrets(run.stateDir) }, asked.recipient)
    writeFileAtomic(file, sealed, { mode: 0o600 })
  }
  const result = { host_name: asked.host_name, request_sha256: requestSha256, file: shown.ok ? file : null }
  await run.result(
    { ...verdictDocument(shown, { details }), ...result },
    verdictSummary(shown, { verbose: options.verbose === true, details, paint: run.paint }),
  )
  if (shown.ok) {
    const advice = 'take it there, stop its service, and open it: strongroom fleet share open (strongroom help fleet)'
    await run.hint(`${file} has the secrets of this host, sealed to ${asked.host_name} alone; ${advice}`)
  }
  run.exitWith(exitCodeOfVerdict(shown, { details }))
}

async function readRequest(path: string): Promise<ShareRequest> {
  const input = { path, param: 'request', bytesMax: shareRequestBytesMax }
  const read = await readingInput(path, () => decodeShareRequest(readInput(input)))
  if (!read.ok) throw inputFault(input, read.problem, 'name the file of `strongroom fleet share request`')
  return read.value
}

/** The gateway's evidence, for the request's digest as its nonce. Its upstreams and their prompts are not at stake. */
async function judgeEvidence(request: ShareRequest, options: SealOptions): Promise<GatewayVerdict> {
  const workload = utf8(request.workload)
  const pins = readPins(options)
  const document = readWorkload(workload)?.document ?? null
  return await verifyGateway(utf8(request.attestation), {
    nonce: nonceOf(request.asked),
    asOf: systemClock.nowMs(),
    ageMsMax: requestAgeMsMax,
    roots: await readRoots(options.trustSimulatedRoot),
    policy: await readPolicy(options.policy, pins, options),
    pins,
    crl: readCrl(options.crl),
    allowlist: 'any',
    tlsSpkiDigest: 'any',
    configurationDigest: 'any',
    workload,
    outside: document?.upstreams.map(({ name, url }) => outsideEntry(name, url)) ?? [],
    allow: document === null ? [] : exposuresIn(document.gateway),
  })
}

/** The waiver of `verify gateway` is none here: any rented machine would pass. */
function withOwnAdvice(found: Check): Check {
  if (found.name !== pinCheckName('allowlist') || found.outcome !== 'fail') return found
  return { ...found, reason: 'no pin identifies the machine: name the operator key of that host in the --policy' }
}

type Facts = { readonly hosts: FleetHosts['hosts']; readonly found: GatewayVerdict }

function requestChecks(request: ShareRequest, { hosts, found }: Facts): Check[] {
  const { asked, control_key: key } = request
  const host = hosts.find(({ id }) => id === asked.host_id)
  const named = host === undefined ? `no host of the fleet has the id ${asked.host_id}` : `it is ${host.name} there`
  const isOther = host !== undefined && host.name === asked.host_name && !host.is_this_host
  return [
    check('fleet-host', isOther, host?.is_this_host === true ? 'it is this host itself' : named, asked.host_name),
    check(
      'request-signature',
      isSignedByControlKey(request),
      'the control key that the request names did not sign it: it was changed, or made by another party',
      'by the control key',
    ),
    check(
      'request-control-key',
      found.workload?.controlKey === key,
      'the gateway VM was launched for another control key: another party made the request',
      'HOST_DATA of the gateway VM names it',
    ),
  ]
}
