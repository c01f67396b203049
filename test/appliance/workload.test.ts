// workload.json from the configuration: every field that a gateway's VM needs, and equal text for equal
// configuration.

import { expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rootHash } from '../../scripts/rigs/enclave/workload.ts'
import { composeWorkloadText } from '../../src/appliance/workload.ts'
import { defaultGpuPolicy } from '../../src/attest/nvidia/hgx/policy.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../src/attest/tdx/encode-policy.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { checkValue } from '../../src/contract/check.ts'
import { exposuresIn } from '../../src/contract/vm/exposure.ts'
import type { ImageManifest } from '../../src/contract/vm/image.ts'
import { WorkloadDocument } from '../../src/contract/vm/workload.ts'
import { upstreamTarget } from '../../src/enclave/upstreams.ts'
import { loadUpstream } from '../../src/inference/upstream/load-target.ts'
import { loadGpus } from '../../src/inference/worker/gpu-policy.ts'

const file = { path: 'file', sha256: rootHash, sizeBytes: 1 }
const manifest: ImageManifest = {
  schemaVersion: 1,
  name: 'inference',
  inputsSha256: rootHash,
  rootHash,
  kernelVersion: '6',
  launchDigests: {},
  files: { firmware: file, root: file, kernel: file, initrd: file, cmdline: file },
  gateway: { sha256: rootHash, command: ['strongroom-enclave', 'serve'] },
}
const upstreamToml = '[[inference.upstreams]]\nname = "far"\nurl = "https://far.example/v1"\nmodels = ["m", "e"]\n'

function workloadTextOf(toml: string): string {
  const verdict = parseConfig(toml, 'test.toml')
  if (!verdict.ok) throw new Error('the configuration is valid')
  const { config } = verdict
  const upstreams = config.inference.upstreams.map(loadUpstream)
  return composeWorkloadText({
    config,
    manifest,
    upstreams,
    model: null,
    gpus: null,
    controlKey: 'A'.repeat(43),
    allowlist: null,
  })
}

function documentOf(toml: string): WorkloadDocument {
  const result = checkValue(WorkloadDocument, JSON.parse(workloadTextOf(toml)))
  if (!result.ok) throw new Error(result.problem)
  return result.value
}

test('goal: a configuration that uses nothing of what came later gives the very text of before, so relying parties pin no new digest', () => {
  // The former defaults: time limits, and how long the gateway keeps responses.
  const former = 'responses_kept_s = 1800\nfirst_byte_timeout_ms = 120000\nidle_timeout_ms = 60000'
  const toml = `[inference]\n${former}\n${upstreamToml}`
  expect(new Bun.CryptoHasher('sha256').update(workloadTextOf(toml)).digest('hex')).toBe(
    '6d4702eaf02f85386e6de4ab82c39877abbd646661a8fffedea29d92b32b0d64',
  )
})

test('goal: by default no setting has to be allowed by those who verify: no labels, padded streams, nothing kept', () => {
  const { gateway } = documentOf('')
  expect(exposuresIn(gateway)).toEqual([])
  expect(gateway.keptResponses?.retentionMs).toBe(0)
  // Left out, as documents from before the field: kept for 1800 s.
  const kept = documentOf('[inference]\nresponses_kept_s = 1800\n').gateway
  expect([kept.keptResponses, exposuresIn(kept)]).toEqual([undefined, ['kept-responses']])
  const traced = documentOf('[inference.traces]\nendpoint = "https://collector.example/v1/traces"\n').gateway
  expect(exposuresIn(traced)).toEqual(['traces'])
})

test('goal: how long and how many receipts are kept is in it as soon as it is not the default', () => {
  expect(documentOf('').gateway.keptReceipts).toBeUndefined()
  const toml = '[inference]\nreceipts_kept_s = 60\n'
  expect(documentOf(toml).gateway.keptReceipts).toEqual({ retentionMs: 60_000, countMax: 8_192, bytesMax: 67_108_864 })
})

test('goal: how many processes serve is in it as soon as it is said', () => {
  expect(documentOf('').gateway.processes).toBeUndefined()
  expect(documentOf('[inference]\nprocesses = 4\n').gateway.processes).toBe(4)
})

test('goal: embedding models are in it as soon as there are any, and a gateway in a VM reads them as one on the host', () => {
  const toml = `${upstreamToml}embedding_models = ["e"]\n`
  const [upstream] = documentOf(toml).upstreams
  expect(upstream?.embeddingModels).toEqual(['e'])
  expect(upstream && upstreamTarget(upstream, () => null).embeddingModels).toEqual(['e'])
  const [former] = documentOf(upstreamToml).upstreams
  expect(former && upstreamTarget(former, () => null).embeddingModels).toEqual([])
})

