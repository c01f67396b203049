// NVIDIA's programs as a VM runs them, with the answers of SIMULATED GPUs.

import type { GpuEvidence } from '../../../../src/attest/nvidia/evidence.ts'
import { fromHex } from '../../../../src/base/bytes.ts'
import { Fault } from '../../../../src/base/fault.ts'
import type { run } from '../../../../src/linux/command.ts'
import { opaqueOf, sampleMeasurements, signedReport } from './report.ts'
import { evidenceDocument, fwid, type SimulatedGpu } from './simulated.ts'

export type Recorded = {
  /** Its GPUs; changed by a test. */
  gpus: readonly SimulatedGpu[]
  confidential: string
  devtools: string
  /** In place of the answer of nvattest. */
  evidence: string | null
  /** Command lines, in order. */
  readonly asked: string[]
  run: typeof run
}

/** A report for this nonce by the key of this GPU. */
export async function evidenceFor({ authorities, evidence }: SimulatedGpu, nonce: Uint8Array): Promise<GpuEvidence> {
  const parts = { nonce, measurements: sampleMeasurements(), opaque: opaqueOf(fwid) }
  return { ...evidence, report: await signedReport(parts, authorities.device.leaf) }
}

export function recordedPrograms(gpus: readonly SimulatedGpu[]): Recorded {
  const recorded: Recorded = {
    gpus,
    confidential: 'CC status: ON\n',
    devtools: 'DevTools Mode: OFF\n',
    evidence: null,
    asked: [],
    run: async argv => {
      recorded.asked.push(argv.join(' '))
      return { stdout: await answerOf(recorded, argv), stderr: '' }
    },
  }
  return recorded
}

async function answerOf(recorded: Recorded, argv: readonly string[]): Promise<string> {
  const line = argv.join(' ')
  if (line === 'nvidia-smi conf-compute -f') return recorded.confidential
  if (line === 'nvidia-smi conf-compute -d') return recorded.devtools
  if (line === 'nvidia-smi conf-compute -srs 1') return 'Successfully set CC GPUs ready state to Ready\n'
  const [, hex = ''] = /^nvattest collect-evidence --device gpu --nonce ([0-9a-f]{64}) --format json$/.exec(line) ?? []
  const nonce = fromHex(hex)
  if (nonce === null || nonce.length !== 32) throw new Fault('host.command_failed', `no program ${line}`)
  if (recorded.evidence !== null) return recorded.evidence
  const evidences = await Promise.all(recorded.gpus.map(async gpu => evidenceDocument(await evidenceFor(gpu, nonce))))
  return JSON.stringify({ evidences, result_code: 0, result_message: 'Ok' })
}
