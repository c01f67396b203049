// Goal: `strongroom verify gpu` judges evidence as NVIDIA's tools write it, offline, by pins that have to be named or
// left out in so many words; exit codes and documents are those of the other commands that verify.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toPem } from '../../../../src/attest/encoding/pem.ts'
import { fromUtf8, toBase64, toHex } from '../../../../src/base/bytes.ts'
import { hgxPolicyDocument, SMALL, simulatedHgx } from '../../../rigs/attest/gpu/hgx.ts'
import {
  asOfMs,
  evidenceDocument,
  nonce,
  policyDocument,
  type SimulatedGpu,
  simulatedGpu,
} from '../../../rigs/attest/gpu/simulated.ts'
import { checksOf, expectUsageError, runHere } from '../../../rigs/program.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-gpu-'))
afterAll(() => rmSync(directory, { recursive: true }))

function file(name: string, contents: string | Uint8Array): string {
  const path = join(directory, name)
  writeFileSync(path, contents)
  return path
}

let gpu: SimulatedGpu
let evidence = ''
let base: string[] = []
let whole: string[] = []
beforeAll(async () => {
  gpu = await simulatedGpu()
  const { authorities, driver, vbios, ocsp } = gpu
  const roots = [authorities.device.root, authorities.rim.root].map(({ der }) => toPem(der, 'CERTIFICATE')).join('')
  evidence = file('evidence.json', JSON.stringify([evidenceDocument(gpu.evidence)]))
  base = [
    ...['--nonce', toHex(nonce), '--as-of', new Date(asOfMs).toISOString().replace('.000', '')],
    ...['--trust-simulated-root', file('roots.pem', roots)],
    ...['--rim', file('driver.xml', driver), '--rim', file('vbios.xml', vbios)],
  ]
  whole = [
    ...['verify', 'gpu', evidence, ...base, '--policy', file('policy.json', JSON.stringify(policyDocument()))],
    ...ocsp.flatMap((der, at) => ['--ocsp', file(`${at}.der`, der)]),
  ]
})

async function json(argv: readonly string[]) {
  const { code, stdout, stderr } = await runHere([...argv, '--json'])
  expect(stderr).toBe('')
  return { code, document: JSON.parse(stdout) }
}

test('goal: a GPU with a policy, manifests and OCSP responses passes, and is named', async () => {
  const { code, document } = await json(whole)
  expect([code, document.failed, document.simulated]).toEqual([0, null, true])
  expect(document.gpus[0]).toMatchObject({
    architecture: 'HOPPER',
    driver_version: '550.90.07',
    vbios_version: '96.00.9F.00.01',
    mode: 'SPT',
    ueid: '478176379286082186618948445787393647364802107249',
    device_serial: '41E23D711E1C4FBFAC',
    board: '1010_0200_882',
  })
  expect(document.rims).toEqual([
    { kind: 'driver', version: '550.90.07', product: 'GH100' },
    { kind: 'vbios', version: '96.00.9F.00.01', product: 'GH100' },
  ])
  const { code: summaryCode, stdout } = await runHere(whole)
  expect(summaryCode).toBe(0)
  expect(stdout).toMatch(/^rests on +root: .+, which is SIMULATED$/m)
  expect(stdout).toContain('GPUs: SIMULATED GH100 A01 GSP BROM, driver 550.90.07, VBIOS 96.00.9F.00.01, ueid 4781')
  expect(stdout.split('\n').length).toBeLessThan(17)
})

test('goal: without a policy, OCSP or a word on DevTools nothing passes; each flag leaves one out, and the verdict says so', async () => {
  const bare = ['verify', 'gpu', evidence, ...base]
  const nothing = await json(bare)
  expect([nothing.code, nothing.document.failed]).toEqual([6, 'policy'])
  expect(checksOf(nothing.document, 'FAIL')).toEqual(['gpu-0/gpu-devtools', 'pin-gpu'])
  const withoutOcsp = await json([...bare, '--any-gpu', '--any-devtools'])
  expect([withoutOcsp.code, withoutOcsp.document.failed]).toEqual([2, 'input'])
  const withoutDevtools = await json([...bare, '--any-gpu', '--any-ocsp'])
  expect([withoutDevtools.code, checksOf(withoutDevtools.document, 'FAIL')]).toEqual([6, ['gpu-0/gpu-devtools']])
  const { code, stdout } = await runHere([...bare, '--any-gpu', '--any-ocsp', '--any-devtools'])
  expect([code, stdout]).toEqual([0, expect.stringContaining('accepted')])
  for (const flag of ['--any-gpu', '--any-ocsp', '--any-devtools']) expect(stdout).toContain(`you asked with ${flag}`)
  expect(stdout).not.toContain('not checked  gpu')
  expect(stdout).toContain('any genuine GPU or switch, driver, VBIOS and BIOS')
})

