// Parts shared by the verdicts on gateways and instances: about seventy checks of a receipt in a few groups, its floors
// and its nonce. Pure.

import { productOfCpuid } from '../attest/amd/product.ts'
import { floorChecks } from '../attest/policy/floors.ts'
import type { StatementKind } from '../attest/receipt/statement.ts'
import type { ReceiptVerdict } from '../attest/receipt/verify.ts'
import { type Check, check, fail, notChecked, pass, verdict } from '../attest/verdict.ts'
import { equalConstantTime, toBase64Url, toHex } from '../base/bytes.ts'
import { floorWaivers, type Pins } from './pins.ts'

export type Group = {
  readonly name: string
  readonly members: readonly string[]
  /** If this check was skipped by choice, the group is not-checked, with `otherwise` as the reason. */
  readonly decides?: { readonly check: string; readonly otherwise: string }
}

/** Groups for every kind of receipt. */
export const COMMON_GROUPS: readonly Group[] = [
  { name: 'nonce', members: ['statement-nonce', 'statement-age'] },
  {
    name: 'measurement',
    members: ['statement-measurement', 'measurement', 'expected-image-name'],
    decides: { check: 'measurement', otherwise: 'no measurement is expected; name yours in a --policy' },
  },
  {
    name: 'operator-key',
    members: ['statement-operator-key', 'id-key-digest', 'expected-operator-key'],
    decides: { check: 'id-key-digest', otherwise: 'no operator key is expected; name yours in a --policy' },
  },
]

/** Present only if the caller has not waived them. */
const floorsPrefix = 'tcb-floor'

/** Puts every check into one group or into `evidence`, except those that the caller judges `elsewhere`. */
export function groupsOf(
  checks: readonly Check[],
  {
    prefix,
    groups,
    elsewhere,
  }: { readonly prefix: string; readonly groups: readonly Group[]; readonly elsewhere: readonly string[] },
): Check[] {
  const named = [...groups.flatMap(group => group.members), ...elsewhere]
  const floors = checks.filter(check => check.name.startsWith(floorsPrefix))
  const rest = checks.filter(check => !named.includes(check.name) && !check.name.startsWith(floorsPrefix))
  const inGroups = groups.map(group =>
    grouped(
      `${prefix}${group.name}`,
      checks.filter(check => group.members.includes(check.name)),
      group.decides,
    ),
  )
  // Show waived and second-hand floors separately: in a passing group they would be invisible.
  const isSaid = ({ outcome, required }: Check) => outcome === 'not-checked' && !required
  const said = floors.filter(isSaid).map(check => ({ ...check, name: `${prefix}${check.name}` }))
  const counted = floors.filter(check => !isSaid(check))
  const floor = counted.length === 0 ? said : [grouped(`${prefix}${floorsPrefix}`, counted), ...said]
  return [grouped(`${prefix}evidence`, rest), ...floor, ...inGroups]
}

function grouped(name: string, members: readonly Check[], decides?: Group['decides']): Check {
  const reasons = (checks: readonly Check[]) => checks.map(check => `${check.name}: ${check.reason}`).join('; ')
  const isMissing = ({ outcome, required }: Check) => outcome === 'not-checked' && required
  const bad = members.filter(member => member.outcome === 'fail' || isMissing(member))
  // This check only repeats that another one is bad.
  const telling = bad.length > 1 ? bad.filter(check => check.name !== 'evidence') : bad
  if (bad.some(check => check.outcome === 'fail')) return fail(name, reasons(telling))
  if (bad.length > 0 || members.length === 0) return notChecked(name, reasons(telling) || 'nothing was checked', true)
  const deciding = members.find(member => member.name === decides?.check)
  if (decides !== undefined && deciding?.outcome !== 'pass') return notChecked(name, decides.otherwise, false)
  const passed = members.filter(member => member.outcome === 'pass')
  if (passed.length === 0) return notChecked(name, reasons(members), false)
  return pass(name, passed.length === 1 ? (passed[0]?.reason ?? '') : `${passed.length} checks`)
}

/** Adds the floors' checks to a receipt's verdict, unless the caller has waived them. */
export function withFloors<Kind extends StatementKind>(
  found: ReceiptVerdict<Kind>,
  { tcb }: Pick<Pins, 'tcb'>,
): ReceiptVerdict<Kind> {
  if (tcb === 'any') return found
  const { report } = found
  const cpuid = report?.cpuid ?? null
  const product = cpuid === null ? null : productOfCpuid(cpuid)
  return { ...found, ...verdict([...found.checks, ...floorChecks(report, product, floorWaivers(tcb))]) }
}

/** Returns the receipt with the caller's revocation list, if given, instead of its own. */
export function withCrl<R extends { readonly evidence: object }>(receipt: R, crl: Uint8Array | undefined): R {
  return crl === undefined ? receipt : { ...receipt, evidence: { ...receipt.evidence, crl: toBase64Url(crl) } }
}

/** Checks a document's nonce. Each receipt's own check compares it with the receipt. */
export function nonceCheck(found: Uint8Array, expected: Uint8Array | 'any'): Check {
  const name = 'attestation-nonce'
  if (expected === 'any') return notChecked(name, 'no nonce is expected: this evidence may be old', false)
  return check(
    name,
    equalConstantTime(found, expected),
    `the nonce is ${toHex(found)}, not ${toHex(expected)}`,
    'the nonce that was sent',
  )
}
