// Goal: signed bytes of a report, a certificate, a manifest or an OCSP response cannot be changed; random bytes end as
// Malformed, and never as another error. STRONGROOM_GPU_MUTATIONS sets the number of random ones, by default 3,200.

import { beforeAll, expect, test } from 'bun:test'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { checkChain } from '../../../src/attest/nvidia/chain.ts'
import { readGpuEvidence } from '../../../src/attest/nvidia/evidence.ts'
import { decodeOcsp, isAuthentic } from '../../../src/attest/nvidia/ocsp.ts'
import { portableP384 } from '../../../src/attest/nvidia/portable-p384.ts'
import { decodeRoots } from '../../../src/attest/nvidia/roots.ts'
import { isSignedByKeyOf } from '../../../src/attest/nvidia/signature.ts'
import { decodeGpuReport } from '../../../src/attest/nvidia/spdm.ts'
import { decodeCertificate } from '../../../src/attest/x509/certificate.ts'
import { concat, toHex, utf8 } from '../../../src/base/bytes.ts'
import { readSignedXml } from '../../../src/client/verify/gpu/signed-xml.ts'
import { signedManifest } from '../../rigs/attest/gpu/manifest.ts'
import { asOfMs, evidenceDocument, type SimulatedGpu, simulatedGpu } from '../../rigs/attest/gpu/simulated.ts'

/** Eight inputs each. */
const rounds = Math.ceil(Number(process.env.STRONGROOM_GPU_MUTATIONS ?? 3_200) / 8)
let gpu: SimulatedGpu
beforeAll(async () => {
  gpu = await simulatedGpu()
})

/** Positions at which the change was accepted. */
function survivors(bytes: Uint8Array, isGood: (bytes: Uint8Array) => boolean, step = 1): number[] {
  const found: number[] = []
  for (let at = 0; at < bytes.length; at += step) {
    const changed = Uint8Array.from(bytes)
    changed[at] = (changed[at] ?? 0) ^ (1 << (at % 8))
    if (accepts(changed, isGood)) found.push(at)
  }
  return found
}

/** Malformed is a refusal; any other error is a fault of the reader. */
function accepts(bytes: Uint8Array, isGood: (bytes: Uint8Array) => boolean): boolean {
  try {
    return isGood(bytes)
  } catch (error) {
    if (error instanceof Malformed) return false
    throw error
  }
}

test('goal: reports: every byte of request, measurements, opaque data and signature is signed or is the signature', () => {
  const leaf = decodeCertificate(gpu.authorities.device.leaf.der)
  const { report } = gpu.evidence
  const { signedBytes, signature } = decodeGpuReport(report)
  expect(isSignedByKeyOf(leaf, signedBytes, signature, portableP384)).toBe(true)
  expect(toHex(concat(signedBytes, signature))).toBe(toHex(report))
  // Signed bytes and signature are the whole report, however a change is decoded.
  const isUnchanged = (bytes: Uint8Array) => {
    const changed = decodeGpuReport(bytes)
    return toHex(concat(changed.signedBytes, changed.signature)) !== toHex(bytes)
  }
  expect(survivors(report, isUnchanged)).toEqual([])
  const isSigned = (bytes: Uint8Array) => {
    const changed = decodeGpuReport(bytes)
    return isSignedByKeyOf(leaf, changed.signedBytes, changed.signature, portableP384)
  }
  expect(survivors(report, isSigned, 13)).toEqual([])
})

test('goal: certificates: bytes of the leaf and of the device certificate, each third one', () => {
  const roots = decodeRoots([gpu.roots])
  const isGood = (at: number) => (der: Uint8Array) => {
    const ders = gpu.evidence.certificates.map((certificate, place) => (place === at ? der : certificate))
    const certificates = ders.slice(0, 2).map(decodeCertificate)
    const above = ders.slice(2).map(decodeCertificate)
    const { chain } = checkChain('x', {
      certificates: [...certificates, ...above],
      roots: roots.device,
      asOfMs,
      verify: portableP384,
    })
    return chain !== null
  }
  for (const at of [0, 1]) {
    const der = gpu.evidence.certificates[at] ?? new Uint8Array(0)
    expect(isGood(at)(der)).toBe(true)
    expect(survivors(der, isGood(at), 3)).toEqual([])
  }
})

test('goal: manifests: every byte that the digest or the signature covers', async () => {
  const signer = decodeCertificate(gpu.authorities.rim.signer.der)
  const resources = [1, 2].map(index => ({ index, values: [new Uint8Array(48).fill(index)] }))
  const manifest = await signedManifest({ version: '550.90.07', resources }, gpu.authorities)
  const end = Buffer.from(manifest).indexOf('</ds:SignatureValue>')
  const isGood = (bytes: Uint8Array) => {
    const whole = Uint8Array.from(manifest)
    whole.set(bytes)
    readSignedXml(whole).verify((signed, signature) => isSignedByKeyOf(signer, signed, signature, portableP384))
    return true
  }
  expect(isGood(manifest)).toBe(true)
  expect(survivors(manifest.slice(0, end), isGood)).toEqual([])
  // A zero byte in the place of a space.
  const zero = Uint8Array.from(manifest)
  zero[manifest.indexOf(0x20)] = 0
  expect(() => readSignedXml(zero)).toThrow('XML: a control character')
})

test('goal: OCSP responses: bytes of the answer and of the certificate in it, each third one', () => {
  const { provisioner, identity, root } = gpu.authorities.device
  const authorities = [provisioner, identity, root].map(({ der }) => decodeCertificate(der))
  const isGood = (bytes: Uint8Array) => isAuthentic(decodeOcsp(bytes), authorities, asOfMs)
  const [response = new Uint8Array(0)] = gpu.ocsp
  expect(isGood(response)).toBe(true)
  expect(survivors(response, isGood, 3)).toEqual([])
})

test('goal: random changes and random bytes end as Malformed in every reader', () => {
  const draw = createDraw(7)
  const document = utf8(JSON.stringify([evidenceDocument(gpu.evidence)]))
  const readers: readonly (readonly [Uint8Array, (bytes: Uint8Array) => unknown])[] = [
    [gpu.evidence.report, decodeGpuReport],
    [gpu.ocsp[0] ?? new Uint8Array(0), decodeOcsp],
    [gpu.driver, readSignedXml],
    [document, readGpuEvidence],
  ]
  let read = 0
  for (let round = 0; round < rounds; round += 1) {
    for (const [bytes, reader] of readers) {
      const changed = Uint8Array.from(bytes.slice(0, round % 3 === 0 ? draw(bytes.length) : bytes.length))
      for (let count = draw(8); count > 0; count -= 1) changed[draw(changed.length)] = draw(256)
      accepts(changed, () => reader(changed) !== null)
      const noise = Uint8Array.from({ length: draw(300) }, () => draw(256))
      expect(accepts(noise, () => reader(noise) !== null)).toBe(false)
      read += 2
    }
  }
  expect(read).toBe(8 * rounds)
})
