// Random reports for cases: every field at random, near to what its certificate says, and signed, most of them validly.

import { FIELDS } from '../../../../src/attest/report/report.ts'
import { AT, numberAt, numberIn, type Part, reportBytes, TCB_BYTES } from '../second/report.ts'
import type { CaseAuthority, CaseVek } from './authorities.ts'
import type { Random } from './random.ts'

export async function randomReport(
  { product, keys }: CaseAuthority,
  { tcb, chipId, kind }: CaseVek,
  random: Random,
): Promise<Uint8Array> {
  const bytes = new Uint8Array(reportBytes)
  const set = (part: Part, value: Uint8Array | readonly number[]) => bytes.set(value, AT[part][0])
  const number = (part: Part, value: bigint) => {
    const [offset, size] = AT[part]
    for (let i = 0; i < size; i += 1) bytes[offset + i] = Number((value >> BigInt(8 * i)) & 0xffn)
  }
  const version = random.oneIn(60) ? random.pick([0, 1, 6, 0x0305]) : random.pick([2, 3, 3, 4, 5, 5])
  number('version', BigInt(version))
  number('guestSvn', random.oneIn(6) ? numberIn(random.bytes(4)) : BigInt(random.int(4)))
  number('policy', random.oneIn(4) ? numberIn(random.bytes(8)) : 0x30000n | (BigInt(random.int(1024)) << 16n))
  bytes.set(random.bytes(2), AT.policy[0])
  for (const part of ['familyId', 'imageId', 'reportData', 'measurement', 'hostData', 'reportId'] as const)
    set(part, random.bytes(AT[part][1]))
  set('idKeyDigest', random.oneIn(4) ? new Uint8Array(48) : random.bytes(48))
  set('authorKeyDigest', random.oneIn(2) ? new Uint8Array(48) : random.bytes(48))
  set('reportIdMa', random.oneIn(3) ? random.bytes(32) : new Uint8Array(32).fill(255))
  number('vmpl', random.oneIn(40) ? random.pick([4n, 0xffff_ffffn]) : BigInt(random.int(4)))
  number('algorithm', random.oneIn(60) ? BigInt(random.pick([0, 2, 0x101])) : 1n)
  number('platformInfo', random.oneIn(5) ? numberIn(random.bytes(8)) : BigInt(random.int(256)))
  const signer = random.oneIn(50) ? random.int(8) : kind === 'vcek' ? 0 : 1
  number('keyInfo', BigInt(signer << 2) | BigInt(random.int(4)) | (random.oneIn(12) ? 0x100n : 0n))
  setTcbs(set, { product, tcb: tcb as Readonly<Record<string, number | null>> }, random)
  const cpuids = { milan: [0x19, 1], genoa: [0x19, random.pick([0x11, 0xa0])], turin: [0x1a, random.pick([2, 0x11])] }
  const cpuid = random.oneIn(50) ? [...random.bytes(2)] : cpuids[product]
  if (version > 2 || random.oneIn(20)) set('cpuid', [...cpuid, random.int(3)])
  if (kind === 'vcek' || random.oneIn(2)) set('chipId', random.oneIn(30) ? random.bytes(64) : chipId)
  if (random.oneIn(30)) set('chipId', new Uint8Array(64))
  // Behind Turin's 8 bytes, of which alone the certificate speaks.
  if (random.oneIn(40)) bytes[AT.chipId[0] + 8 + random.int(56)] = 1
  const build = random.bytes(3)
  set('current', build)
  set('committed', random.oneIn(3) ? random.bytes(3) : build)
  if (version > 4 || random.oneIn(20)) {
    set('launchMitigations', random.oneIn(2) ? random.bytes(8) : [0x0b, 0, 0, 0, 0, 0, 0, 0])
    set('currentMitigations', random.oneIn(2) ? random.bytes(8) : [0x0b, 0, 0, 0, 0, 0, 0, 0])
  }
  // Reserved before the signature: 04C, 18B, 1EB, 1EF, 208.
  if (random.oneIn(20)) bytes[random.pick([0x04c, 0x18b, 0x19f, 0x1eb, 0x1ef, 0x208, 0x29f])] = random.int(255) + 1
  return await signed(
    bytes,
    { key: keys[kind].privateKey, wrong: keys[kind === 'vcek' ? 'vlek' : 'vcek'].privateKey },
    random,
  )
}

type SetPart = (part: Part, value: Uint8Array | readonly number[]) => void

/** CURRENT, mostly not below REPORTED, which mostly is what the certificate says; COMMITTED mostly not above. */
function setTcbs(
  set: SetPart,
  { product, tcb }: { product: CaseAuthority['product']; tcb: Readonly<Record<string, number | null>> },
  random: Random,
): void {
  const step = (value: number, by: number) => Math.min(255, Math.max(0, value + by))
  const bytesOf = (change: (level: number) => number) =>
    TCB_BYTES[product].map(name => (name === '' ? (random.oneIn(300) ? 1 : 0) : change(tcb[name] ?? 0)))
  set(
    'reportedTcb',
    bytesOf(level => (random.oneIn(100) ? step(level, random.int(3) - 1) : level)),
  )
  const current = bytesOf(level => step(level, random.oneIn(30) ? -1 : random.int(3)))
  set('currentTcb', current)
  set('committedTcb', random.oneIn(2) ? current : bytesOf(level => step(level, random.oneIn(30) ? 3 : -random.int(2))))
  set(
    'launchTcb',
    bytesOf(level => step(level, random.int(5) - 2)),
  )
}

const order = 0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n

async function signed(
  bytes: Uint8Array<ArrayBuffer>,
  { key, wrong }: { key: CryptoKey; wrong: CryptoKey },
  random: Random,
): Promise<Uint8Array> {
  const algorithm = { name: 'ECDSA', hash: 'SHA-384' }
  const signer = random.oneIn(40) ? wrong : key
  const raw = new Uint8Array(await crypto.subtle.sign(algorithm, signer, bytes.subarray(0, FIELDS.signatureR[0])))
  bytes.set(raw.slice(0, 48).reverse(), AT.r[0])
  bytes.set(raw.slice(48).reverse(), AT.s[0])
  if (random.oneIn(12)) spoil(bytes, random)
  return bytes
}

/** One change after signing: most make it bad, one (S negated) does not. */
function spoil(bytes: Uint8Array, random: Random): void {
  const put = (part: 'r' | 's', value: bigint) => {
    const [offset, size] = AT[part]
    for (let i = 0; i < size; i += 1) bytes[offset + i] = Number((value >> BigInt(8 * i)) & 0xffn)
  }
  const flip = (at: number) => bytes.set([(bytes[at] ?? 0) ^ (1 << random.int(8))], at)
  random.pick([
    () => put('s', order - numberAt(bytes, 's')),
    () => put('s', numberAt(bytes, 's') + order),
    () => put('r', numberAt(bytes, 'r') + order),
    () => put('r', 0n),
    () => put('s', 0n),
    () => flip(random.int(FIELDS.signatureR[0])),
    () => flip(AT.r[0] + random.int(72)),
    () => flip(AT.s[0] + random.int(72)),
    () => flip(0x330 + random.int(368)),
  ])()
}
