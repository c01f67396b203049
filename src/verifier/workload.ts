// workload.json of a gateway in a VM of its own: its receipts must match it, and it defines where prompts are sent.
// Pure.

import { sha256 } from '../attest/hash.ts'
import { isAllowed, originOf, outsideAdvice, outsideEntry } from '../attest/receipt/outside.ts'
import type { StatementOf } from '../attest/receipt/statement.ts'
import { type Check, check, fail, notChecked } from '../attest/verdict.ts'
import { equalConstantTime, toHex, utf8 } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import { checkValue } from '../contract/check.ts'
import { encodeAllowlist } from '../contract/vm/allowlist.ts'
import { EXPOSURE_WORDS, type Exposure, exposuresIn } from '../contract/vm/exposure.ts'
import {
  type WorkloadAttestation,
  WorkloadDocument,
  type WorkloadUpstream,
  workloadBytesMax,
} from '../contract/vm/workload.ts'
import type { ExpectedAllowlist } from './allowlist.ts'

/** Reads a gateway's response to GET /workload.json: the document, or null if it has none. */
export function workloadIn({
  status,
  body,
}: {
  readonly status: number
  readonly body: Uint8Array
}): Uint8Array | null {
  return status === 200 ? body : null
}

export type ReadWorkload =
  | { readonly document: WorkloadDocument; readonly digest: Uint8Array; readonly allowlist: ExpectedAllowlist }
  | { readonly document: null; readonly reason: string }

/** Nesting depth of the deepest workload, plus one. */
const depthMax = 10

/** Parses workload.json. Null if there is none. Never throws. */
export function readWorkload(bytes: Uint8Array | null): ReadWorkload | null {
  if (bytes === null) return null
  const unread = (reason: string) => ({ document: null, reason: `workload.json: ${reason}` })
  if (bytes.length > workloadBytesMax) return unread(`${bytes.length} bytes are too many`)
  try {
    const result = checkValue(WorkloadDocument, parseJson(bytes, { depthMax }))
    if (!result.ok) return unread(result.problem)
    const { allowlist } = result.value
    const expected = { allowlist, digest: sha256(utf8(encodeAllowlist(allowlist))) }
    return { document: result.value, digest: sha256(bytes), allowlist: expected }
  } catch (error) {
    return unread(messageOf(error))
  }
}

/** The relying party's expectations of workload.json. */
type WorkloadExpected = {
  readonly outside: readonly string[]
  /** SHA-256 of each accepted workload.json; 'any' skips the check. */
  readonly workloads: readonly Uint8Array[] | 'any'
  readonly allow: readonly Exposure[]
}

/**
 * Checks that the receipts were made under this workload.json. Each receipt's own checks compare HOST_DATA with its
 * digest.
 */
export function workloadChecks(
  gateway: StatementOf<'workload'> | null,
  workload: ReadWorkload | null,
  { outside, workloads, allow }: WorkloadExpected,
): readonly Check[] {
  const pinned = 'workload-pinned'
  if (workload === null) return workloads === 'any' ? [] : [fail(pinned, 'the gateway has no workload.json')]
  const name = 'workload'
  if (workload.document === null) return [fail(name, workload.reason)]
  if (gateway === null) return [notChecked(name, "the gateway's receipt cannot be read", true)]
  const { document, digest, allowlist } = workload
  const stated = gateway.configurationDigest
  const isStated = stated !== null && equalConstantTime(stated, digest)
  const isAllowlist = equalConstantTime(gateway.allowlistDigest, allowlist.digest)
  return [
    check(name, isStated, 'the receipt names another workload.json', toHex(digest)),
    check('workload-allowlist', isAllowlist, 'the receipts name another allowlist than workload.json'),
    upstreamsCheck(document, outside),
    settingsCheck(document, allow),
    ...(workloads === 'any'
      ? []
      : [
          check(
            pinned,
            workloads.some(accepted => equalConstantTime(accepted, digest)),
            `HOST_DATA is ${toHex(digest)}, which is none of those that you expect`,
            toHex(digest),
          ),
        ]),
  ]
}