test('goal: exit codes: forged evidence 1, a policy that refuses 6, what cannot be read 2', async () => {
  const swap = (from: string, to: string) => whole.map(word => (word === from ? to : word))
  const forged = await json(swap(toHex(nonce), '00'.repeat(32)))
  expect([forged.code, forged.document.failed, checksOf(forged.document, 'FAIL')]).toEqual([
    ...[1, 'evidence', ['gpu-0/gpu-nonce']],
  ])
  const other = file('other.json', JSON.stringify({ ...policyDocument(), driverVersions: ['550.90.08'] }))
  const refused = await json([...whole.map(word => (word.endsWith('/policy.json') ? other : word))])
  expect([refused.code, checksOf(refused.document, 'FAIL')]).toEqual([6, ['gpu-0/gpu-policy-driver-version']])
  const broken = await json([...whole, '--rim', file('broken.xml', '<!DOCTYPE x>')])
  expect([broken.code, checksOf(broken.document, 'FAIL')]).toEqual([2, ['rim-2/gpu-rim-format']])
  const report = toBase64(gpu.evidence.report.slice(1))
  const unread = file('unread.json', JSON.stringify({ ...evidenceDocument(gpu.evidence), evidence: report }))
  expect((await json(swap(evidence, unread))).code).toBe(2)
})

test('goal: one object, the document of nvattest, and JSON of the RIM service are read, too', async () => {
  const entry = evidenceDocument(gpu.evidence)
  const rim = JSON.stringify({ id: 'NV_GPU_DRIVER_GH100_550.90.07', rim: toBase64(gpu.driver) })
  for (const document of [entry, { evidences: [entry], result_code: 0 }]) {
    const argv = whole.map(word => (word === evidence ? file('form.json', JSON.stringify(document)) : word))
    expect((await json(argv)).code).toBe(0)
  }
  const service = whole.map(word => (word.endsWith('/driver.xml') ? file('driver.json', rim) : word))
  expect((await json(service)).code).toBe(0)
})

test('goal: bad usage is named: nonce, policy, roots, evidence, flags beside a policy', async () => {
  const bare = ['verify', 'gpu', evidence, ...base]
  await expectUsageError(['verify', 'gpu', evidence], "required option '--nonce <hex>'")
  await expectUsageError(['verify', 'gpu', evidence, '--nonce', '00'], '--nonce')
  await expectUsageError([...whole, '--any-ocsp'], '--any-ocsp contradicts --policy')
  await expectUsageError(
    [...bare, '--policy', file('p.json', '{"format": "strongroom/gpu-policy/v1"}')],
    'architectures',
  )
  const odd = { ...policyDocument(), ueids: ['GPU-1234'] }
  await expectUsageError([...bare, '--policy', file('p2.json', JSON.stringify(odd))], "not NVML's UUID")
  const entry = evidenceDocument(gpu.evidence)
  for (const [text, message] of [
    ['[]', '0 devices'],
    ['{', 'not valid JSON'],
    ['{"arch": "HOPPER"}', 'evidence is missing'],
    [JSON.stringify({ ...entry, certificate: '!' }), 'certificate is not base64'],
    [JSON.stringify({ ...entry, certificate: '' }), 'no CERTIFICATE'],
    [JSON.stringify(Array.from({ length: 33 }, () => entry)), '33 devices'],
    ['{"arch": "HOPPER", "arch": "BLACKWELL"}', 'arch'],
  ] as const) {
    await expectUsageError(['verify', 'gpu', file('odd.json', text), ...base], message)
  }
  const root = file('one.pem', toPem(gpu.authorities.device.root.der, 'CERTIFICATE'))
  await expectUsageError(
    ['verify', 'gpu', evidence, '--nonce', toHex(nonce), '--trust-simulated-root', root],
    'exactly two',
  )
})

test("goal: the policy's schema is published, and takes the sample", async () => {
  const { code, stdout } = await runHere(['verify', 'gpu-policy-schema'])
  expect(code).toBe(0)
  expect(Object.keys(JSON.parse(stdout).properties)).toEqual([...Object.keys(policyDocument()), 'topology'])
  expect(fromUtf8(gpu.driver)).toContain('SIMULATED')
})

