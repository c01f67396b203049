// Judges evidence in this browser by the verifier package. Loaded with the first verification. Pure but for the time,
// which comes as an argument.

import { AMD_ROOTS, type TrustedRoot } from '../../../../attest/amd/roots.ts'
import { type Policy, parsePolicy } from '../../../../attest/policy/policy.ts'
import type { Check } from '../../../../attest/verdict.ts'
import { toHex, utf8 } from '../../../../base/bytes.ts'
import { plainDirectory } from '../../../../contract/http/build.ts'
import type { WorkloadDocument } from '../../../../contract/vm/workload.ts'
import { type BuildVerdict, verifyBuild } from '../../../../verifier/build/build.ts'
import type { AskedRequest } from '../../../../verifier/build/question.ts'
import { freshAgeMsMax, verifyGateway } from '../../../../verifier/gateway.ts'
import { readInstanceHostname, verifyInstance } from '../../../../verifier/instance.ts'
import type { Pin } from '../../../../verifier/pins.ts'
import { defaultPolicy } from '../../../../verifier/report.ts'
import { readSimulatedRoot } from '../../../../verifier/simulated-root.ts'
import { type EvidenceKind, type Expected, outsideOf, PINS_OF } from './expected.ts'
import { readResultFiles } from './result-files.ts'

/** One receipt with every check of its own. */
export type JudgedReceipt = { readonly name: string; readonly ok: boolean; readonly checks: readonly Check[] }

export type Judged = {
  readonly ok: boolean
  /** No hardware vouches for it. */
  readonly simulated: boolean
  readonly checks: readonly Check[]
  readonly receipts: readonly JudgedReceipt[]
  /** Facts that the evidence shows, to be trusted only where `ok`. */
  readonly shows: readonly (readonly [name: string, value: string])[]
  readonly asOf: number
}

type Asked = { readonly expected: Expected; readonly asOf: number }

/** Throws with the field's name where something typed cannot be read. */
export async function judgeInstance(
  document: Uint8Array,
  { hostname, nonce, expected, asOf }: Asked & { readonly hostname: string; readonly nonce: Uint8Array },
): Promise<Judged> {
  const instance = readInstanceHostname(hostname)
  if (instance === null) throw new Error(`${hostname} is no host name of an instance`)
  const gatewayText = expected.policy.gateway
  const found = await verifyInstance(document, {
    instance,
    nonce,
    asOf,
    ageMsMax: freshAgeMsMax,
    roots: rootsOf(expected),
    policy: policyOf(expected, 'instance'),
    pins: pinsOf(expected, 'instance', PINS_OF.instance),
    crl: undefined,
    publicKey: 'any',
    image: 'any',
    gateway: {
      policy: gatewayText === '' ? 'any' : policyOf(expected, 'gateway'),
      outside: outsideOf(expected),
      unattested: expected.unattested,
    },
  })
  const { ok, simulated, checks, receipt, claim, launch, hostKey, knownHost } = found
  return {
    ok,
    simulated,
    checks,
    asOf,
    receipts: receipt === null ? [] : [{ name: 'claim', ok: receipt.ok, checks: receipt.checks }],
    shows: [
      ...row('Image', launch?.image.name),
      ...row('Model', claim?.claim.inference.model),
      ...row('Host key', hostKey?.fingerprint),
      ...row('For known_hosts', knownHost?.line),
    ],
  }
}

/** `workload`: workload.json as the gateway serves it; null: it has none. */
export async function judgeGateway(
  document: Uint8Array,
  { workload, nonce, expected, asOf }: Asked & { readonly workload: Uint8Array | null; readonly nonce: Uint8Array },
): Promise<Judged> {
  const found = await verifyGateway(document, {
    nonce,
    asOf,
    ageMsMax: freshAgeMsMax,
    roots: rootsOf(expected),
    policy: policyOf(expected, 'gateway'),
    pins: pinsOf(expected, 'gateway', PINS_OF.gateway),
    crl: undefined,
    allowlist: 'any',
    tlsSpkiDigest: 'any',
    configurationDigest: 'any',
    workload,
    outside: outsideOf(expected),
  })
  const { gateway } = found
  return {
    ok: found.ok,
    simulated: found.simulated,
    checks: found.checks,
    asOf,
    receipts: found.receipts.map(({ target, verdict }) => ({ name: target, ok: verdict.ok, checks: verdict.checks })),
    shows: [
      ...row('Image', gateway?.image.name),
      ...row('Measurement', gateway === null ? undefined : toHex(gateway.image.measurement)),
      ...modelsIn(found.workload),
    ],
  }
}

