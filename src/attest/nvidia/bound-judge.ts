// Judges the evidence of a VM's GPUs: in the VM before it serves, and by relying parties afterwards. Pure. Never throws
// for bad evidence.
//
// A VM has neither manifests nor OCSP responses (noFiles). It leaves their checks to relying parties, which have them.

import { parsed } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import { readBoundGpuEvidence } from './bound.ts'
import { type GpuEvidenceQuestion, type GpuFiles, type GpuVerdict, judgeGpus } from './judge.ts'

export type BoundQuestion = Omit<GpuEvidenceQuestion, 'evidence' | 'devtools'> & {
  readonly bytes: Uint8Array
  /** Number of GPUs, from workload.json. */
  readonly count: number
}

export type BoundVerdict = Verdict & Pick<GpuVerdict, 'simulated' | 'gpus'>

const formatName = 'gpu-format'
const countName = 'gpu-count'

/** Checks that cannot pass without manifests, and checks that cannot pass without OCSP responses. */
const OPEN = {
  rims: ['gpu-driver-rim', 'gpu-vbios-rim', 'gpu-rim-indices', 'gpu-measurements'],
  ocsp: ['gpu-chain-ocsp', 'gpu-rim-ocsp'],
} as const

/** Judges evidence. Calls `filesOf` only if the evidence is readable. */
export function judgeBoundGpus(question: BoundQuestion, filesOf: () => GpuFiles): BoundVerdict {
  const read = parsed(() => readBoundGpuEvidence(question.bytes))
  if (!read.ok) {
    const checks = [fail(formatName, read.reason), notChecked(countName, 'the evidence cannot be read', true)]
    return { ...verdict(checks), simulated: false, gpus: [] }
  }
  const { devtools, evidence } = read.value
  const files = filesOf()
  const judged = judgeGpus({ ...question, evidence, devtools }, files)
  const counted = check(
    countName,
    evidence.length === question.count,
    `evidence of ${evidence.length} GPUs, and workload.json requires ${question.count}`,
    `${question.count}, as workload.json requires`,
  )
  const checks = [pass(formatName), counted, ...judged.checks.map(made => opened(made, files))]
  return { ...verdict(checks), simulated: judged.simulated, gpus: judged.gpus }
}

/** Makes a check optional while its files are missing. A failed check still fails. */
function opened(made: Check, { rims, hasOcsp }: GpuFiles): Check {
  if (made.outcome !== 'not-checked' || !made.required) return made
  const name = made.name.slice(made.name.indexOf('/') + 1)
  const isOf = (names: readonly string[]) => names.includes(name)
  const isOpen = (rims.length === 0 && isOf(OPEN.rims)) || (!hasOcsp && isOf(OPEN.ocsp))
  return isOpen ? { ...made, required: false } : made
}
