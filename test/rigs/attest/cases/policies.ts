// Random policies near to a report: a few fields say something, which the report meets or misses by little. Pure.

import { hexOf } from '../second/der.ts'
import { BIT_NAMES, type Document } from '../second/policy.ts'
import { numberAt, type Part, type ProductName, partOf, TCB_BYTES } from '../second/report.ts'
import { cspIds } from './authorities.ts'
import type { Random } from './random.ts'

export const vcekEntry = '63da758d-e664-4564-adc5-f4b93be8accd'
export const arkEntry = 'c0b406a4-a803-4952-9743-3fb6014cd0ae'

type Made = (bytes: Uint8Array, random: Random, product: ProductName) => unknown

/** A policy that asks for nothing, in the form of those written before the later fields. */
export function laxDocument(): Document {
  const anyBits = (names: Readonly<Record<string, number>>) => ({
    ...Object.fromEntries(Object.keys(names).map(name => [name, 'any'])),
    unknown: 'any',
  })
  const old = ['products', 'signers', 'vmpls', 'measurements', 'hostData', 'reportData', 'idKeyDigest', 'chipIds']
    .concat('authorKeyDigest', 'minimumTcb', 'minimumLaunchTcb', 'minimumFirmware', 'minimumGuestSvn')
    .concat('reservedBytes', 'tcbOrder')
  return {
    format: 'strongroom/snp-policy/v1',
    ...Object.fromEntries(old.map(name => [name, 'any'])),
    guestPolicy: anyBits(BIT_NAMES.guestPolicy),
    platformInfo: anyBits(BIT_NAMES.platformInfo),
    keyInfo: anyBits(BIT_NAMES.keyInfo),
  }
}

/** Most policies say one to three things; some say nothing, some everything. */
export function randomPolicy(bytes: Uint8Array, product: ProductName, random: Random): Document {
  const names = Object.keys(FIELDS)
  const isWhole = random.oneIn(30)
  const said = isWhole ? names : Array.from({ length: random.int(4) }, () => random.pick(names))
  return { ...laxDocument(), ...Object.fromEntries(said.map(name => [name, FIELDS[name]?.(bytes, random, product)])) }
}

const hexOfPart = (part: Part): Made => {
  return (bytes, random) => near(hexOf(partOf(bytes, part)), random)
}

/** The same, or with one digit changed. */
function near(hex: string, random: Random): string {
  if (!random.oneIn(3)) return hex
  const at = random.int(hex.length)
  const digit = (Number.parseInt(hex[at] ?? '0', 16) ^ (1 << random.int(4))).toString(16)
  return hex.slice(0, at) + digit + hex.slice(at + 1)
}

/** With the right one in it, or not. */
const listOfPart = (part: Part): Made => {
  return (bytes, random) => {
    const size = partOf(bytes, part).length
    const right = hexOf(partOf(bytes, part))
    const wrong = hexOf(random.bytes(size).fill(1, 0, 1))
    const isZero = /^0*$/.test(right)
    return random.oneIn(3) || isZero ? [wrong] : random.oneIn(2) ? [right] : [wrong, right]
  }
}

const digests = (part: Part): Made => {
  const [single, list] = [hexOfPart(part), listOfPart(part)]
  return (bytes, random, product) => (random.oneIn(2) ? single : list)(bytes, random, product)
}

const bound = (value: number, max: number, random: Random) => Math.min(max, Math.max(0, value + random.int(3) - 1))

const levels = (part: Part): Made => {
  return (bytes, random, product) => {
    const raw = partOf(bytes, part)
    const ours = TCB_BYTES[product].flatMap((name, at) => {
      if (name === '') return []
      const level = random.oneIn(3) ? 'any' : random.oneIn(3) ? bound(raw[at] ?? 0, 255, random) : (raw[at] ?? 0)
      return [[name, level] as const]
    })
    const all = { milan: 'any', genoa: 'any', turin: 'any' }
    return random.oneIn(20) ? all : { ...all, [product]: Object.fromEntries(ours) }
  }
}

const version = (part: 'current' | 'committed'): Made => {
  return (bytes, random) => {
    const [build = 0, minor = 0, major = 0] = partOf(bytes, part)
    const step = (value: number) => (random.oneIn(3) ? bound(value, 255, random) : value)
    return { major: step(major), minor: step(minor), build: step(build) }
  }
}

const abi: Made = (bytes, random) => {
  const [minor = 0, major = 0] = partOf(bytes, 'policy')
  const step = (value: number) => (random.oneIn(3) ? bound(value, 255, random) : value)
  return { major: step(major), minor: step(minor) }
}

