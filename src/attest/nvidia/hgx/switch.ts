// Judges the report of one NVSwitch: as a GPU's, but against the one manifest of its BIOS. Pure. Never throws for bad
// evidence.

import { type Check, check, notChecked, pass, verdict } from '../../verdict.ts'
import { commonNameOf } from '../../x509/certificate.ts'
import { nothingCompared } from '../comparison.ts'
import type { GpuEvidence } from '../evidence.ts'
import { type DeviceQuestion, judgeDevice, manifestCheckName, noManifest, notGood } from '../judge.ts'
import { compareMeasurements, type Measured } from '../measurements.ts'
import { decodeReport } from '../spdm.ts'
import type { HgxPolicy } from './policy.ts'
import { readSwitchFields, type SwitchFields } from './report.ts'

/** Architecture in documents. The name of its certificates has an underscore. */
export const switchArch = 'LS10'

export type SwitchFacts = Pick<SwitchFields, 'biosVersion' | 'pdi' | 'gpuPdis' | 'lockStatus'> & {
  readonly ueid: string
  readonly deviceSerial: string
}

export type JudgedSwitch = {
  /** Trust these only in a good verdict. Null if the report or the chain is unreadable. */
  readonly facts: SwitchFacts | null
  readonly hwmodel: string | null
  readonly uncompared: readonly number[]
}

type SwitchQuestion = DeviceQuestion & { readonly policy: HgxPolicy }

export function judgeSwitch(
  evidence: GpuEvidence,
  asked: SwitchQuestion,
): JudgedSwitch & { readonly simulated: boolean; readonly checks: readonly Check[] } {
  const decode = (bytes: Uint8Array) => decodeReport(bytes, readSwitchFields)
  const { report, chain, checks } = judgeDevice(evidence, decode, asked)
  const hwmodel = chain === null ? null : commonNameOf(chain.path[1].subject)
  const isSwitch = evidence.arch === switchArch && hwmodel !== null && /^(?:SIMULATED )?LS_10(?: |$)/.test(hwmodel)
  const known = report.ok && chain !== null && isSwitch ? { report: report.value, path: chain.path } : null
  const facts: SwitchFacts | null = known && {
    biosVersion: known.report.fields.biosVersion,
    pdi: known.report.fields.pdi,
    gpuPdis: known.report.fields.gpuPdis,
    lockStatus: known.report.fields.lockStatus,
    ueid: BigInt(`0x${known.path[0].serial}`).toString(),
    deviceSerial: known.path[1].serial.toUpperCase(),
  }
  const compared = known === null ? nothingCompared(notGood) : compare(known.report, asked)
  return {
    facts,
    hwmodel,
    uncompared: compared.uncompared,
    simulated: chain?.simulated === true,
    checks: [
      ...checks,
      check('gpu-architecture', isSwitch, 'document or certificates name no switch that this release supports'),
      ...compared.checks,
      ...(facts === null ? [] : [pdiCheck(facts), lockCheck(facts), ...appraise(facts, asked.policy)]),
    ],
  }
}

/** The report's own PDI must be that of the certificate: the topology rests on it. */
function pdiCheck({ pdi, deviceSerial }: SwitchFacts): Check {
  return check('gpu-switch-pdi', pdiOfSerial(deviceSerial) === pdi, `the report names ${pdi}, not ${deviceSerial}`, pdi)
}

/** Which values are safe is not public, and NVIDIA's verifier judges none. */
function lockCheck({ lockStatus }: SwitchFacts): Check {
  return notChecked('gpu-switch-lock', `lock status ${lockStatus ?? 'is absent'}: no value is judged`, false)
}

/** Returns the PDI in the serial number of a device certificate: the 8 bytes after the one of the chip's kind. */
export function pdiOfSerial(deviceSerial: string): string | null {
  return deviceSerial.length === 18 ? deviceSerial.slice(2) : null
}

function compare(report: { readonly fields: SwitchFields } & Pick<Measured, 'measurements'>, asked: SwitchQuestion) {
  const { biosVersion } = report.fields
  const measured = { measurements: report.measurements, fields: { isNvdecMeasured: true } }
  const all = asked.files.rims.flatMap(({ rim }) => {
    return rim?.kind === 'switch' && rim.version === biosVersion ? [compareMeasurements(measured, [rim])] : []
  })
  const best = all.find(({ checks }) => verdict(checks).ok) ?? all[0]
  if (best !== undefined) return { ...best, checks: [pass(manifestCheckName('switch'), biosVersion), ...best.checks] }
  const nothing = nothingCompared('a manifest is missing')
  return { ...nothing, checks: [noManifest('switch', biosVersion), ...nothing.checks] }
}

function appraise({ biosVersion, deviceSerial }: SwitchFacts, { topology = 'any' }: HgxPolicy): readonly Check[] {
  const rules = topology === 'any' ? null : topology
  return [
    allowed('gpu-policy-switch-bios-version', rules?.switchBiosVersions, biosVersion),
    allowed('gpu-policy-switch-serial', rules?.switchSerials, deviceSerial),
  ]
}

function allowed(name: string, list: readonly string[] | 'any' = 'any', value: string): Check {
  if (list === 'any') return notChecked(name, `${value}; the policy has 'any'`, false)
  return check(name, list.includes(value), `${value} is not in the policy`, value)
}
