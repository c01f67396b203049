// Goal: evidence of real GPUs and switches verifies to NVIDIA's root. It is not in this repository: the variable
// STRONGROOM_GPU_VECTORS names a directory with NVIDIA's samples (NVIDIA/attestation-sdk, unit-tests/testdata and
// common-test-data, and NVIDIA/nvtrust, samples of local_gpu_verifier and tests/data of ppcie-verifier-sdk-cpp,
// files side by side): *evidence*.json, RIMs, and
// NAMEAttestationReportSUFFIX.txt with NAMECertChainSUFFIX.txt.

import { expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { derBlocks } from '../../../src/attest/encoding/pem.ts'
import { type GpuEvidence, readGpuEvidence } from '../../../src/attest/nvidia/evidence.ts'
import { defaultGpuPolicy } from '../../../src/attest/nvidia/hgx/policy.ts'
import { judgeRim } from '../../../src/attest/nvidia/manifests.ts'
import { decodeRoots, NVIDIA_ROOTS } from '../../../src/attest/nvidia/roots.ts'
import { verifyGpus } from '../../../src/attest/nvidia/verify.ts'
import { fromHex } from '../../../src/base/bytes.ts'
import { readSignedXml } from '../../../src/client/verify/gpu/signed-xml.ts'

const directory = process.env.STRONGROOM_GPU_VECTORS ?? ''
const skipped = skipUnless(directory !== '', 'STRONGROOM_GPU_VECTORS names no directory with evidence of real GPUs')
const files = skipped ? [] : readdirSync(directory)
const bytesOf = (name: string) => new Uint8Array(readFileSync(join(directory, name)))
const textOf = (name: string) => readFileSync(join(directory, name), 'utf8').trim()

function samples(): Map<string, GpuEvidence> {
  const found = new Map<string, GpuEvidence>()
  for (const name of files) {
    const chain = name.replace('AttestationReport', 'CertChain')
    const report = name.endsWith('.txt') && chain !== name && files.includes(chain) ? fromHex(textOf(name)) : null
    const arch = /switch/i.test(name) ? 'LS10' : /blackwell/i.test(name) ? 'BLACKWELL' : 'HOPPER'
    if (report !== null) found.set(name, { arch, report, certificates: derBlocks(textOf(chain), 'CERTIFICATE', name) })
    if (!name.endsWith('.json') || !name.includes('evidence')) continue
    for (const [at, evidence] of readGpuEvidence(bytesOf(name)).entries()) found.set(`${name} ${at}`, evidence)
  }
  return found
}

const GENUINE = ['format', 'root', 'signatures', 'times', 'signature', 'nonce', 'architecture']

test.skipIf(skipped)('goal: each report is signed by a chain to the pinned root, and for the nonce in it', () => {
  const policy = { ...defaultGpuPolicy(), ocspMaximumAgeSeconds: 'any', devtools: 'any' } as const
  const asked = {
    devtools: null,
    rims: [],
    readSignedXml,
    ocsp: [],
    roots: [NVIDIA_ROOTS],
    policy,
    asOfMs: Date.parse('2026-11-26'),
  }
  const all = samples()
  expect(all.size).toBeGreaterThan(0)
  for (const [name, evidence] of all) {
    const { checks, gpus, switches, simulated } = verifyGpus({
      ...asked,
      evidence: [evidence],
      nonce: evidence.report.slice(4, 36),
    })
    const failed = checks.filter(made => made.outcome === 'fail').map(made => made.name)
    process.stdout.write(`${name}: ${JSON.stringify(gpus[0]?.facts ?? switches[0]?.facts)}\n`)
    expect([name, failed.filter(check => GENUINE.some(part => check.endsWith(`-${part}`)))]).toEqual([name, []])
    // A switch alone is no machine.
    const isSwitch = evidence.arch === 'LS10'
    expect([name, simulated, failed]).toEqual([name, false, isSwitch ? ['gpu-evidence', 'gpu-topology-gpus'] : []])
    // One bit of the measurements.
    const report = Uint8Array.from(evidence.report)
    report[60] = (report[60] ?? 0) ^ 1
    const changed = verifyGpus({ ...asked, evidence: [{ ...evidence, report }], nonce: report.slice(4, 36) })
    const checkName = `${isSwitch ? 'switch' : 'gpu'}-0/gpu-report-signature`
    expect(changed.checks.find(made => made.name === checkName)?.outcome).toBe('fail')
  }
})

test.skipIf(skipped)(
  'goal: each manifest that its source did not spoil is signed by a chain to the pinned root',
  () => {
    const rims = files.filter(
      name => /\.(?:swidtag|xml)$/.test(name) && !/mismatch|incorrect|invalid|expired/.test(name),
    )
    expect(rims.length).toBeGreaterThan(0)
    const roots = decodeRoots([NVIDIA_ROOTS])
    for (const name of rims) {
      // Signers live for two years: the oldest samples are of 2023.
      const asOfMs = Date.parse(/550\.144|SWITCH/.test(name) ? '2026-06-01' : '2024-06-01')
      const { rim, checks } = judgeRim(bytesOf(name), {
        readSignedXml,
        roots,
        responses: [],
        asOfMs,
        maximumAgeMs: 'any',
      })
      expect([name, rim?.product, checks.filter(made => made.outcome === 'fail')]).toEqual([
        ...[name, name.includes('SWITCH') ? 'LS10' : 'GH100', []],
      ])
    }
  },
)

test.skipIf(skipped)(
  "goal: a genuine switch has the measurements of NVIDIA's manifest and the PDI of its certificate",
  () => {
    // The switches of the whole machine have a later BIOS, whose manifest is not among the samples.
    const all = [...samples()].filter(([name]) => !name.startsWith('switch_evidence.json'))
    const ofSwitches = all.flatMap(([, device]) => (device.arch === 'LS10' ? [device] : []))
    const rims = files.filter(name => name.startsWith('switchVBIOSRim')).map(bytesOf)
    expect([ofSwitches.length > 0, rims.length]).toEqual([true, 1])
    const policy = { ...defaultGpuPolicy(), ocspMaximumAgeSeconds: 'any', devtools: 'any' } as const
    for (const device of ofSwitches) {
      const judged = verifyGpus({
        ...{ devtools: null, rims, readSignedXml, ocsp: [], roots: [NVIDIA_ROOTS], policy },
        ...{ evidence: [device], nonce: device.report.slice(4, 36), asOfMs: Date.parse('2026-11-26') },
      })
      const own = judged.checks.filter(({ name }) => name.startsWith('switch-0/'))
      expect(own.filter(made => made.outcome === 'fail' || (made.outcome === 'not-checked' && made.required))).toEqual(
        [],
      )
      expect(own.find(({ name }) => name === 'switch-0/gpu-measurements')?.outcome).toBe('pass')
      expect(judged.switches[0]?.facts?.pdi).toBe('203EB31AD9ED0008')
    }
  },
)

test.skipIf(skipped)('goal: each GPU and each switch of a genuine HGX names the devices on the other side', () => {
  const evidence = ['gpu_evidence.json', 'switch_evidence.json'].flatMap(name => readGpuEvidence(bytesOf(name)))
  const [first] = evidence
  const { checks, gpus, switches } = verifyGpus({
    ...{ evidence, nonce: first?.report.slice(4, 36) ?? new Uint8Array(0), rims: [], ocsp: [], devtools: null },
    ...{ readSignedXml, roots: [NVIDIA_ROOTS], policy: defaultGpuPolicy(), asOfMs: Date.parse('2026-11-26') },
  })
  expect([gpus.length, switches.length]).toEqual([8, 4])
  for (const name of ['gpu-topology-switches', 'gpu-topology-gpus', 'gpu-switch-distinct'])
    expect(checks.find(made => made.name === name)?.outcome).toBe('pass')
})
