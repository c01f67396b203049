// The GPUs of a gateway's worker: those that workload.json requires, and the evidence in the worker's receipt. Pure.
//
// The caller supplies the function that judges the reports, because its hundred kilobytes of code are left out of
// pages.

import { sha256 } from '../attest/hash.ts'
import type { JudgedGpu } from '../attest/nvidia/judge.ts'
import type { StatementOf } from '../attest/receipt/statement.ts'
import { type Check, check, fail, notChecked, pass } from '../attest/verdict.ts'
import { equalConstantTime, fromBase64Url, toHex, utf8 } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import type { WorkloadGpus } from '../contract/vm/workload.ts'
import type { ReadWorkload } from './workload.ts'

export type GpuJudgement = {
  readonly checks: readonly Check[]
  readonly simulated: boolean
  /** Trust these only in a good verdict. */
  readonly gpus: readonly JudgedGpu[]
}

/** Judges evidence bound by the statement, for the nonce derived from it (attest/nvidia/bound.ts). */
export type JudgeGpus = (evidence: {
  readonly bytes: Uint8Array
  readonly statement: Pick<StatementOf<'workload'>, 'nonce' | 'keysDigest'>
  readonly required: WorkloadGpus
  readonly asOfMs: number
}) => GpuJudgement

export type GpuQuestion = {
  /** Statement of the worker's receipt; null if unreadable. */
  readonly worker: StatementOf<'workload'> | null
  readonly workload: ReadWorkload | null
  /** Evidence in the document; undefined if it has none. */
  readonly sent: string | undefined
  readonly judge: JudgeGpus | undefined
  readonly asOfMs: number
}

export const gpuRequiredName = 'gpu-required'
const [bindingName, judgedName] = ['gpu-binding', 'gpus'] as const

/** Judges GPUs. Returns no checks if there is no GPU and none is expected. Never throws. */
export function judgeGpus({ worker, workload, sent, judge, asOfMs }: GpuQuestion): GpuJudgement {
  const required = workload?.document?.worker?.gpus ?? null
  const named = worker?.gpuEvidenceDigest ?? null
  const unjudged = (checks: readonly Check[]): GpuJudgement => ({ checks, simulated: false, gpus: [] })
  if (required === null && named === null && sent === undefined) return unjudged([])
  const bytes = sent === undefined ? null : fromBase64Url(sent)
  const binding = bindingCheck(worker, named, bytes)
  const checks = [requiredCheck(required), binding]
  if (required === null || worker === null || bytes === null || binding.outcome !== 'pass') {
    return unjudged([...checks, notChecked(judgedName, 'there is nothing that could be judged', true)])
  }
  if (judge === undefined) {
    const reason =
      'the measured gateway verified them before its worker started, without manifests or OCSP; they are not verified here'
    return unjudged([...checks, notChecked(judgedName, reason, false)])
  }
  try {
    const judged = judge({ bytes, statement: worker, required, asOfMs })
    return { ...judged, checks: [...checks, ...judged.checks] }
  } catch (error) {
    return unjudged([...checks, fail(judgedName, messageOf(error))])
  }
}

/** Requires the GPUs of workload.json. HOST_DATA binds it, so a host cannot remove a GPU from it. */
function requiredCheck(required: WorkloadGpus | null): Check {
  if (required === null) return fail(gpuRequiredName, 'no workload.json requires GPUs, and there is evidence of some')
  const { count, policy } = required
  return pass(gpuRequiredName, `${count} that meet policy ${toHex(sha256(utf8(policy)))}`)
}

function bindingCheck(
  worker: StatementOf<'workload'> | null,
  named: Uint8Array | null,
  bytes: Uint8Array | null,
): Check {
  if (worker === null) return notChecked(bindingName, "the worker's receipt cannot be read", true)
  if (named === null) return fail(bindingName, "the worker's receipt names no evidence of GPUs")
  if (bytes === null) return fail(bindingName, "no evidence of GPUs came with the worker's receipt, which names some")
  const isNamed = equalConstantTime(sha256(bytes), named)
  return check(bindingName, isNamed, "the evidence of GPUs is not that of the worker's receipt", toHex(named))
}
