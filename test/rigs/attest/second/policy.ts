// A policy for the second implementation: the JSON document itself against the bytes of a report. Pure. The document
// has been accepted by its schema; a field that is not there says 'any'.

import { hexOf } from './der.ts'
import { isReservedZero, numberAt, type Part, type ProductName, partOf, signerOf, tcbOf } from './report.ts'

export type Document = { readonly [field: string]: unknown }

export type Surroundings = {
  readonly product: ProductName
  readonly asOf: number
  readonly holder: { readonly kind: 'vcek' | 'vlek'; readonly cspId: string | null } | null
  /** When the list was issued; null without one that the ARK signed. */
  readonly crlIssued: number | null
  readonly certificateEntries: readonly string[] | null
}

/** Names of the fields that refuse the report. */
export function refusedBy(bytes: Uint8Array, policy: Document, around: Surroundings): string[] {
  return Object.keys(RULES).filter(field => {
    const wanted = policy[field] ?? 'any'
    return wanted !== 'any' && !RULES[field]?.(wanted as never, bytes, around)
  })
}

type Rule = (wanted: never, bytes: Uint8Array, around: Surroundings) => boolean
type Version = { readonly major: number; readonly minor: number; readonly build?: number }
type Levels = Readonly<Record<string, number | 'any'>>

const dayMs = 86_400_000

const RULES: Readonly<Record<string, Rule>> = {
  products: (wanted: readonly string[], _, { product }) => wanted.includes(product),
  signers: (wanted: readonly string[], bytes) => wanted.includes(signerOf(bytes) ?? ''),
  guestPolicy: (wanted: Document, bytes) => bits(wanted, numberAt(bytes, 'policy') & ~0xffffn, GUEST_POLICY),
  platformInfo: (wanted: Document, bytes) => bits(wanted, numberAt(bytes, 'platformInfo'), PLATFORM_INFO),
  keyInfo: (wanted: Document, bytes) => bits(wanted, numberAt(bytes, 'keyInfo') & ~0x1cn, KEY_INFO),
  reservedBytes: (_: string, bytes) => isReservedZero(bytes),
  vmpls: (wanted: readonly number[], bytes) => wanted.includes(Number(numberAt(bytes, 'vmpl'))),
  measurements: (wanted: readonly string[], bytes) => wanted.includes(hex(bytes, 'measurement')),
  hostData: (wanted: string, bytes) => wanted === hex(bytes, 'hostData'),
  reportData: (wanted: string, bytes) => wanted === hex(bytes, 'reportData'),
  idKeyDigest: (wanted: string | readonly string[], bytes) => [wanted].flat().includes(hex(bytes, 'idKeyDigest')),
  authorKeyDigest: (wanted: string | readonly string[], bytes) =>
    [wanted].flat().includes(hex(bytes, 'authorKeyDigest')),
  chipIds: (wanted: readonly string[], bytes) => wanted.includes(hex(bytes, 'chipId')),
  minimumTcb: levels('reportedTcb', 'least'),
  minimumLaunchTcb: levels('launchTcb', 'least'),
  maximumTcb: levels('reportedTcb', 'most'),
  maximumLaunchTcb: levels('launchTcb', 'most'),
  minimumCurrentTcb: levels('currentTcb', 'least'),
  maximumCurrentTcb: levels('currentTcb', 'most'),
  minimumCommittedTcb: levels('committedTcb', 'least'),
  maximumCommittedTcb: levels('committedTcb', 'most'),
  minimumFirmware: (wanted: Version, bytes) =>
    compare(version(bytes, 'current'), wanted) >= 0 && compare(version(bytes, 'committed'), wanted) >= 0,
  minimumCurrentFirmware: (wanted: Version, bytes) => compare(version(bytes, 'current'), wanted) >= 0,
  maximumCurrentFirmware: (wanted: Version, bytes) => compare(version(bytes, 'current'), wanted) <= 0,
  maximumCommittedFirmware: (wanted: Version, bytes) => compare(version(bytes, 'committed'), wanted) <= 0,
  minimumBuild: (wanted: number, bytes) =>
    (version(bytes, 'current').build ?? 0) >= wanted && (version(bytes, 'committed').build ?? 0) >= wanted,
  committedFirmware: (_: string, bytes) =>
    hex(bytes, 'currentTcb') === hex(bytes, 'committedTcb') && hex(bytes, 'current') === hex(bytes, 'committed'),
  minimumGuestSvn: (wanted: number, bytes) => Number(numberAt(bytes, 'guestSvn')) >= wanted,
  maximumGuestSvn: (wanted: number, bytes) => Number(numberAt(bytes, 'guestSvn')) <= wanted,
  tcbOrder: (_: string, bytes, { product }) => isOrdered(bytes, product),
  reportVersions: (wanted: readonly number[], bytes) => wanted.includes(Number(numberAt(bytes, 'version'))),
  familyId: (wanted: string, bytes) => wanted === hex(bytes, 'familyId'),
  imageId: (wanted: string, bytes) => wanted === hex(bytes, 'imageId'),
  reportId: (wanted: string, bytes) => wanted === hex(bytes, 'reportId'),
  reportIdMa: (wanted: string, bytes) => wanted === hex(bytes, 'reportIdMa'),
  processors: (wanted: readonly { family: number; model: number; stepping: number }[], bytes) =>
    numberAt(bytes, 'version') > 2n &&
    wanted.some(({ family, model, stepping }) => {
      return hexOf(Uint8Array.of(family, model, stepping)) === hex(bytes, 'cpuid')
    }),
  chipIdMasked: (wanted: string, bytes) => (numberAt(bytes, 'chipId') === 0n) === (wanted === 'required'),
  minimumPolicyAbi: (wanted: Version, bytes) => compare(abi(bytes), wanted) >= 0,
  maximumPolicyAbi: (wanted: Version, bytes) => compare(abi(bytes), wanted) <= 0,
  launchMitigations: mitigations('launchMitigations'),
  currentMitigations: mitigations('currentMitigations'),
  cspIds: (wanted: readonly string[], _, { holder }) => holder?.cspId != null && wanted.includes(holder.cspId),
  maxCrlAgeDays: (wanted: number, _, { asOf, crlIssued }) => crlIssued !== null && asOf - crlIssued <= wanted * dayMs,
  certificateEntries: (wanted: readonly string[], _, { certificateEntries }) =>
    certificateEntries !== null && wanted.every(guid => certificateEntries.includes(guid)),
}

