// Goal: a machine of GPUs and switches passes only as a whole: none of them is missing, there twice, of
// another machine or of another kind than its certificates, and all reports are for one nonce.

import { beforeAll, expect, test } from 'bun:test'
import type { GpuEvidence } from '../../../../src/attest/nvidia/evidence.ts'
import { topologyChecks } from '../../../../src/attest/nvidia/hgx/topology.ts'
import { type GpuQuestion, type MachineVerdict, verifyGpus } from '../../../../src/attest/nvidia/verify.ts'
import { fromHex } from '../../../../src/base/bytes.ts'
import { exitCodeOfVerdict } from '../../../../src/terminal/verdict-exit.ts'
import {
  type Device,
  device,
  good,
  gpuOpaque,
  HGX,
  hgxPolicy,
  pdisOf,
  reported,
  type SimulatedHgx,
  SMALL,
  simulatedHgx,
  switchOpaque,
  topologyDocument,
} from '../../../rigs/attest/gpu/hgx.ts'
import { signedManifest } from '../../../rigs/attest/gpu/manifest.ts'

let hgx: SimulatedHgx
beforeAll(async () => {
  hgx = await simulatedHgx(SMALL)
})

const failedIn = ({ checks }: MachineVerdict) => checks.filter(made => made.outcome === 'fail').map(({ name }) => name)
const openIn = ({ checks }: MachineVerdict) =>
  checks.filter(made => made.outcome === 'not-checked' && made.required).map(({ name }) => name)
/** OCSP is left out where it is not the subject: it takes most of the time. */
const ask = (change: Partial<GpuQuestion>) => verifyGpus({ ...hgx.question, ...change })
const evidenceOf = (devices: readonly Device[]) => devices.map(({ evidence }) => evidence)

/** The machine's evidence, with some in the place of what is there, at indexes from GPU 0 to the last switch. */
function changed(places: Readonly<Record<number, GpuEvidence | null>>): GpuEvidence[] {
  return hgx.question.evidence.flatMap((evidence, at) => {
    const instead = places[at]
    return instead === undefined ? [evidence] : instead === null ? [] : [instead]
  })
}

const lax = () => {
  const { ocspMaximumAgeSeconds: _, ...rest } = hgx.question.policy
  return { ...rest, ocspMaximumAgeSeconds: 'any', deviceSerials: 'any' } as const
}
const reasonOf = ({ checks }: MachineVerdict, name: string) => checks.find(made => made.name === name)?.reason

/** Failed checks under a policy that does not count the devices. */
function refused(evidence: readonly GpuEvidence[]): string[] {
  return failedIn(ask({ evidence, ocsp: [], policy: { ...lax(), topology: 'any' } }))
}

/** Failed checks under a policy that counts them. */
function refusedByCount(evidence: readonly GpuEvidence[]): string[] {
  const topology = { ...topologyDocument(SMALL), switchSerials: 'any' as const }
  return failedIn(ask({ evidence, ocsp: [], policy: { ...lax(), topology } }))
}

test('goal: eight GPUs and four switches pass as a whole, and each is named', async () => {
  const { question } = await simulatedHgx(HGX)
  const judged = verifyGpus(question)
  expect([judged.ok, judged.simulated, failedIn(judged), openIn(judged)]).toEqual([true, true, [], []])
  expect(judged.gpus.map(({ facts }) => facts?.deviceSerial)).toEqual(pdisOf('gpus', HGX).map(pdi => `41${pdi}`))
  expect(judged.switches.map(({ facts, uncompared }) => [facts?.pdi, facts?.biosVersion, uncompared])).toEqual(
    pdisOf('switches', HGX).map(pdi => [pdi, '96.10.55.00.01', [20]]),
  )
  expect(judged.switches[0]?.hwmodel).toBe('SIMULATED LS_10 A01 FSP BROM')
  expect(reasonOf(judged, 'gpu-policy-topology')).toBe('8 GPUs and 4 switches')
  expect(reasonOf(judged, 'gpu-evidence')?.split('; ').length).toBe(8)
})