/** The model that answers inside the measured VM, and those outside of it. */
function modelsIn(workload: WorkloadDocument | null): (readonly [string, string])[] {
  if (workload === null) return []
  const { worker, upstreams } = workload
  const inside =
    worker === null
      ? 'none: the VM has no worker'
      : `${worker.model} (${worker.disk.name}, SHA-256 ${worker.disk.fileSha256})`
  const outside = upstreams.map(({ name, url, models }) => `${models.join(', ')} by ${name} at ${url}`)
  return [['Model inside', inside], ...outside.map(text => ['OUTSIDE', text] as const)]
}

/** `nonce`: null where this page does not know it. Throws where the archive cannot be read. */
export async function judgeBuild(
  archive: Uint8Array<ArrayBuffer>,
  { nonce, request, expected, asOf }: Asked & { readonly nonce: Uint8Array | null; readonly request: AskedRequest },
): Promise<Judged> {
  const found = await verifyBuild(await readResultFiles(archive), {
    nonce: nonce ?? 'any',
    asOf,
    roots: rootsOf(expected),
    policy: policyOf(expected, 'build'),
    pins: pinsOf(expected, 'build', PINS_OF.build),
    request: { ...request, projectDir: request.projectDir === null ? null : plainDirectory(request.projectDir) },
    crl: undefined,
    igvm: 'any',
    image: 'any',
    ownImage: false,
  })
  const { dispatch, completion } = found
  return {
    ok: found.ok,
    simulated: found.simulated,
    checks: found.checks,
    asOf,
    receipts: [
      ...(dispatch === null ? [] : [{ name: 'dispatch', ok: dispatch.ok, checks: dispatch.checks }]),
      ...(completion === null ? [] : [{ name: 'completion', ok: completion.ok, checks: completion.checks }]),
    ],
    shows: provenanceOf(found),
  }
}

function provenanceOf({ provenance, slsa, completion, firstBroken }: BuildVerdict): (readonly [string, string])[] {
  const measurement = completion?.report?.measurement
  const levels = [slsa.build, slsa.buildEnvironment].filter(text => text !== null)
  const { externalParameters } = provenance?.predicate.buildDefinition ?? {}
  return [
    ...row('First broken link', firstBroken ?? undefined),
    ...row('Source', externalParameters?.source.uri),
    ...row('Command', externalParameters?.buildCommand),
    ...row('Builder', provenance?.predicate.runDetails.builder.id),
    ...row('Measurement', measurement === undefined ? undefined : toHex(measurement)),
    ['SLSA', levels.length === 0 ? 'no level' : levels.join(', ')],
    ...slsa.missing.map(text => ['SLSA is missing', text] as const),
    ...(provenance?.subject ?? []).map(
      ({ name, digest }) => ['Artifact', `${name} ${Object.values(digest).join(' ')}`] as const,
    ),
  ]
}

function row(name: string, value: string | null | undefined): (readonly [string, string])[] {
  return value === undefined || value === null || value === '' ? [] : [[name, value]]
}

function rootsOf({ simulatedRoot }: Expected): readonly TrustedRoot[] {
  if (simulatedRoot.trim() === '') return AMD_ROOTS
  return [...AMD_ROOTS, reading('the root of a simulated platform', () => readSimulatedRoot(utf8(simulatedRoot)))]
}

function policyOf({ policy, waived }: Expected, kind: EvidenceKind): Policy {
  const text = policy[kind].trim()
  if (text === '') return defaultPolicy({ vmpl: waived[kind].includes('vmpl') ? 'any' : 'required' })
  return reading(`the policy for ${kind} evidence`, () => parsePolicy(text))
}

function pinsOf<Name extends Pin>(
  { waived }: Expected,
  kind: EvidenceKind,
  names: readonly Name[],
): Record<Name, 'required' | 'any'> {
  const said = (name: Name) => [name, waived[kind].includes(name) ? 'any' : 'required'] as const
  return Object.fromEntries(names.map(said)) as Record<Name, 'required' | 'any'>
}

function reading<T>(what: string, read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw new Error(`${what}: ${error instanceof Error ? error.message : String(error)}`, { cause: error })
  }
}
