// Goal: a GPU passes only with a genuine report for this nonce, a chain to a trusted root, golden measurements of its
// own driver and VBIOS, fresh OCSP responses, and a policy that names it; whatever is changed fails its own check.

import { beforeAll, expect, test } from 'bun:test'
import { defaultGpuPolicy } from '../../../src/attest/nvidia/hgx/policy.ts'
import type { GpuVerdict } from '../../../src/attest/nvidia/judge.ts'
import { type GpuPolicy, parseGpuPolicy } from '../../../src/attest/nvidia/policy.ts'
import { NVIDIA_ROOTS } from '../../../src/attest/nvidia/roots.ts'
import { type GpuQuestion, verifyGpus } from '../../../src/attest/nvidia/verify.ts'
import { concat } from '../../../src/base/bytes.ts'
import { compositeDeviceId, issue, tcbInfo } from '../../rigs/attest/gpu/authority.ts'
import { signedManifest } from '../../rigs/attest/gpu/manifest.ts'
import { type Opaque, opaqueOf, type ReportParts, signedReport } from '../../rigs/attest/gpu/report.ts'
import {
  fwid,
  nonce,
  policyDocument,
  resourcesOf,
  type SimulatedGpu,
  simulatedGpu,
} from '../../rigs/attest/gpu/simulated.ts'

let hopper: SimulatedGpu
let blackwell: SimulatedGpu
beforeAll(async () => {
  hopper = await simulatedGpu()
  blackwell = await simulatedGpu({ chip: 'GB100', arch: 'BLACKWELL', firmware: tcbInfo(fwid) })
})

const failedIn = ({ checks }: GpuVerdict) => checks.filter(made => made.outcome === 'fail').map(({ name }) => name)
const openIn = ({ checks }: GpuVerdict) =>
  checks.filter(made => made.outcome === 'not-checked' && made.required).map(({ name }) => name)
const ask = (change: Partial<GpuQuestion>, gpu = hopper) => verifyGpus({ ...gpu.question, ...change })

async function withReport(change: Partial<ReportParts>): Promise<GpuVerdict> {
  const { authorities, measurements, evidence } = hopper
  const parts = { nonce, measurements, opaque: opaqueOf(fwid), ...change }
  return ask({ evidence: [{ ...evidence, report: await signedReport(parts, authorities.device.leaf) }] })
}

const withOpaque = (change: Opaque) => withReport({ opaque: { ...opaqueOf(fwid), ...change } })

test('goal: a whole Hopper passes, is said to be SIMULATED, and is named by its ueid', () => {
  const judged = ask({})
  expect([judged.ok, judged.simulated, failedIn(judged), openIn(judged)]).toEqual([true, true, [], []])
  expect(judged.gpus).toEqual([
    {
      facts: {
        architecture: 'HOPPER',
        driverVersion: '550.90.07',
        vbiosVersion: '96.00.9F.00.01',
        mode: 'SPT',
        // The serial number 53C22BA15E5D68088282DA074ED9FB37AA585771.
        ueid: '478176379286082186618948445787393647364802107249',
        deviceSerial: '41E23D711E1C4FBFAC',
      },
      hwmodel: 'SIMULATED GH100 A01 GSP BROM',
      board: '1010_0200_882',
      uncompared: [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ...Array.from({ length: 23 }, (_, at) => 41 + at)],
    },
  ])
})

test('goal: a whole Blackwell passes, with the firmware of DiceTcbInfo', () => {
  const judged = ask({}, blackwell)
  expect([judged.ok, failedIn(judged), judged.gpus[0]?.facts?.architecture]).toEqual([true, [], 'BLACKWELL'])
})

test('goal: firmware whose certificate says that it is not secure, in recovery or debugged is refused', async () => {
  for (const flags of [0x40, 0x20, 0x10, 0xf0]) {
    const gpu = await simulatedGpu({ chip: 'GB100', arch: 'BLACKWELL', firmware: tcbInfo(fwid, flags) })
    expect(failedIn(ask({}, gpu))).toEqual(['gpu-0/gpu-firmware'])
  }
})