test('goal: the order of the devices in the document is no matter', () => {
  expect(failedIn(ask({ evidence: hgx.question.evidence.toReversed() }))).toEqual([])
})

test('goal: a missing GPU or switch fails by its neighbours, also if the policy does not count', () => {
  expect(refused(changed({ 1: null }))).toEqual(['gpu-topology-gpus'])
  expect(refusedByCount(changed({ 1: null }))).toEqual(['gpu-policy-topology', 'gpu-topology-gpus'])
  expect(refused(changed({ 3: null }))).toEqual(['gpu-topology-switches'])
  expect(refused(evidenceOf(hgx.switches))).toContain('gpu-evidence')
  // GPUs alone are judged alone unless the policy counts switches, also none.
  const alone = evidenceOf(hgx.gpus)
  expect(refused(alone)).toEqual([])
  expect(refusedByCount(alone)).toEqual(['gpu-policy-topology'])
  const counted = ask({ evidence: alone })
  expect([openIn(counted), exitCodeOfVerdict(counted)]).toEqual([['gpu-topology-switches'], 6])
  expect(reasonOf(counted, 'gpu-topology-switches')).toContain('with --switches')
  const none = { gpus: 2, switches: 0, switchBiosVersions: 'any', switchSerials: 'any' }
  const judged = ask({ evidence: alone, policy: hgxPolicy(SMALL, none) })
  expect(failedIn(judged)).toEqual(['gpu-topology-switches'])
  expect(reasonOf(judged, 'gpu-topology-switches')).toContain(`gpu-0 names ${pdisOf('switches', SMALL)[0]}`)
})

test('goal: a device in the place of another of its kind counts once', () => {
  const [gpu, first] = [hgx.gpus[0]?.evidence ?? null, hgx.switches[0]?.evidence ?? null]
  expect(refusedByCount(changed({ 1: gpu }))).toEqual(['gpu-distinct', 'gpu-topology-gpus'])
  expect(refusedByCount(changed({ 3: first }))).toEqual(['gpu-switch-distinct', 'gpu-topology-switches'])
  // Once more beside all of the others.
  expect(refused([...hgx.question.evidence, ...(gpu === null ? [] : [gpu])])).toEqual([
    ...['gpu-distinct', 'gpu-topology-gpus'],
  ])
})

test('goal: genuine devices of another machine fail, whichever machine they name', async () => {
  const { base, provisioner } = hgx
  const foreignGpu = async (switchPdis: readonly string[]) => {
    const pdi = pdisOf('gpus', SMALL, 0x2b)[0] ?? ''
    return (await device(base, { kind: 'gpus', pdi, opaque: gpuOpaque(switchPdis) })).evidence
  }
  expect(refused(changed({ 1: await foreignGpu(pdisOf('switches', SMALL, 0x2b)) }))).toEqual([
    ...['gpu-topology-switches', 'gpu-topology-gpus'],
  ])
  // It says that it is at these switches, and they do not say so.
  expect(refused(changed({ 1: await foreignGpu(pdisOf('switches', SMALL)) }))).toEqual(['gpu-topology-gpus'])
  const foreignSwitch = async (gpuPdis: readonly string[]) => {
    const pdi = pdisOf('switches', SMALL, 0x2b)[0] ?? ''
    return (await device(base, { kind: 'switches', pdi, opaque: switchOpaque(pdi, gpuPdis), provisioner })).evidence
  }
  expect(refused(changed({ 2: await foreignSwitch(pdisOf('gpus', SMALL, 0x2b)) }))).toEqual([
    ...['gpu-topology-switches', 'gpu-topology-gpus'],
  ])
  expect(refused(changed({ 2: await foreignSwitch(pdisOf('gpus', SMALL)) }))).toEqual(['gpu-topology-switches'])
})

