// An SNP report for the second implementation: AMD 56860 rev 1.58, table 23, typed in again. Pure.

import { createPublicKey, verify } from 'node:crypto'
import { hexOf } from './der.ts'

export const reportBytes = 1184
const signedBytes = 0x2a0

/** [offset, size] */
export const AT = {
  version: [0x000, 4],
  guestSvn: [0x004, 4],
  policy: [0x008, 8],
  familyId: [0x010, 16],
  imageId: [0x020, 16],
  vmpl: [0x030, 4],
  algorithm: [0x034, 4],
  currentTcb: [0x038, 8],
  platformInfo: [0x040, 8],
  keyInfo: [0x048, 4],
  reportData: [0x050, 64],
  measurement: [0x090, 48],
  hostData: [0x0c0, 32],
  idKeyDigest: [0x0e0, 48],
  authorKeyDigest: [0x110, 48],
  reportId: [0x140, 32],
  reportIdMa: [0x160, 32],
  reportedTcb: [0x180, 8],
  cpuid: [0x188, 3],
  chipId: [0x1a0, 64],
  committedTcb: [0x1e0, 8],
  current: [0x1e8, 3],
  committed: [0x1ec, 3],
  launchTcb: [0x1f0, 8],
  launchMitigations: [0x1f8, 8],
  currentMitigations: [0x200, 8],
  r: [0x2a0, 72],
  s: [0x2e8, 72],
} as const satisfies Readonly<Record<string, readonly [offset: number, size: number]>>

export type Part = keyof typeof AT

export function partOf(bytes: Uint8Array, part: Part): Uint8Array {
  const [offset, size] = AT[part]
  return bytes.subarray(offset, offset + size)
}

/** Little-endian. */
export function numberIn(bytes: Uint8Array): bigint {
  return bytes.reduceRight((sum, byte) => sum * 256n + BigInt(byte), 0n)
}

export function numberAt(bytes: Uint8Array, part: Part): bigint {
  return numberIn(partOf(bytes, part))
}

export const SIGNERS: Readonly<Record<number, 'vcek' | 'vlek' | 'none'>> = { 0: 'vcek', 1: 'vlek', 7: 'none' }

export function signerOf(bytes: Uint8Array): 'vcek' | 'vlek' | 'none' | undefined {
  return SIGNERS[Number((numberAt(bytes, 'keyInfo') >> 2n) & 7n)]
}

/** Versions 2 to 5, and a signing key that is not reserved. */
export function isReport(bytes: Uint8Array): boolean {
  if (bytes.length !== reportBytes) return false
  const version = numberAt(bytes, 'version')
  return version >= 2n && version <= 5n && signerOf(bytes) !== undefined
}

export type ProductName = 'milan' | 'genoa' | 'turin'

/** Version 2 carries no CPUID: there somebody has to name the product. */
export function productOf(bytes: Uint8Array, named: ProductName | null): ProductName | null {
  if (numberAt(bytes, 'version') === 2n) return named
  const [family, model] = partOf(bytes, 'cpuid')
  const found = productOfCpuid(family ?? 0, model ?? 0)
  return named !== null && named !== found ? null : found
}

function productOfCpuid(family: number, model: number): ProductName | null {
  if (family === 0x19 && model <= 0x0f) return 'milan'
  if (family === 0x19 && ((model >= 0x10 && model <= 0x1f) || (model >= 0xa0 && model <= 0xaf))) return 'genoa'
  return family === 0x1a && model <= 0x11 ? 'turin' : null
}

const LEGACY = ['bootloader', 'tee', '', '', '', '', 'snp', 'microcode'] as const
const TURIN = ['fmc', 'bootloader', 'tee', 'snp', '', '', '', 'microcode'] as const
export const TCB_BYTES = { milan: LEGACY, genoa: LEGACY, turin: TURIN } as const

/** Null when a reserved byte is not zero. */
export function tcbOf(bytes: Uint8Array, product: ProductName): Record<string, number> | null {
  const tcb: Record<string, number> = {}
  for (const [at, name] of TCB_BYTES[product].entries()) {
    if (name !== '') tcb[name] = bytes[at] ?? 0
    else if (bytes[at] !== 0) return null
  }
  return tcb
}

/** Every byte outside of the fields that this version has. The signature's area is not signed. */
export function isReservedZero(bytes: Uint8Array): boolean {
  const version = Number(numberAt(bytes, 'version'))
  const isThere = (part: string) =>
    !(part === 'cpuid' && version < 3) &&
    !((part === 'launchMitigations' || part === 'currentMitigations') && version < 5)
  const used = new Uint8Array(reportBytes)
  for (const [part, [offset, size]] of Object.entries(AT)) if (isThere(part)) used.fill(1, offset, offset + size)
  return bytes.every((byte, at) => used[at] === 1 || byte === 0)
}

const order = BigInt(
  '0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973',
)

const judged = new WeakMap<Uint8Array, Map<string, boolean>>()

/** Several questions are asked about the same bytes: a cache changes no result. */
export function isSignedByVek(bytes: Uint8Array, spki: Uint8Array): boolean {
  const answers = judged.get(bytes) ?? new Map<string, boolean>()
  judged.set(bytes, answers)
  const key = hexOf(spki)
  const found = answers.get(key) ?? isSignatureOf(bytes, spki)
  answers.set(key, found)
  return found
}

/** ECDSA on P-384 with SHA-384 (algorithm 1), R and S little-endian; all after S is zero. */
function isSignatureOf(bytes: Uint8Array, spki: Uint8Array): boolean {
  if (signerOf(bytes) === 'none' || numberAt(bytes, 'algorithm') !== 1n) return false
  const [r, s] = [numberAt(bytes, 'r'), numberAt(bytes, 's')]
  if (r === 0n || s === 0n || r >= order || s >= order) return false
  if (bytes.subarray(0x330).some(byte => byte !== 0)) return false
  const big = (value: bigint) => Buffer.from(value.toString(16).padStart(96, '0'), 'hex')
  const key = createPublicKey({ key: Buffer.from(spki), format: 'der', type: 'spki' })
  return verify(
    'sha384',
    bytes.subarray(0, signedBytes),
    { key, dsaEncoding: 'ieee-p1363' },
    Buffer.concat([big(r), big(s)]),
  )
}
