// Goal: a genuine report with zero bytes after its signature verifies to NVIDIA's root. Other bytes there, fewer bytes
// and a changed signature are refused.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { type GpuEvidence, readGpuEvidence } from '../../../src/attest/nvidia/evidence.ts'
import { defaultGpuPolicy } from '../../../src/attest/nvidia/hgx/policy.ts'
import { type GpuVerdict, judgeGpus, noFiles } from '../../../src/attest/nvidia/judge.ts'
import { portableP384 } from '../../../src/attest/nvidia/portable-p384.ts'
import { NVIDIA_ROOTS } from '../../../src/attest/nvidia/roots.ts'
import { decodeGpuReport, reportBytesMax } from '../../../src/attest/nvidia/spdm.ts'
import { concat, toHex } from '../../../src/base/bytes.ts'

const file = new URL('../../vectors/gpu/hopper-trailing-zero.json', import.meta.url)
const evidence = readGpuEvidence(new Uint8Array(readFileSync(file)))[0] as GpuEvidence
const { report } = evidence

function judged(changed: Uint8Array): GpuVerdict {
  const question = {
    evidence: [{ ...evidence, report: changed }],
    nonce: report.slice(4, 36),
    roots: [NVIDIA_ROOTS],
    policy: { ...defaultGpuPolicy(), ocspMaximumAgeSeconds: 'any', devtools: 'any' } as const,
    asOfMs: Date.parse('2026-01-01T00:00:00Z'),
    devtools: null,
    verify: portableP384,
  }
  return judgeGpus(question, noFiles())
}

const outcome = (verdict: GpuVerdict, name: string) => verdict.checks.find(made => made.name === `gpu-0/${name}`)
const failed = ({ checks }: GpuVerdict) => checks.filter(made => made.outcome === 'fail').map(({ name }) => name)

test('goal: the report ends with one zero byte, and its signature and chain are genuine', () => {
  expect([report.at(-1), report.length]).toEqual([0, 4130])
  const verdict = judged(report)
  expect([failed(verdict), verdict.simulated]).toEqual([[], false])
  expect(outcome(verdict, 'gpu-report-signature')?.outcome).toBe('pass')
  expect(verdict.gpus[0]?.facts).toMatchObject({ architecture: 'HOPPER', driverVersion: '580.95.05' })
})

test('goal: without the zero byte, and with a thousand, it is the same report', () => {
  for (const same of [report.slice(0, -1), concat(report, new Uint8Array(1000))]) {
    expect(failed(judged(same))).toEqual([])
    expect(toHex(decodeGpuReport(same).signedBytes)).toBe(toHex(decodeGpuReport(report).signedBytes))
  }
})

test('goal: other bytes there, a truncated or a changed signature, and too many bytes are refused', () => {
  const last = report.length - 1
  const after = [report.with(last, 1), concat(report, Uint8Array.of(0, 0, 1))]
  for (const bytes of [...after, report.slice(0, -2), new Uint8Array(concat(report, new Uint8Array(reportBytesMax)))]) {
    expect(failed(judged(bytes))).toContain('gpu-0/gpu-report-format')
  }
  expect(outcome(judged(after[0] as Uint8Array), 'gpu-report-format')?.reason).toContain(
    'bytes after the signature that are not zero',
  )
  expect(failed(judged(report.with(last - 1, (report[last - 1] ?? 0) ^ 1)))).toContain('gpu-0/gpu-report-signature')
})