test('goal: one GPU that sees another switch, fewer or more, and one switch that sees another GPU, fail', async () => {
  const [gpu, first] = [hgx.gpus[1], hgx.switches[1]]
  if (gpu === undefined || first === undefined) throw new Error('no device')
  const [here, there] = [pdisOf('switches', SMALL), pdisOf('switches', SMALL, 0x2b)]
  const seen = [[...here.slice(1), there[0] ?? ''], here.slice(1), [...here, there[0] ?? ''], []]
  for (const pdis of seen) {
    const evidence = changed({ 1: await reported(gpu, { opaque: gpuOpaque(pdis) }) })
    expect(refused(evidence)).toEqual(['gpu-topology-switches'])
  }
  const { 22: _, ...silent } = gpu.opaque
  expect(refused(changed({ 1: await reported(gpu, { opaque: silent }) }))).toEqual(['gpu-topology-switches'])
  const odd = { ...gpu.opaque, 22: new Uint8Array(7).fill(1) }
  expect(refused(changed({ 1: await reported(gpu, { opaque: odd }) }))).toEqual(['gpu-topology-switches'])
  const gpus = pdisOf('gpus', SMALL)
  for (const pdis of [gpus.slice(1), [...gpus.slice(1), pdisOf('gpus', SMALL, 0x2b)[0] ?? ''], []]) {
    const evidence = changed({ 3: await reported(first, { opaque: switchOpaque(first.pdi, pdis) }) })
    expect(refused(evidence)).toEqual(['gpu-topology-gpus'])
  }
  // A PDI in the reverse order is another number.
  const reversed = (pdi: string) => (pdi.match(/../g) ?? []).reverse().join('')
  const whole = await reported(first, { opaque: switchOpaque(first.pdi, gpus.map(reversed)) })
  expect(refused(changed({ 3: whole }))).toEqual(['gpu-topology-gpus'])
  const mixed = gpus.map((pdi, at) => (at === 0 ? reversed(pdi) : pdi))
  const half = await reported(first, { opaque: switchOpaque(first.pdi, mixed) })
  expect(refused(changed({ 3: half }))).toEqual(['gpu-topology-gpus'])
})

test('goal: GPUs whose links are off name no switch; nothing shows that they are of one machine, and the verdict says so', async () => {
  const off = async (gpu: Device) => await reported(gpu, { opaque: gpuOpaque([]) })
  const evidence = await Promise.all(hgx.gpus.map(off))
  const policy = hgxPolicy(SMALL, { gpus: 2, switches: 0, switchBiosVersions: 'any', switchSerials: 'any' })
  const judged = ask({ evidence, policy })
  expect([judged.ok, reasonOf(judged, 'gpu-topology-switches')]).toEqual([true, 'no GPU names a switch'])
  expect(reasonOf(judged, 'gpu-policy-topology')).toBe('2 GPUs; nothing shows that they are of one machine')
})

test('goal: two GPUs with one PDI are not two places, though their serial numbers differ', () => {
  const [pdi = ''] = pdisOf('gpus', SMALL)
  const [first = ''] = pdisOf('switches', SMALL)
  const gpu = (kind: string) => ({
    deviceSerial: `${kind}${pdi}`,
    switches: { ok: true as const, value: new Set([first]) },
  })
  const switches = [{ pdi: first, gpuPdis: new Set([pdi]) }]
  const failed = (kinds: readonly string[]) =>
    topologyChecks({ gpus: kinds.map(gpu), switches, expected: 'any' }).flatMap(made =>
      made.outcome === 'fail' ? [made.name] : [],
    )
  expect([failed(['41']), failed(['41', '42'])]).toEqual([[], ['gpu-topology-gpus']])
})

