// `strongroom verify gateway` against HTTPS servers whose worker has GPUs, with the relying party's own files for them.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { clearRig } from '../../../../scripts/rigs/gateway/attestation.ts'
import { toPem } from '../../../../src/attest/encoding/pem.ts'
import { toHex } from '../../../../src/base/bytes.ts'
import { ocspOf, policyDocument, type SimulatedGpu, simulatedGpu } from '../../../rigs/attest/gpu/simulated.ts'
import { everything, file, startGateway, writeCaFile } from '../../../rigs/gateway/attested-servers.ts'
import { type GpuGateway, gpuGateway, gpuPolicyText } from '../../../rigs/gateway/gpu-gateway.ts'
import { checksOf, expectUsageError, runHere } from '../../../rigs/program.ts'

afterAll(clearRig)

let gpu: SimulatedGpu
let gateway: GpuGateway
let bare: GpuGateway
/** Options of a relying party, without a word on GPUs. */
let base: string[] = []
let roots: string[] = []
let manifests: string[] = []
beforeAll(async () => {
  gpu = await simulatedGpu()
  gateway = await gpuGateway([gpu])
  bare = await gpuGateway([], null)
  const { authorities, driver, vbios } = gpu
  const pem = [authorities.device.root, authorities.rim.root].map(({ der }) => toPem(der, 'CERTIFICATE')).join('')
  base = ['--ca', writeCaFile(), ...(await everything()).slice(0, 6)]
  roots = ['--trust-simulated-gpu-roots', file('gpu-roots.pem', pem)]
  manifests = ['--gpu-rim', file('driver.xml', driver), '--gpu-rim', file('vbios.xml', vbios)]
})

async function verify(served: GpuGateway, argv: readonly string[]) {
  using server = await startGateway(served)
  const { code, stdout } = await runHere(['verify', 'gateway', server.url, ...base, ...argv, '--json'])
  return { code, document: JSON.parse(stdout) }
}

/** Responses of this hour. */
async function ocspFiles(): Promise<string[]> {
  const [thisUpdateMs, nextUpdateMs] = [Date.now() - 60_000, Date.now() + 3_600_000]
  const responses = await ocspOf(gpu.authorities, () => ({ thisUpdateMs, nextUpdateMs }))
  return responses.flatMap((der, at) => ['--gpu-ocsp', file(`gpu-${at}.der`, der)])
}

test('goal: a gateway with a GPU passes with manifests and OCSP responses, and the document names the GPU', async () => {
  const { code, document } = await verify(gateway, [...roots, ...manifests, ...(await ocspFiles())])
  expect([code, document.failed, document.simulated, checksOf(document, 'FAIL')]).toEqual([0, null, true, []])
  expect(checksOf(document, 'PASS')).toEqual(
    expect.arrayContaining(['gpu-required', 'gpu-binding', 'gpu-0/gpu-nonce', 'gpu-0/gpu-chain-ocsp', 'gpu-count']),
  )
  expect(document.gpus).toMatchObject([{ architecture: 'HOPPER', ueid: policyDocument().ueids[0], mode: 'SPT' }])
  expect(document.gpu_evidence_sha256).toMatch(/^[0-9a-f]{64}$/)
  using server = await startGateway(gateway)
  const { stdout } = await runHere(['verify', 'gateway', server.url, ...base, ...roots, ...manifests])
  const policy = toHex(new Uint8Array(Bun.CryptoHasher.hash('sha256', gpuPolicyText)))
  expect(stdout).toContain(`GPUs: 1 that meet policy ${policy}`)
})

test('goal: without files their checks are NOT CHECKED, and the rest is judged all the same', async () => {
  const { code, document } = await verify(gateway, roots)
  expect([code, checksOf(document, 'FAIL')]).toEqual([0, []])
  expect(checksOf(document, 'NOT CHECKED')).toEqual(
    expect.arrayContaining(['gpu-0/gpu-driver-rim', 'gpu-0/gpu-measurements', 'gpu-0/gpu-chain-ocsp']),
  )
})

test('goal: genuine GPUs that a policy of yours refuses are refused, not forged; a policy counts in the place of workload.json', async () => {
  const policy = { ...policyDocument(), ocspMaximumAgeSeconds: 'any', devtools: 'refuse' }
  const own = (change: object) => ['--gpu-policy', file('gpu-policy.json', JSON.stringify({ ...policy, ...change }))]
  const other = await verify(gateway, [...roots, ...manifests, ...own({ ueids: ['1'] })])
  expect([other.code, other.document.failed]).toEqual([6, 'policy'])
  expect(checksOf(other.document, 'FAIL')).toEqual(['gpu-0/gpu-policy-ueid'])
  expect((await verify(gateway, [...roots, ...manifests, ...own({})])).code).toBe(0)
})

test('goal: evidence that ends at no root of NVIDIA, is of one GPU too few, or beside manifests of others is not genuine', async () => {
  const strangers = await verify(gateway, [])
  expect([strangers.code, strangers.document.failed]).toEqual([1, 'evidence'])
  expect(checksOf(strangers.document, 'FAIL')).toContain('gpu-0/gpu-chain-root')
  const hidden = await verify(await gpuGateway([gpu], { count: 2, policy: gpuPolicyText }), [...roots, ...manifests])
  expect([hidden.code, checksOf(hidden.document, 'FAIL')]).toEqual([1, ['gpu-count']])
  const another = await simulatedGpu()
  const forged = await verify(gateway, [...roots, '--gpu-rim', file('other.xml', another.driver)])
  expect([forged.code, forged.document.failed]).toEqual([1, 'evidence'])
})

test('goal: files for GPUs beside a gateway that has none are a refusal, for you expected some; without them nothing is said of GPUs', async () => {
  const refused = await verify(bare, manifests)
  expect([refused.code, checksOf(refused.document, 'FAIL')]).toEqual([6, ['pin-gpu']])
  const { code, document } = await verify(bare, [])
  expect([code, document.gpus, document.gpu_evidence_sha256]).toEqual([0, [], null])
  expect(JSON.stringify(document.checks)).not.toContain('gpu')
})

test('goal: files that are not there, or are none, are bad input, and the option that named them is said', async () => {
  const line = (...argv: string[]) => ['verify', 'gateway', 'https://127.0.0.1:1', ...base, ...argv]
  const none = file('none', '{}')
  for (const option of ['--gpu-rim', '--gpu-ocsp', '--gpu-policy', '--trust-simulated-gpu-roots']) {
    await expectUsageError(line(option, '/nonexistent'), `${option} /nonexistent`)
    if (option !== '--gpu-ocsp') await expectUsageError(line(option, none), `${option} ${none}`)
  }
  const many = Array.from({ length: 65 }, () => ['--gpu-ocsp', none]).flat()
  await expectUsageError(line(...many), '--gpu-ocsp: 65 files, at most 64')
})