const rules = (part: 'policy' | 'platformInfo' | 'keyInfo', names: Readonly<Record<string, number>>): Made => {
  return (bytes, random) => {
    const value = numberAt(bytes, part)
    const rule = (bit: number) => {
      const isSet = ((value >> BigInt(bit)) & 1n) === 1n
      if (random.oneIn(2)) return 'any'
      return isSet !== random.oneIn(30) ? 'required' : 'forbidden'
    }
    const said = Object.entries(names).map(([name, bit]) => [name, rule(bit)])
    return { ...Object.fromEntries(said), unknown: random.oneIn(2) ? 'forbidden' : 'any' }
  }
}

const mitigations = (part: 'launchMitigations' | 'currentMitigations'): Made => {
  return (bytes, random) => {
    const vector = numberAt(bytes, part)
    const all = 0xffff_ffff_ffff_ffffn
    const stray = random.oneIn(4) ? 1n << BigInt(random.int(64)) : 0n
    const text = (mask: bigint) => `0x${(mask & all).toString(16)}`
    return random.oneIn(2)
      ? { required: text(vector ^ stray), forbidden: text(~vector) }
      : { required: '0x0', forbidden: text(~vector ^ stray) }
  }
}

/** A value for each field of a policy but its format. */
export const FIELDS: Readonly<Record<string, Made>> = {
  products: (_, random, product) => random.pick([[product], ['milan', 'genoa', 'turin'], ['milan'], ['turin']]),
  signers: (_, random) => random.pick([['vcek'], ['vlek'], ['vlek', 'vcek']]),
  guestPolicy: rules('policy', BIT_NAMES.guestPolicy),
  platformInfo: rules('platformInfo', BIT_NAMES.platformInfo),
  keyInfo: rules('keyInfo', BIT_NAMES.keyInfo),
  reservedBytes: () => 'zero',
  vmpls: (_, random) => random.pick([[0], [0, 1], [3, 2, 1, 0], [2]]),
  measurements: listOfPart('measurement'),
  hostData: hexOfPart('hostData'),
  reportData: hexOfPart('reportData'),
  idKeyDigest: digests('idKeyDigest'),
  authorKeyDigest: digests('authorKeyDigest'),
  chipIds: listOfPart('chipId'),
  minimumTcb: levels('reportedTcb'),
  maximumTcb: levels('reportedTcb'),
  minimumLaunchTcb: levels('launchTcb'),
  maximumLaunchTcb: levels('launchTcb'),
  minimumCurrentTcb: levels('currentTcb'),
  maximumCurrentTcb: levels('currentTcb'),
  minimumCommittedTcb: levels('committedTcb'),
  maximumCommittedTcb: levels('committedTcb'),
  minimumFirmware: version('committed'),
  minimumCurrentFirmware: version('current'),
  maximumCurrentFirmware: version('current'),
  maximumCommittedFirmware: version('committed'),
  minimumBuild: (bytes, random) => bound(partOf(bytes, 'current')[0] ?? 0, 255, random),
  committedFirmware: () => 'current',
  minimumGuestSvn: (bytes, random) => bound(Number(numberAt(bytes, 'guestSvn')), 0xffff_ffff, random),
  maximumGuestSvn: (bytes, random) => bound(Number(numberAt(bytes, 'guestSvn')), 0xffff_ffff, random),
  tcbOrder: () => 'required',
  reportVersions: (_, random) => random.pick([[2], [3], [2, 3, 4, 5], [4, 5]]),
  familyId: hexOfPart('familyId'),
  imageId: hexOfPart('imageId'),
  reportId: hexOfPart('reportId'),
  reportIdMa: hexOfPart('reportIdMa'),
  processors: (bytes, random) => {
    const [family = 0, model = 0, stepping = 0] = partOf(bytes, 'cpuid')
    const right = { family, model, stepping }
    const wrong = { ...right, stepping: (stepping + 1) % 256 }
    return random.pick([[right], [wrong], [wrong, right]])
  },
  chipIdMasked: (_, random) => random.pick(['required', 'forbidden', 'forbidden']),
  minimumPolicyAbi: abi,
  maximumPolicyAbi: abi,
  launchMitigations: mitigations('launchMitigations'),
  currentMitigations: mitigations('currentMitigations'),
  cspIds: (_, random) => random.pick([[cspIds[0]], [...cspIds], ['nobody']]),
  maxCrlAgeDays: (_, random) => random.pick([0, 19, 20, 21, 299, 300, 3650]),
  certificateEntries: (_, random) => random.pick([[vcekEntry], [vcekEntry, arkEntry], [arkEntry]]),
}