test("goal: certificates of one kind do not serve for the other, and a switch's PDI is that of its certificate", async () => {
  const [gpu, first] = [hgx.gpus[0], hgx.switches[0]]
  if (gpu === undefined || first === undefined) throw new Error('no device')
  const asSwitch = { ...(await reported(gpu, { opaque: first.opaque })), arch: 'LS10' }
  expect(refused(changed({ 2: asSwitch }))).toEqual(['switch-0/gpu-architecture'])
  const asGpu = { ...(await reported(first, { opaque: gpu.opaque })), arch: 'HOPPER' }
  expect(refused(changed({ 0: asGpu }))).toEqual(expect.arrayContaining(['gpu-0/gpu-architecture']))
  expect(refused(changed({ 2: { ...first.evidence, arch: 'HOPPER' } }))).toEqual(
    expect.arrayContaining(['gpu-2/gpu-report-format', 'gpu-2/gpu-architecture']),
  )
  const stolen = await reported(first, {
    opaque: switchOpaque(pdisOf('switches', SMALL)[1] ?? '', pdisOf('gpus', SMALL)),
  })
  expect(refused(changed({ 2: stolen }))).toEqual([
    ...['switch-0/gpu-switch-pdi', 'gpu-switch-distinct', 'gpu-topology-switches'],
  ])
})

test('goal: the key of one GPU makes no other device: what stands below it fails, and so do answers that it signs', async () => {
  const { provisioner, identity, root } = hgx.base.authorities.device
  const key = hgx.gpus[0]?.brom
  if (key === undefined) throw new Error('no device')
  const above = [key, provisioner, identity, root]
  const forge = async (kind: 'gpus' | 'switches', at: number) => {
    const { pdi = '', opaque = {} } = hgx[kind][at] ?? {}
    const forged = await device(hgx.base, { kind, pdi, opaque, provisioner: key })
    const certificates = [...forged.evidence.certificates.slice(0, 2), ...above.map(({ der }) => der)]
    return { ocsp: await good(forged.brom, key, key), evidence: { ...forged.evidence, certificates } }
  }
  const forged = [await forge('gpus', 1), await forge('switches', 0), await forge('switches', 1)]
  const evidence = [...evidenceOf(hgx.gpus.slice(0, 1)), ...forged.map(made => made.evidence)]
  const judged = ask({ evidence, ocsp: [...hgx.question.ocsp, ...forged.map(({ ocsp }) => ocsp)] })
  const devices = ['gpu-1', 'switch-0', 'switch-1']
  for (const name of devices) {
    expect(failedIn(judged)).toContain(`${name}/gpu-chain-signatures`)
    expect(openIn(judged)).toContain(`${name}/gpu-report-signature`)
  }
  expect(reasonOf(judged, 'gpu-1/gpu-chain-signatures')).toBe('6 certificates, and the chain of a device has 5')
  expect([judged.gpus[1]?.facts, judged.switches.map(({ facts }) => facts)]).toEqual([null, [null, null]])
  // The provisioner of one chip issues no device of another.
  const { pdi = '', opaque = {} } = hgx.switches[0] ?? {}
  const odd = await device(hgx.base, { kind: 'switches', pdi, opaque, provisioner })
  expect(refused(changed({ 2: odd.evidence }))).toContain('switch-0/gpu-chain-signatures')
})