test("goal: without the simulated root nothing of it passes: NVIDIA's root alone is trusted", () => {
  const judged = ask({ roots: [NVIDIA_ROOTS] })
  expect(failedIn(judged)).toEqual(
    expect.arrayContaining(['gpu-0/gpu-chain-root', 'rim-0/gpu-rim-root', 'rim-1/gpu-rim-root']),
  )
  expect([judged.ok, judged.simulated, judged.gpus[0]?.facts]).toEqual([false, false, null])
})

test('goal: another nonce, a nonce of another length and a report of another key are refused', async () => {
  expect(failedIn(ask({ nonce: new Uint8Array(32) }))).toEqual(['gpu-0/gpu-nonce'])
  expect(failedIn(ask({ nonce: nonce.slice(1) }))).toEqual(['gpu-0/gpu-nonce'])
  const { evidence, authorities, measurements } = hopper
  const report = await signedReport({ nonce, measurements, opaque: opaqueOf(fwid) }, authorities.device.brom)
  expect(failedIn(ask({ evidence: [{ ...evidence, report }] }))).toEqual(['gpu-0/gpu-report-signature'])
})

test('goal: a measurement that is not golden fails, of the VBIOS and of the driver, but 35 without the video decoder', async () => {
  const changed = (index: number) => hopper.measurements.map((value, at) => (at === index ? new Uint8Array(48) : value))
  expect(failedIn(await withReport({ measurements: changed(3) }))).toEqual(['gpu-0/gpu-measurements'])
  expect(failedIn(await withReport({ measurements: changed(30) }))).toEqual(['gpu-0/gpu-measurements'])
  expect(failedIn(await withReport({ measurements: changed(35) }))).toEqual([])
  expect(failedIn(await withReport({ measurements: hopper.measurements.slice(0, 36) }))).toEqual([
    'gpu-0/gpu-measurements',
  ])
  const on = await withOpaque({ 11: Uint8Array.of(0xaa) })
  expect(failedIn(on)).toEqual(['gpu-0/gpu-measurements'])
  expect(on.checks.find(({ name }) => name === 'gpu-0/gpu-measurements')?.reason).toBe(
    'not golden: 35 (Measurement_35)',
  )
})

test('goal: the manifests must be of this driver and this VBIOS, and may not speak of one index both', async () => {
  const { driver, vbios, authorities, measurements } = hopper
  const open = (kind: string) => [`gpu-0/gpu-${kind}-rim`, 'gpu-0/gpu-rim-indices', 'gpu-0/gpu-measurements']
  const missing = (rims: readonly Uint8Array[]) => {
    const judged = ask({ rims })
    expect([judged.ok, failedIn(judged)]).toEqual([false, []])
    return openIn(judged)
  }
  expect(missing([vbios])).toEqual(open('driver'))
  expect(missing([driver])).toEqual(open('vbios'))
  const make = (change: object) =>
    signedManifest({ version: '550.90.07', resources: resourcesOf('driver', measurements), ...change }, authorities)
  expect(missing([await make({ version: '550.90.08' }), vbios])).toEqual(open('driver'))
  expect(missing([await make({ product: 'GB100' }), vbios])).toEqual(open('driver'))
  expect(failedIn(ask({ rims: [await make({ edition: 'SWITCH' }), vbios] }))).toEqual(['rim-0/gpu-rim-contents-format'])
  const both = await make({
    resources: resourcesOf('driver', measurements).map(row => ({ ...row, active: row.index > 8 })),
  })
  expect(failedIn(ask({ rims: [both, vbios] }))).toContain('gpu-0/gpu-rim-indices')
  // Two boards may have one VBIOS version: the manifest that fits counts.
  const otherBoard = await signedManifest(
    { version: '96.00.9F.00.01', resources: [{ index: 0, values: [new Uint8Array(48)] }] },
    authorities,
  )
  expect(failedIn(ask({ rims: [driver, otherBoard, vbios] }))).toEqual([])
  expect(failedIn(ask({ rims: [driver, otherBoard] }))).toEqual(['gpu-0/gpu-measurements'])
})

