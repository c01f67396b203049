// Hardware attestation of this VM: the receipt of its claim, which the host returned. Pure: the caller reads the
// files.

import { productOfCpuid } from '../../attest/amd/product.ts'
import type { TrustedRoot } from '../../attest/amd/roots.ts'
import { type FloorWaivers, floorAgeCheck, floorChecks } from '../../attest/policy/floors.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import { webVerifiers } from '../../attest/receipt/hybrid-verify.ts'
import type { StatementOf } from '../../attest/receipt/statement.ts'
import { judgeReceipt } from '../../attest/receipt/verify.ts'
import { type Check, fail, notChecked, verdict } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { iso } from '../../base/clock.ts'
import { type Line, lineOf } from './line.ts'

type HardwareQuestion = {
  /** Text of the receipt; null if the host has given none yet. */
  readonly receipt: string | null
  /** Name of this instance, which the kernel has from the claim. */
  readonly name: string
  readonly nowMs: number
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  readonly waivers: FloorWaivers
}

type HardwareAnswer = {
  readonly line: Line
  readonly simulated: boolean
  /** The claim that the evidence attests, or a simulated root that the caller trusts; null if nothing attests it. */
  readonly statement: StatementOf<'claim'> | null
  /** True if the only fault is that no hardware attests it. */
  readonly isSimulatedAlone: boolean
}

const name = 'hardware attestation'

/** The owner compares the claim's content from outside. */
const CLAIM_ANY = {
  claimDigest: 'any',
  inferenceUrl: 'any',
  inferenceModel: 'any',
  gateway: 'any',
  gatewayDigest: 'any',
  resolvers: 'any',
  egressLimitBytes: 'any',
  egressNames: 'any',
  egressPolicy: 'any',
  // Compared with the key in use in the gateway's line.
  gatewayKeyDigest: 'any',
  loginKeys: 'any',
  secrets: 'any',
  published: 'any',
} as const

export async function judgeHardware({
  receipt,
  name: instance,
  nowMs,
  roots,
  policy,
  waivers,
}: HardwareQuestion): Promise<HardwareAnswer> {
  if (receipt === null) {
    const missing = notChecked('receipt', 'the host has not handed the receipt over yet; try again in a minute', true)
    return { line: lineOf(name, [missing], ''), simulated: false, statement: null, isSimulatedAlone: false }
  }
  const found = await judgeReceipt(receipt, {
    kind: 'claim',
    // The receipt is of the agent's last evidence, over its requester's nonce.
    nonce: 'any',
    asOf: nowMs,
    ageMsMax: 'any',
    roots,
    policy,
    requireCrl: true,
    expected: {
      imageName: 'any',
      operatorKey: 'any',
      organization: 'any',
      name: { equals: instance },
      hostname: 'any',
      // Checks with separate lines.
      sshHostKeyDigest: 'any',
      publicKeyDigest: 'any',
      ...CLAIM_ANY,
    },
    tpm: 'any',
    verifiers: webVerifiers,
  })
  const { report, simulated, statement } = found
  const product = report?.cpuid == null ? null : productOfCpuid(report.cpuid)
  const checks = [
    ...found.checks,
    ...floorChecks(report, product, waivers),
    floorAgeCheck(nowMs),
    measurementPin(policy),
    clockState(nowMs),
  ]
  const vouched = found.ok ? statement : null
  // Without a trusted root the envelope's own word is enough: no other verdict depends on it.
  const isSimulated = simulated || /"platform":\s*"simulated"/.test(receipt)
  if (isSimulated) {
    const all = [fail('platform-is-hardware', 'SIMULATED: no hardware attests this VM'), ...checks]
    return {
      line: {
        ...lineOf(name, all, ''),
        reason: `${simulatedWords(verdict(found.checks).ok)}; ${clockState(nowMs).reason}`,
      },
      simulated: true,
      statement: vouched,
      // A simulated platform has no AMD firmware, so its floors do not count.
      isSimulatedAlone: simulated && verdict([...found.checks, measurementPin(policy)]).ok,
    }
  }
  const measurement = statement === null ? '' : toHex(statement.image.measurement)
  return {
    line: lineOf(name, checks, `${product ?? 'AMD'}, measurement ${measurement}; ${clockState(nowMs).reason}`),
    simulated,
    statement: vouched,
    isSimulatedAlone: false,
  }
}

function simulatedWords(isGood: boolean): string {
  const rest = isGood
    ? 'the rest of its evidence is good'
    : 'its evidence is not good either, or its root is not trusted; see --verbose'
  return `SIMULATED: no hardware attests this VM; ${rest}`
}

/** Nothing signed bounds it, and certificates are judged by it. */
function clockState(nowMs: number): Check {
  return notChecked('clock', `its clock shows ${iso(nowMs)}, which its host sets`, false)
}

/** Required: without it any rented confidential VM would pass. */
function measurementPin({ measurements }: Policy): Check {
  const pin = 'pin-measurement'
  if (measurements === 'any') {
    return notChecked(
      pin,
      'the evidence is compared with no measurement: name those that you expect in a --policy',
      true,
    )
  }
  return { name: pin, outcome: 'pass', reason: `${measurements.length} named in the policy`, required: true }
}