test('goal: a second pin, fallbacks and HTTP/2 are in it as soon as they are said, and a gateway in a VM has the pins of one on the host', () => {
  const pins = `spki_sha256 = "${'ab'.repeat(32)}"\nspki_sha256_next = "${'cd'.repeat(32)}"\n`
  const rows = '[[inference.fallbacks]]\nmodel = "m"\nfallback = "e"\ncanary_percent = 5\n'
  const { gateway, upstreams } = documentOf(
    `[inference]\nhttp2 = true\nusage_labels = true\n${rows}${upstreamToml}${pins}`,
  )
  expect([gateway.http2, gateway.usageLabels]).toEqual([true, true])
  expect(gateway.fallbacks).toEqual([{ model: 'm', fallback: 'e', canaryPercent: 5 }])
  const [upstream] = upstreams
  expect(upstream && upstreamTarget(upstream, () => null)).toMatchObject({
    spkiSha256: 'ab'.repeat(32),
    spkiSha256Next: 'cd'.repeat(32),
  })
})

test('goal: the evidence that an upstream has to show is in it with its whole policy, and a gateway in a VM asks the same', () => {
  const dir = mkdtempSync(join(tmpdir(), 'srt-workload-'))
  try {
    const policy = join(dir, 'tdx.json')
    const digests = ['00'.repeat(48)]
    const named = { mrTds: digests, rtmr1: digests, rtmr2: digests }
    writeFileSync(policy, JSON.stringify({ ...encodeTdxPolicy(strictTdxPolicy()), ...named }))
    const toml = `${upstreamToml}attestation = "tdx"\nattestation_policy = "${policy}"\nattestation_minutes = 5\n`
    const [upstream] = documentOf(toml).upstreams
    const text = readFileSync(policy, 'utf8')
    const asked = { kind: 'tdx', policy: text, path: '/attestation', intervalMs: 300_000 } as const
    expect(upstream?.attestation).toEqual(asked)
    expect(upstream && upstreamTarget(upstream, () => null).attestation).toEqual({
      ...asked,
      collateralFile: null,
      simulatedRoot: null,
    })
    // A change of the policy is a change of HOST_DATA.
    const before = workloadTextOf(toml)
    writeFileSync(policy, `${text} `)
    expect(workloadTextOf(toml)).not.toBe(before)
    expect(() => workloadTextOf(`${toml}attestation_collateral = "/c"\n`)).toThrow('reads no file of this host')
  } finally {
    rmSync(dir, { recursive: true })
  }
})

test('goal: GPUs are in it with their number and the whole policy, and without any the text is that of before', () => {
  const dir = mkdtempSync(join(tmpdir(), 'srt-workload-'))
  try {
    const policy = join(dir, 'gpu.json')
    writeFileSync(policy, JSON.stringify({ ...defaultGpuPolicy(), topology: undefined }))
    const [first, second] = ['0000:41:00.0', '0000:c1:00.0']
    const toml = `[inference.worker]\nmodel_disk = "m"\ngpu = ["${first}", "${second}"]\ngpu_policy = "${policy}"\n`
    const model = { name: 'm', rootHash, hashOffset: 4096, fileSha256: rootHash, fileBytes: 1, golden: null }
    const of = (text: string) => {
      const verdict = parseConfig(text, 'test.toml')
      if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
      const { config } = verdict
      const gpus = loadGpus(config.inference.worker)
      return composeWorkloadText({
        config,
        manifest,
        upstreams: [],
        model,
        gpus,
        controlKey: 'A'.repeat(43),
        allowlist: null,
      })
    }
    const document = checkValue(WorkloadDocument, JSON.parse(of(toml)))
    const text = readFileSync(policy, 'utf8')
    expect(document.ok && document.value.worker?.gpus).toEqual({ count: 2, policy: text })
    expect(of('[inference.worker]\nmodel_disk = "m"\n')).not.toContain('gpus')
    // A change of the policy is a change of HOST_DATA.
    const before = of(toml)
    writeFileSync(policy, `${text} `)
    expect(of(toml)).not.toBe(before)
    writeFileSync(policy, '{}')
    expect(() => of(toml)).toThrow(/^inference\.worker\.gpu_policy: /)
  } finally {
    rmSync(dir, { recursive: true })
  }
})