test('goal: certificates have their time, and those of a chain cannot be left out or put in other order', () => {
  expect(failedIn(ask({ asOfMs: Date.parse('2036-01-01T00:00:00Z') }))).toEqual(
    expect.arrayContaining(['rim-0/gpu-rim-times', 'gpu-0/gpu-chain-times']),
  )
  const { evidence } = hopper
  const [leaf, brom, provisioner, identity, root] = evidence.certificates as Uint8Array[] & { length: 5 }
  const chain = (...certificates: (Uint8Array | undefined)[]) =>
    failedIn(ask({ evidence: [{ ...evidence, certificates: certificates.filter(der => der !== undefined) }] }))
  expect(chain(leaf, brom, provisioner, identity)).toEqual([])
  expect(chain(leaf, provisioner, identity, root)).toContain('gpu-0/gpu-chain-signatures')
  expect(chain(brom, leaf, provisioner, identity, root)).toContain('gpu-0/gpu-chain-signatures')
  expect(chain(brom, provisioner, identity, root)).toContain('gpu-0/gpu-chain-signatures')
  expect(chain(leaf, brom)).toContain('gpu-0/gpu-chain-root')
  expect(chain(root)).toContain('gpu-0/gpu-chain-root')
  expect(chain()).toContain('gpu-0/gpu-chain-format')
})

test('goal: certificates of the same names by other keys are no part of the chain', async () => {
  const { evidence } = hopper
  const forged = (await simulatedGpu()).evidence
  for (const count of [1, 2, 3, 4]) {
    const certificates = [...forged.certificates.slice(0, count), ...evidence.certificates.slice(count)]
    expect(failedIn(ask({ evidence: [{ ...forged, certificates }] }))).toContain('gpu-0/gpu-chain-signatures')
  }
})

test('goal: a leaf cannot issue certificates, and another leaf of the same root makes no GPU', async () => {
  const { device } = hopper.authorities
  const forged = await issue({
    name: 'SIMULATED forged',
    serial: '05',
    issuer: device.leaf,
    extensions: [compositeDeviceId(fwid)],
  })
  const { evidence } = hopper
  const judged = ask({ evidence: [{ ...evidence, certificates: [forged.der, ...evidence.certificates] }] })
  expect(failedIn(judged)).toContain('gpu-0/gpu-chain-signatures')
  // A signer of manifests, which another root vouches for.
  const rim = hopper.authorities.rim
  const chain = [rim.signer, rim.l3, rim.ca, rim.root].map(({ der }) => der)
  expect(failedIn(ask({ evidence: [{ ...evidence, certificates: chain }] }))).toContain('gpu-0/gpu-chain-root')
})

test('goal: the report names the firmware that its key was certified for, or an early one none', async () => {
  expect(failedIn(await withOpaque({ 20: new Uint8Array(48) }))).toEqual(['gpu-0/gpu-firmware'])
  const { 20: _, ...early } = opaqueOf(fwid)
  const judged = await withReport({ opaque: early })
  expect([judged.ok, judged.checks.find(({ name }) => name === 'gpu-0/gpu-firmware')?.outcome]).toEqual([
    true,
    'not-checked',
  ])
})

test('goal: the document cannot call a GPU what its certificates do not', () => {
  const { evidence } = hopper
  expect(failedIn(ask({ evidence: [{ ...evidence, arch: 'BLACKWELL' }] }))).toEqual(['gpu-0/gpu-architecture'])
})

test('goal: one GPU does not count twice; none is no evidence', () => {
  const { evidence } = hopper
  expect(failedIn(ask({ evidence: [evidence, evidence] }))).toEqual(['gpu-distinct'])
  expect(failedIn(ask({ evidence: [] }))).toEqual(['gpu-evidence'])
})