test('goal: a machine with switches: evidence in two files or in one, GPUs and switches counted apart', async () => {
  const { base: first, gpus, switches, switchRim, question } = await simulatedHgx(SMALL)
  const roots = [first.authorities.device.root, first.authorities.rim.root]
  const documents = (devices: typeof gpus) => devices.map(({ evidence: made }) => evidenceDocument(made))
  const gpuFile = file('gpus.json', JSON.stringify({ evidences: documents(gpus), result_code: 0 }))
  const switchFile = file('switches.json', JSON.stringify({ evidences: documents(switches), result_code: 0 }))
  const options = [
    ...['--nonce', toHex(nonce), '--as-of', new Date(asOfMs).toISOString().replace('.000', '')],
    ...['--trust-simulated-root', file('hgx.pem', roots.map(({ der }) => toPem(der, 'CERTIFICATE')).join(''))],
    ...[first.driver, first.vbios, switchRim].flatMap((rim, at) => ['--rim', file(`hgx-${at}.xml`, rim)]),
    ...question.ocsp.flatMap((der, at) => ['--ocsp', file(`hgx-${at}.der`, der)]),
    ...['--policy', file('hgx.json', JSON.stringify(hgxPolicyDocument(SMALL)))],
  ]
  const apart = ['verify', 'gpu', gpuFile, '--switches', switchFile, ...options]
  const { code, document } = await json(apart)
  expect([code, document.failed, document.gpus.length, document.switches.length]).toEqual([0, null, 2, 2])
  expect(document.switches[0]).toEqual({
    hwmodel: 'SIMULATED LS_10 A01 FSP BROM',
    bios_version: '96.10.55.00.01',
    ueid: expect.stringMatching(/^[1-9][0-9]+$/),
    device_serial: '50203D711E1C4F1AA0',
    pdi: '203D711E1C4F1AA0',
    gpu_pdis: ['E23D711E1C4F1AA0', 'E23D711E1C4F1AA1'],
    lock_status: '0100',
    uncompared: [20],
  })
  expect(document.rims[2]).toEqual({ kind: 'switch', version: '96.10.55.00.01', product: 'LS10' })
  const machine = 'machine: 2 GPUs and 2 switches; each GPU names these 2 switches; each switch names these 2 GPUs'
  expect((await runHere(apart)).stdout).toContain(machine)
  const together = file('both.json', JSON.stringify([...documents(switches), ...documents(gpus)]))
  expect((await json(['verify', 'gpu', together, ...options])).code).toBe(0)
  // A machine without one of its GPUs is not genuine; one of another size than the policy's is refused.
  const oneGpu = file('one-gpu.json', JSON.stringify(documents(gpus.slice(1))))
  const missing = await json(['verify', 'gpu', oneGpu, '--switches', switchFile, ...options])
  expect([missing.code, checksOf(missing.document, 'FAIL')]).toEqual([1, ['gpu-policy-topology', 'gpu-topology-gpus']])
  const larger = file('larger.json', JSON.stringify(hgxPolicyDocument({ gpus: 4, switches: 2 })))
  const refused = await json([...apart.slice(0, -1), larger])
  expect([refused.code, checksOf(refused.document, 'FAIL')]).toEqual([6, ['gpu-policy-topology']])
  // A policy that counts switches refuses GPUs alone, which are genuine, and says what to give.
  const alone = await json(['verify', 'gpu', gpuFile, ...options])
  expect([alone.code, checksOf(alone.document, 'FAIL')]).toEqual([6, ['gpu-policy-topology']])
  const odd = file('odd.json', '{')
  await expectUsageError(['verify', 'gpu', gpuFile, '--switches', odd, ...options], `--switches ${odd}: `)
  // A file without a switch would be judged as GPUs alone.
  const mixed = file('mixed.json', JSON.stringify(documents([...switches, ...gpus])))
  for (const [path, at] of [
    [oneGpu, 0],
    [mixed, 2],
  ]) {
    const words = `--switches ${path}: device ${at} has arch HOPPER`
    await expectUsageError(['verify', 'gpu', gpuFile, '--switches', `${path}`, ...options], words)
  }
  await expectUsageError(['verify', 'gpu', '-', '--switches', '-', ...options], '--switches standard input can be read')
})