/** Table 9, table 24, and offset 48h of table 23: the number of each named bit. */
const GUEST_POLICY = {
  smt: 16,
  reservedOne: 17,
  migrate: 18,
  debug: 19,
  singleSocket: 20,
  cxl: 21,
  aes256Xts: 22,
  raplOff: 23,
  ciphertextHiding: 24,
  pageSwapOff: 25,
}
const PLATFORM_INFO = {
  smt: 0,
  tsme: 1,
  ecc: 2,
  raplOff: 3,
  ciphertextHiding: 4,
  aliasCheck: 5,
  iommuWriteSafe: 6,
  tio: 7,
}
const KEY_INFO = { authorKeyEnabled: 0, maskChipKey: 1 }

export const BIT_NAMES = { guestPolicy: GUEST_POLICY, platformInfo: PLATFORM_INFO, keyInfo: KEY_INFO } as const

/** The names of all fields that this implementation knows. */
export const ruleNames = Object.keys(RULES)

function hex(bytes: Uint8Array, part: Part): string {
  return hexOf(partOf(bytes, part))
}

function bits(wanted: Document, value: bigint, names: Readonly<Record<string, number>>): boolean {
  let unknown = value
  for (const [name, bit] of Object.entries(names)) {
    const isSet = ((value >> BigInt(bit)) & 1n) === 1n
    unknown &= ~(1n << BigInt(bit))
    if (wanted[name] === 'required' && !isSet) return false
    if (wanted[name] === 'forbidden' && isSet) return false
  }
  return wanted.unknown === 'any' || unknown === 0n
}

function levels(part: Part, side: 'least' | 'most'): Rule {
  return (wanted: Readonly<Record<string, Levels | 'any'>>, bytes, { product }) => {
    const ours = wanted[product]
    if (ours === undefined || ours === 'any') return true
    const tcb = tcbOf(partOf(bytes, part), product)
    // A component that says 'any' is not looked at; where the TCB cannot be read, all that are looked at are wrong.
    if (tcb === null) return side === 'least' && isLax(part) && Object.values(ours).every(level => level === 'any')
    return Object.entries(ours).every(([name, level]) => {
      if (level === 'any') return true
      return side === 'least' ? (tcb[name] ?? 0) >= level : (tcb[name] ?? 0) <= level
    })
  }
}

/** minimumTcb and minimumLaunchTcb have a check for each component, the later fields one for the whole TCB. */
function isLax(part: Part): boolean {
  return part === 'reportedTcb' || part === 'launchTcb'
}

function version(bytes: Uint8Array, part: 'current' | 'committed'): Version {
  const [build = 0, minor = 0, major = 0] = partOf(bytes, part)
  return { major, minor, build }
}

function abi(bytes: Uint8Array): Version {
  const [minor = 0, major = 0] = partOf(bytes, 'policy')
  return { major, minor }
}

function compare(a: Version, b: Version): number {
  return a.major - b.major || a.minor - b.minor || (a.build ?? 0) - (b.build ?? 0)
}

function isOrdered(bytes: Uint8Array, product: ProductName): boolean {
  const current = tcbOf(partOf(bytes, 'currentTcb'), product)
  const others = [tcbOf(partOf(bytes, 'committedTcb'), product), tcbOf(partOf(bytes, 'reportedTcb'), product)]
  const isNotAbove = others.every(
    other =>
      other !== null &&
      current !== null &&
      Object.keys(other).every(name => (current[name] ?? 0) >= (other[name] ?? 0)),
  )
  return isNotAbove && compare(version(bytes, 'current'), version(bytes, 'committed')) >= 0
}

function mitigations(part: 'launchMitigations' | 'currentMitigations'): Rule {
  return (wanted: { required: string; forbidden: string }, bytes) => {
    if (numberAt(bytes, 'version') < 5n) return false
    const vector = numberAt(bytes, part)
    const [required, forbidden] = [BigInt(wanted.required), BigInt(wanted.forbidden)]
    return (vector & required) === required && (vector & forbidden) === 0n
  }
}