test('goal: a switch is judged as a GPU is: nonce, signature, measurements, manifest, OCSP, policy', async () => {
  const [first, second] = hgx.switches
  if (first === undefined || second === undefined) throw new Error('no device')
  const failed = async (change: Parameters<typeof reported>[1]) =>
    refused(changed({ 2: await reported(first, change) }))
  expect(await failed({ nonce: new Uint8Array(32) })).toEqual(['switch-0/gpu-nonce'])
  expect(refused(changed({ 2: { ...first.evidence, report: second.evidence.report } }))).toContain(
    'switch-0/gpu-report-signature',
  )
  const measured = (index: number) => first.measurements.map((value, at) => (at === index ? new Uint8Array(48) : value))
  expect(await failed({ measurements: measured(3) })).toEqual(['switch-0/gpu-measurements'])
  expect(await failed({ measurements: measured(20) })).toEqual([])
  expect(await failed({ opaque: { ...first.opaque, 20: new Uint8Array(48) } })).toEqual(['switch-0/gpu-firmware'])
  const { driver, vbios, authorities } = hgx.base
  const without = ask({ rims: [driver, vbios] })
  expect([without.ok, failedIn(without)]).toEqual([false, []])
  expect(openIn(without).slice(0, 3)).toEqual([
    ...['switch-0/gpu-switch-rim', 'switch-0/gpu-rim-indices', 'switch-0/gpu-measurements'],
  ])
  // The manifest of a GPU's VBIOS is none of a switch, whatever version it has; nor that of a switch one of a GPU.
  const resources = first.measurements.map((value, index) => ({ index, values: [value] }))
  const ofGpu = await signedManifest({ version: '96.10.55.00.01', resources }, authorities)
  expect(openIn(ask({ rims: [driver, vbios, ofGpu] }))).toContain('switch-0/gpu-switch-rim')
  for (const change of [{ product: 'GH100' }, { version: '550.90.07' }, { edition: 'NIC' }]) {
    const made = { version: '96.10.55.00.01', product: 'LS10', edition: 'SWITCH', resources, ...change }
    const rims = [driver, vbios, hgx.switchRim, await signedManifest(made, authorities)]
    expect(failedIn(ask({ rims }))).toEqual(['rim-3/gpu-rim-contents-format'])
  }
  expect(openIn(ask({ ocsp: hgx.base.ocsp }))).toContain('switch-1/gpu-chain-ocsp')
  const by = (topology: object) =>
    failedIn(ask({ policy: hgxPolicy(SMALL, { ...topologyDocument(SMALL), ...topology }) }))
  const each = (name: string) => [0, 1].map(at => `switch-${at}/${name}`)
  expect(by({ switchBiosVersions: ['96.10.55.00.02'] })).toEqual(each('gpu-policy-switch-bios-version'))
  const foreign = pdisOf('switches', SMALL, 0x2b)[0]
  expect(by({ switchSerials: [`50${pdisOf('switches', SMALL)[0]}`, `50${foreign}`] })).toEqual(
    each('gpu-policy-switch-serial').slice(1),
  )
  expect(by({ gpus: 1 })).toEqual(['gpu-policy-topology'])
  expect(by({ switches: 3, switchSerials: 'any' })).toEqual(['gpu-policy-topology'])
})

test('goal: the lock status of a switch is shown as it is, and not judged', async () => {
  const [first] = hgx.switches
  if (first === undefined) throw new Error('no device')
  const { 25: _, ...without } = first.opaque
  for (const [opaque, value, words] of [
    [first.opaque, '0100', 'lock status 0100'],
    [{ ...first.opaque, 25: Uint8Array.of(0, 1) }, '0001', 'lock status 0001'],
    [without, null, 'lock status is absent'],
  ] as const) {
    const judged = ask({ evidence: changed({ 2: await reported(first, { opaque }) }) })
    expect([judged.ok, judged.switches[0]?.facts?.lockStatus]).toEqual([true, value])
    expect(judged.checks.find(({ name }) => name === 'switch-0/gpu-switch-lock')).toMatchObject({
      ...{ outcome: 'not-checked', required: false, reason: expect.stringContaining(words) },
    })
  }
})

test('goal: opaque data of a switch that is missing, odd or unknown cannot be judged', async () => {
  const [first] = hgx.switches
  if (first === undefined) throw new Error('no device')
  const odd: readonly (readonly [number, Uint8Array | null])[] = [
    ...[6, 22, 26].map(type => [type, null] as const),
    [6, new TextEncoder().encode('96.10.55.00')],
    [20, new Uint8Array(32)],
    [22, new Uint8Array(8)],
    [22, fromHex('203D711E1C4F1A') ?? new Uint8Array(0)],
    [26, new Uint8Array(63)],
    [36, new Uint8Array(2)],
  ]
  for (const [type, value] of odd) {
    const entries = Object.entries({ ...first.opaque, [type]: value }).filter(([, bytes]) => bytes !== null)
    const evidence = await reported(first, { opaque: Object.fromEntries(entries) as Device['opaque'] })
    const judged = ask({ evidence: changed({ 2: evidence }) })
    expect([type, failedIn(judged)]).toEqual([type, expect.arrayContaining(['switch-0/gpu-report-format'])])
    expect(openIn(judged)).toEqual(expect.arrayContaining(['gpu-topology-switches', 'gpu-topology-gpus']))
  }
})
