// One verdict on the GPUs and switches of a machine, for relying parties with NVIDIA's manifests and OCSP
// responses. Pure. Never throws for bad evidence.

import { parsed } from '../malformed.ts'
import { pass, verdict } from '../verdict.ts'
import { nothingCompared } from './comparison.ts'
import type { HgxPolicy } from './hgx/policy.ts'
import { readSwitchesOfGpu } from './hgx/report.ts'
import { type JudgedSwitch, judgeSwitch, switchArch } from './hgx/switch.ts'
import { topologyChecks } from './hgx/topology.ts'
import {
  architectureOf,
  type ComparisonChecks,
  type GpuEvidenceQuestion,
  type GpuFiles,
  type GpuVerdict,
  judgeGpus,
  manifestCheckName,
  noManifest,
  under,
} from './judge.ts'
import { type JudgedRim, judgeRim, readResponses } from './manifests.ts'
import { compareMeasurements } from './measurements.ts'
import type { GpuFacts } from './policy.ts'
import { portableP384 } from './portable-p384.ts'
import { checkRevocation } from './revocation.ts'
import type { ReadSignedXml, Rim } from './rim.ts'
import { decodeRoots } from './roots.ts'
import { decodeReport, type GpuReport } from './spdm.ts'

export type GpuFilesQuestion = {
  /** NVIDIA's manifests. Every given manifest must be good. */
  readonly rims: readonly Uint8Array[]
  readonly readSignedXml: ReadSignedXml
  /** OCSP responses in DER. */
  readonly ocsp: readonly Uint8Array[]
}

export type GpuQuestion = Omit<GpuEvidenceQuestion, 'verify' | 'policy'> &
  GpuFilesQuestion & { readonly policy: HgxPolicy }

export type MachineVerdict = GpuVerdict & { readonly switches: readonly JudgedSwitch[] }

/** Verifies GPUs and switches. Throws Malformed if a root, which the relying party supplies, is unreadable. */
export function verifyGpus(question: GpuQuestion): MachineVerdict {
  const files = judgeFiles(question)
  const asked = { ...question, verify: portableP384 }
  // The document's word for a device's kind is checked against its certificates.
  const evidence = question.evidence.filter(({ arch }) => arch !== switchArch)
  const judged = judgeGpus({ ...asked, evidence }, files)
  const roots = decodeRoots(question.roots)
  const switches = question.evidence
    .filter(({ arch }) => arch === switchArch)
    .map(device => judgeSwitch(device, { ...asked, roots, files }))
  const topology = topologyChecks({
    gpus: judged.gpus.map(({ facts }, at) => ({
      deviceSerial: facts?.deviceSerial ?? null,
      switches: parsed(() => decodeReport(evidence[at]?.report ?? new Uint8Array(0), readSwitchesOfGpu).fields),
    })),
    switches: switches.map(({ facts }) => facts),
    expected: question.policy.topology ?? 'any',
  })
  const ofSwitches = switches.flatMap(({ checks }, at) => under(`switch-${at}`, checks))
  return {
    ...judged,
    ...verdict([...judged.checks, ...ofSwitches, ...topology]),
    simulated: judged.simulated || switches.some(({ simulated }) => simulated),
    switches: switches.map(({ facts, hwmodel, uncompared }) => ({ facts, hwmodel, uncompared })),
  }
}

/** Judges manifests and OCSP responses. Throws Malformed if a root is unreadable. */
export function judgeFiles({
  rims: files,
  readSignedXml,
  ocsp,
  roots: trusted,
  policy,
  asOfMs,
}: GpuFilesQuestion & Pick<GpuEvidenceQuestion, 'roots' | 'policy' | 'asOfMs'>): GpuFiles {
  const roots = decodeRoots(trusted)
  const { responses, checks } = readResponses(ocsp)
  const age = policy.ocspMaximumAgeSeconds
  const revocation = { responses, asOfMs, maximumAgeMs: age === 'any' ? age : age * 1000 }
  const rims = files.map(bytes => judgeRim(bytes, { ...revocation, readSignedXml, roots }))
  return {
    checks,
    rims,
    hasOcsp: ocsp.length > 0,
    // A GPU issues its own leaf, for which no responder has an entry.
    checkRevocation: (name, chain) => checkRevocation(name, { ...revocation, chain, from: 1 }),
    compare: (report, facts) => compare(report, facts, rims),
  }
}

/** Compares a report with the manifests of its driver and VBIOS. If one version has several, uses those that match. */
function compare(report: GpuReport, facts: GpuFacts, judged: readonly JudgedRim[]): ComparisonChecks {
  const given = { driver: rimsOf('driver', facts, judged), vbios: rimsOf('vbios', facts, judged) }
  const found = (kind: keyof typeof given, version: string) => {
    return given[kind].length > 0 ? pass(manifestCheckName(kind), version) : noManifest(kind, version)
  }
  const checks = [found('driver', facts.driverVersion), found('vbios', facts.vbiosVersion)]
  const pairs = given.driver.flatMap(driver => given.vbios.map(vbios => compareMeasurements(report, [driver, vbios])))
  const best = pairs.find(pair => verdict(pair.checks).ok) ?? pairs[0] ?? nothingCompared('a manifest is missing')
  return { ...best, checks: [...checks, ...best.checks] }
}

function rimsOf(kind: Rim['kind'], facts: GpuFacts, judged: readonly JudgedRim[]): readonly Rim[] {
  const version = kind === 'driver' ? facts.driverVersion : facts.vbiosVersion
  return judged.flatMap(({ rim }) => {
    const fits = rim?.kind === kind && rim.version === version && architectureOf(rim.product) === facts.architecture
    return fits && rim !== null ? [rim] : []
  })
}