/** Rejects settings that reveal more to the host, or retain content, unless the relying party has named them. */
function settingsCheck({ gateway }: WorkloadDocument, allow: readonly Exposure[]): Check {
  const found = exposuresIn(gateway)
  const strange = found.filter(exposure => !allow.includes(exposure))
  const words = found.map(exposure => `${exposure}: ${EXPOSURE_WORDS[exposure]}`).join('; ')
  return check('workload-settings', strange.length === 0, `${words}; ${strange.map(exposureAdvice).join(', ')}`, words)
}

/** Returns the advice for callers of the library, which the command line replaces by its flag. */
export function exposureAdvice(exposure: Exposure): string {
  return `allow it by allow: ["${exposure}"]`
}

/** Rejects upstreams outside of the measured VM, unless the relying party has named them. */
function upstreamsCheck(document: WorkloadDocument, outside: readonly string[]): Check {
  const strange = document.upstreams.filter(({ name, url }) => !isAllowed(outside, name, originOf(url)))
  const advice = strange.map(({ name, url }) => outsideAdvice(outsideEntry(name, url))).join(', ')
  const names = (listed: readonly WorkloadUpstream[]) => listed.map(({ name }) => word(name)).join(', ')
  const unvouched = strange.filter(({ attestation }) => attestation === undefined)
  const attested = strange.filter(({ attestation }) => attestation !== undefined)
  const problems = [
    ...(unvouched.length === 0 ? [] : [`not attested: ${names(unvouched)}`]),
    ...(attested.length === 0 ? [] : [`only the gateway's policy covers ${names(attested)}`]),
  ]
  return check(
    'workload-upstreams',
    strange.length === 0,
    `${boundaryText(document)}; ${problems.join(', ')}: ${advice}`,
    boundaryText(document),
  )
}

/** Describes where the prompts for each model are sent. */
function boundaryText({ worker, upstreams }: WorkloadDocument): string {
  const inside =
    worker === null ? [] : [`inside the measured VM: ${word(worker.model)}, file ${worker.disk.fileSha256}`]
  const outside = upstreams.map(({ models, ...upstream }) => {
    const where = `${word(upstream.name)} at ${word(upstream.url)}`
    return `OUTSIDE${attestedText(upstream)}: ${models.map(word).join(', ')} to ${where} (${trustText(upstream)})`
  })
  // Put models outside first, because a summary may truncate the line.
  return [...outside, ...inside].join('; ') || 'no models'
}

function attestedText({ attestation }: Pick<WorkloadUpstream, 'attestation'>): string {
  return attestation === undefined ? '' : `, attested ${attestationWords(attestation)}`
}

/** Describes how an upstream outside must attest itself, before the first prompt and at intervals. */
export function attestationWords({ kind, policy, simulatedRoot }: WorkloadAttestation): string {
  const simulated = simulatedRoot === undefined ? '' : ', or SIMULATED'
  return `by ${kind}${simulated} under policy ${toHex(sha256(utf8(policy)))}`
}

const wordCharsMax = 64

/** Quotes the host's names, so that none ends a line, imitates the verdict's text, or fills it. */
function word(text: string): string {
  if (/^[\x21-\x7e]+$/.test(text) && text.length <= wordCharsMax) return text
  return JSON.stringify(text.slice(0, wordCharsMax)).replaceAll(' ', '\\u0020')
}

function trustText({
  url,
  spkiSha256,
  spkiSha256Next,
  ca,
}: Pick<WorkloadUpstream, 'url' | 'spkiSha256' | 'spkiSha256Next' | 'ca'>): string {
  if (!url.startsWith('https:')) return 'no TLS'
  if (spkiSha256 !== null)
    return `key ${[spkiSha256, ...(spkiSha256Next === undefined ? [] : [spkiSha256Next])].join(' or ')}`
  return ca === null ? 'public authorities' : 'an authority of its own'
}