test('goal: each field of a policy refuses by a check of its own, and DevTools is refused unless the policy accepts it', () => {
  const others: Partial<Record<keyof GpuPolicy, unknown>> = {
    architectures: ['BLACKWELL'],
    driverVersions: ['550.90.08'],
    vbiosVersions: ['96.00.9F.00.02'],
    modes: ['MPT', 'PPCIE', 'unsaid'],
    ueids: ['1'],
    deviceSerials: ['41'],
  }
  const by = (change: object) => failedIn(ask({ policy: parseGpuPolicy({ ...policyDocument(), ...change }) }))
  expect(Object.entries(others).flatMap(([field, value]) => by({ [field]: value }))).toEqual([
    'gpu-0/gpu-policy-architecture',
    'gpu-0/gpu-policy-driver-version',
    'gpu-0/gpu-policy-vbios-version',
    'gpu-0/gpu-policy-mode',
    'gpu-0/gpu-policy-ueid',
    'gpu-0/gpu-policy-device-serial',
  ])
  expect(by(Object.fromEntries(Object.keys(others).map(field => [field, 'any'])))).toEqual([])
  expect(by({ devtools: 'refuse' })).toEqual(['gpu-0/gpu-devtools'])
  expect(failedIn(ask({ policy: defaultGpuPolicy() }))).toEqual(['gpu-0/gpu-devtools'])
})

test('goal: modes: the feature flag, protected PCIe of older firmware, and no contradiction of the two', async () => {
  const modeOf = async (change: Opaque, without: readonly number[] = []) => {
    const opaque = Object.fromEntries(
      Object.entries({ ...opaqueOf(fwid), ...change }).filter(([type]) => !without.includes(Number(type))),
    )
    const judged = await withReport({ opaque })
    return judged.gpus[0]?.facts?.mode ?? failedIn(judged)[0]
  }
  const [on, u16] = [Uint8Array.of(0xaa), (value: number) => Uint8Array.of(value, 0)]
  expect(await modeOf({ 36: u16(1) })).toBe('MPT')
  expect(await modeOf({ 36: u16(2), 21: on })).toBe('PPCIE')
  expect(await modeOf({ 21: on }, [36])).toBe('PPCIE')
  expect(await modeOf({}, [36])).toBe('unsaid')
  expect(await modeOf({}, [21, 36])).toBe('unsaid')
  expect(await modeOf({ 21: on })).toBe('gpu-0/gpu-report-format')
  expect(await modeOf({ 36: u16(3) })).toBe('gpu-0/gpu-report-format')
})

test('goal: opaque data of unknown type or version, and what is missing or odd, cannot be judged', async () => {
  const changes: Opaque[] = [
    { 37: Uint8Array.of(0) },
    { 34: Uint8Array.of(2, 0) },
    { 11: Uint8Array.of(0) },
    { 3: Uint8Array.of(0x0a, 0) },
    { 6: new Uint8Array(7) },
    { 20: new Uint8Array(32) },
  ]
  for (const change of changes) expect(failedIn(await withOpaque(change))).toContain('gpu-0/gpu-report-format')
  for (const type of [3, 6, 11]) {
    const opaque = Object.fromEntries(Object.entries(opaqueOf(fwid)).filter(([name]) => Number(name) !== type))
    expect(failedIn(await withReport({ opaque }))).toContain('gpu-0/gpu-report-format')
  }
})

test('goal: another request than for all measurements with a signature is refused, though the GPU signed it', async () => {
  for (const request of [
    [0x12, 0xe0, 0x01, 0xff],
    [0x11, 0xe1, 0x01, 0xff],
    [0x11, 0xe0, 0x00, 0xff],
    [0x11, 0xe0, 0x01, 0x01],
  ]) {
    expect(failedIn(await withReport({ request }))).toContain('gpu-0/gpu-report-format')
  }
  const { evidence } = hopper
  for (const report of [concat(evidence.report, Uint8Array.of(1)), evidence.report.slice(0, -1), new Uint8Array(0)]) {
    expect(failedIn(ask({ evidence: [{ ...evidence, report }] }))).toContain('gpu-0/gpu-report-format')
  }
})
