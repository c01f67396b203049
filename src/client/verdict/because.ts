// Why a verdict is not good, in plain words with the reason of the check: one line for each failure. Pure.

import { type Check, isBroken } from '../../attest/verdict.ts'
import { groupName } from './summary.ts'

/** Maximum number of lines; the last one then counts the others. */
export const becauseLinesMax = 6

/** Words by the name of the check, without the receipt's name before the slash. */
const FAILED: Readonly<Record<string, string>> = {
  connection: 'there was no answer',
  'tls-certificate': 'the certificate of the connection is not good',
  'tls-binding': 'the connection does not end in the VM that was attested',
  'attestation-format': 'there is no evidence to read',
  'attestation-nonce': 'the evidence was made for another request',
  nonce: 'the evidence was made for another request, or at another time',
  'pin-measurement': 'you named no expected image',
  'pin-allowlist': 'you named no expected operator and no workload',
  'pin-operator-key': 'you named no expected operator',
  'pin-gateway': 'you named no expected gateway for its prompts',
  evidence: "the hardware's evidence is not good",
  'tcb-floor': 'the firmware lacks security fixes of AMD',
  measurement: 'another image runs there than you expect',
  image: 'another image runs there than you expect',
  allowlist: 'another workload runs in it than you expect',
  admission: 'another workload runs in it than you expect',
  'operator-key': 'another operator started it than you expect',
  'own-key': 'it lets in an SSH key that is not yours',
  'login-keys': 'it lets in an SSH key that you do not expect',
  reach: 'its programs may reach other destinations than you expect',
  prompts: 'its prompts do not go where you expect',
  'gateway-key': 'its key for the gateway is not its own',
  'gateway-configuration': 'the gateway has another configuration than you expect, or you named none',
  'workload-upstreams': 'prompts would leave the measured VM',
  'workload-settings': 'the gateway has settings that show more than you allowed',
  'workload-pinned': 'the gateway has another workload.json than you expect',
  'response-upstream': 'the prompt left the measured VM',
  'response-request': 'the receipt is of another request',
  'response-answer': 'the receipt is of another response',
  'response-keys': 'another gateway than the attested one made the receipt',
  source: 'it was built from another source than yours',
  request: 'it was built in another way than you requested',
  'artifact-digests': 'the artifacts are not those that were built',
}

/**
 * Flags that accept the failure. The commands to try contain them, quoted; a name in them comes from a host, and is not
 * quoted here.
 */
const advice = /[;:,] (?:(?:accept that (?:by|with)|allow it with) --(?:allow|unattested)).*$/s

/** The check of root or certificates found something; `NAME failed` means that it was not made. */
const noTrustedRoot = /\bchain-(?:root|certificates): (?!\S+ failed\b)/

/** The check `image` of a VM whose shape the manifest lacks, so the measurement had nothing to be compared with. */
const noSuchShape = /^the manifest has no launch digest for /
const shapeWords = 'your manifest has no measurement for a VM of this shape'
/** Words for the measurement of such a VM, which may be of the expected image in another shape. */
const otherShapeWords = 'its measurement is none that you expect'

/** The summary of a receipt only reports that its other checks failed, which have separate lines. */
const onlyTheSum = /^evidence: the hardware evidence is not good; see its checks$/

export function becauseLines(checks: readonly Check[]): string[] {
  const broken = checks.filter(isBroken)
  const telling = broken.filter(({ reason }) => !onlyTheSum.test(reason))
  const byName = new Map<string, Check[]>()
  for (const check of telling.length === 0 ? broken : telling) {
    const key = check.name.includes('/') ? groupName(check) : check.name
    byName.set(key, [...(byName.get(key) ?? []), check])
  }
  const isShapeMissing = broken.some(isOfMissingShape)
  const lines = [...byName].map(([name, group]) => lineOf(name, group, isShapeMissing))
  if (lines.length <= becauseLinesMax) return lines
  const shown = lines.slice(0, becauseLinesMax - 1)
  return [...shown, `and ${lines.length - shown.length} more; --verbose prints each check`]
}

function isOfMissingShape({ name, outcome, reason }: Check): boolean {
  return name === 'image' && outcome === 'fail' && noSuchShape.test(reason)
}

function lineOf(name: string, group: readonly Check[], isShapeMissing: boolean): string {
  const failed = group.filter(({ outcome }) => outcome === 'fail')
  // A check that was not made has found nothing wrong.
  const isOpen = failed.length === 0
  const checks = isOpen ? group : failed
  const [first = '', ...more] = new Set(checks.map(({ reason }) => reason.replace(advice, '')))
  const count = checks.length === 1 ? '' : ` of ${checks.length} receipts`
  const reason = `${first}${more.length === 0 ? '' : ', and so on'}`
  const isPin = name.startsWith('pin-')
  if (isOpen && !isPin) return `${name}${count} could not be checked (${reason})`
  const words = failureWords(name, checks, isShapeMissing)
  // The reason of a pin has the remedy; its name adds nothing.
  const found = isPin ? reason : `${name}${count}: ${reason}`
  return words === undefined ? `${name}${count}: ${reason}` : `${words} (${found})`
}

function failureWords(name: string, checks: readonly Check[], isShapeMissing: boolean): string | undefined {
  if (checks.some(({ reason }) => noTrustedRoot.test(reason))) return 'no root that you trust signed its evidence'
  if (isShapeMissing && name === 'image') return shapeWords
  if (isShapeMissing && name === 'measurement') return otherShapeWords
  return FAILED[name]
}
