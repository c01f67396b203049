// The limits of a good verdict in plain words: waivers, checks that were not made, and limits of its kind. Pure.

import { keyMakerCheckName, sourceCheckName, upstreamCheckName } from '../../attest/check-names.ts'
import type { Check } from '../../attest/verdict.ts'
import { pinCheckName } from '../../verifier/pins.ts'
import { coveredByWaivers, groupName, isImageOnlyLogged, isWaiver } from './summary.ts'

/** Maximum number of lines; the last one then counts the others. */
export const notProvedLinesMax = 12

const firmwareWords = "that the firmware has AMD's security fixes"

/** Words by the name of the check, without the receipt's name before the slash. */
const UNPROVED: Readonly<Record<string, string>> = {
  [pinCheckName('measurement')]: 'which image runs',
  [pinCheckName('allowlist')]: 'whose gateway it is, and which models and settings it has',
  [pinCheckName('operator-key')]: 'who started it',
  [pinCheckName('gateway')]: 'what the gateway does with prompts',
  [pinCheckName('vmpl')]: 'that no other software inside the VM can read its memory',
  [pinCheckName('crl')]: "that AMD has not revoked the processor's certificate",
  [pinCheckName('tcb')]: firmwareWords,
  [upstreamCheckName]: 'what the upstream that answered does with the prompt',
  [sourceCheckName]: 'which source it was built from',
  [keyMakerCheckName]: 'that the host cannot act as you',
  'gateway-key-maker': 'that the host cannot act as you',
  'attestation-nonce': 'that this evidence is of today, and no old copy',
  'tls-binding': 'that a connection of yours ends in this VM',
  'gateway-configuration': 'which upstreams get prompts',
  'chain-revocation': "that AMD has not revoked the processor's certificate",
  'own-key': 'that you alone can log in',
  'login-keys': 'that only the keys that you expect log in',
  reach: 'which destinations its programs may reach',
  'operator-key': 'who started it',
  allowlist: 'which workload runs in it',
  admission: 'which workload runs in it',
  'launch-measurement': 'that the image has the files which you expect',
  'cmdline-root-hash': 'that the image has the files which you expect',
  'image-root-hash': 'that the image has the files which you expect',
  'log-witnessed': 'that others see the same transparency log',
  'log-age': 'that the tree of the log is recent',
  'gpu-evidence': 'which GPUs it has',
  'tcb-floor-age': "that these are AMD's latest security fixes",
}

const loggedImageWords =
  'what the image does and lets others read (you named no image; its log entry shows only that others can see it too)'

/** Text of the check of the list's age, which is shown to people as a list of security fixes. */
const floorsShipped = 'the TCB floors that this verifier ships'
const listOfFixes = 'the fixes that this program lists'

/** Remarks that are in the limits of the kind, and comparisons that the pin of the measurement decides. */
const STATED: readonly string[] = ['scope', 'operational-status', 'image', 'measurement']

/** Returns the limits: an image that only the log names, waivers, skipped comparisons, then those of the kind. */
export function notProvedLines(checks: readonly Check[], limits: readonly string[]): string[] {
  const open = checks.filter(({ outcome, required }) => outcome === 'not-checked' && !required)
  const covered = coveredByWaivers(open)
  const told = open.filter(check => isWaiver(check) || !covered.includes(groupName(check)))
  const unstated = told.filter(check => !STATED.includes(groupName(check)))
  const sorted = unstated.toSorted((a, b) => Number(isWaiver(b)) - Number(isWaiver(a)))
  const reasons = new Map<string, Set<string>>()
  for (const check of sorted) {
    const words = wordsOf(check)
    reasons.set(words, (reasons.get(words) ?? new Set()).add(check.reason.replace(floorsShipped, listOfFixes)))
  }
  const logged = isImageOnlyLogged(checks) ? [loggedImageWords] : []
  const found = [...reasons].map(([words, given]) => `${words} (${[...given].join('; ')})`)
  const lines = [...logged, ...found, ...limits]
  if (lines.length <= notProvedLinesMax) return lines
  const shown = lines.slice(0, notProvedLinesMax - 1)
  return [...shown, `and ${lines.length - shown.length} more; --verbose prints each check`]
}

function wordsOf(check: Check): string {
  const name = groupName(check)
  return UNPROVED[name] ?? (name.startsWith('tcb-floor') ? firmwareWords : name)
}
