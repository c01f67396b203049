// Goal: a saved OCSP response counts only from the certificate's own authorities, in its time; a revocation always.

import { beforeAll, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodeOcsp } from '../../../src/attest/nvidia/ocsp.ts'
import { verifyGpus } from '../../../src/attest/nvidia/verify.ts'
import { concat } from '../../../src/base/bytes.ts'
import type { Holder } from '../../rigs/attest/gpu/authority.ts'
import {
  type Answer,
  ocspNonce,
  ocspResponse,
  ocspSigner,
  ocspUnknownExtension,
  type ResponseParts,
} from '../../rigs/attest/gpu/ocsp.ts'
import { asOfMs, ocspOf, type SimulatedGpu, simulatedGpu } from '../../rigs/attest/gpu/simulated.ts'

let gpu: SimulatedGpu
beforeAll(async () => {
  gpu = await simulatedGpu()
})

const hourMs = 3_600_000

/** The verdict's word on the device certificate, with this response for it among the others. */
async function withAnswer(
  change: Partial<Answer>,
  make: Partial<ResponseParts> & { by?: (authorities: SimulatedGpu['authorities']) => Promise<Holder> } = {},
): Promise<string> {
  const { brom, provisioner } = gpu.authorities.device
  const signer = make.signer ?? (await (make.by ?? (() => ocspSigner(provisioner)))(gpu.authorities))
  const answer = { certificate: brom, issuer: provisioner, thisUpdateMs: asOfMs - hourMs, ...change }
  const response = await ocspResponse({ answers: [answer], certificates: [signer], ...make, signer })
  return wordOn([response, ...gpu.ocsp.slice(1)])
}

function wordOn(ocsp: readonly Uint8Array[], from = gpu): string {
  const judged = verifyGpus({ ...from.question, ocsp })
  const found = judged.checks.find(({ name }) => name === 'gpu-0/gpu-chain-ocsp')
  expect([found?.outcome === 'pass', judged.ok]).toEqual([judged.ok, judged.ok])
  return found?.outcome === 'pass' ? 'good' : `${found?.outcome}: ${found?.reason}`
}

const missing = 'not-checked: SIMULATED GH100 A01 GSP BROM: '

test('goal: a response of a delegate or of the issuer itself passes, by any of the three hashes, by name or key', async () => {
  const { device } = gpu.authorities
  expect(await withAnswer({})).toBe('good')
  expect(await withAnswer({}, { signer: device.provisioner, certificates: [] })).toBe('good')
  expect(await withAnswer({}, { byKey: true })).toBe('good')
  for (const hash of ['SHA-1', 'SHA-256'] as const) expect(await withAnswer({ hash })).toBe('good')
  expect(await withAnswer({}, { extensions: [ocspNonce] })).toBe('good')
  // NVIDIA's verifier takes a responder of any authority above.
  expect(await withAnswer({}, { by: ({ device: { root } }) => ocspSigner(root) })).toBe('good')
})

test('goal: a response of somebody else is none', async () => {
  const unsigned = `${missing}the OCSP response is not signed by its authority`
  expect(await withAnswer({}, { by: ({ rim }) => ocspSigner(rim.root) })).toBe(unsigned)
  expect(await withAnswer({}, { by: ({ device }) => ocspSigner(device.brom) })).toBe(unsigned)
  expect(await withAnswer({}, { by: ({ device }) => ocspSigner(device.provisioner, { usage: false }) })).toBe(unsigned)
  expect(await withAnswer({}, { signer: gpu.authorities.device.leaf, certificates: [] })).toBe(unsigned)
})

test('goal: none, an old one, one of the future or of another certificate leaves the check open', async () => {
  expect(wordOn(gpu.ocsp.slice(1))).toBe(`${missing}no OCSP response was given for it`)
  const old = `${missing}the OCSP response is too old`
  expect(await withAnswer({ thisUpdateMs: asOfMs - 2 * hourMs })).toBe('good')
  expect(await withAnswer({ thisUpdateMs: asOfMs - 2 * hourMs - 1000 })).toBe(old)
  expect(await withAnswer({ nextUpdateMs: asOfMs - 1000 })).toBe(old)
  expect(await withAnswer({ nextUpdateMs: asOfMs })).toBe('good')
  expect(await withAnswer({ thisUpdateMs: asOfMs + 1000 })).toBe(`${missing}the OCSP response is from the future`)
  const { provisioner, identity, root } = gpu.authorities.device
  expect(await withAnswer({ certificate: provisioner, issuer: identity })).toContain('no OCSP response')
  expect(await withAnswer({ issuer: root })).toContain('no OCSP response')
  expect(await withAnswer({ state: 'unknown' })).toBe(`${missing}the responder does not know it`)
})

test('goal: a revoked certificate fails, however old the response is, and beside a good one too', async () => {
  const revoked = 'fail: SIMULATED GH100 A01 GSP BROM is revoked'
  expect(await withAnswer({ state: 'revoked' })).toBe(revoked)
  expect(await withAnswer({ state: 'revoked', thisUpdateMs: asOfMs - 1e11 })).toBe(revoked)
  const { device } = gpu.authorities
  const bad = await ocspOf(gpu.authorities, ({ name }) => (name === device.brom.name ? { state: 'revoked' } : {}))
  expect(wordOn([...gpu.ocsp, ...bad])).toBe(revoked)
  const any = {
    ...gpu,
    question: { ...gpu.question, policy: { ...gpu.question.policy, ocspMaximumAgeSeconds: 'any' as const } },
  }
  expect(wordOn(bad, any)).toBe(revoked)
  const named = verifyGpus({ ...any.question, ocsp: [] })
  expect(named.ok).toBe(true)
  const rimRevoked = await ocspOf(gpu.authorities, ({ name }) => (name.endsWith('Signer') ? { state: 'revoked' } : {}))
  const judged = verifyGpus({ ...any.question, ocsp: rimRevoked })
  expect(judged.checks.filter(made => made.outcome === 'fail').map(({ name }) => name)).toEqual([
    ...['rim-0/gpu-rim-ocsp', 'rim-1/gpu-rim-ocsp'],
  ])
})

test('goal: bytes that are no answer, and critical extensions that nobody knows, are Malformed, and fail the verdict', async () => {
  const [good = new Uint8Array(0)] = gpu.ocsp
  // responseStatus tryLater, without an answer.
  const later = Uint8Array.of(0x30, 3, 0x0a, 1, 3)
  for (const odd of [
    later,
    new Uint8Array(0),
    good.slice(0, -1),
    concat(good, Uint8Array.of(0)),
    new Uint8Array(70_000),
  ]) {
    expect(() => decodeOcsp(odd)).toThrow(Malformed)
  }
  const judged = verifyGpus({ ...gpu.question, ocsp: [...gpu.ocsp, later] })
  expect(judged.checks.filter(made => made.outcome === 'fail').map(({ name }) => name)).toEqual([
    'ocsp-6/gpu-ocsp-format',
  ])
  const { brom, provisioner } = gpu.authorities.device
  const answers = [{ certificate: brom, issuer: provisioner, thisUpdateMs: asOfMs }]
  const critical = await ocspResponse({ answers, signer: provisioner, extensions: [ocspUnknownExtension] })
  expect(() => decodeOcsp(critical)).toThrow('critical extension')
})
