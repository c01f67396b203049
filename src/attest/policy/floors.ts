// The minimum firmware that AMD's security bulletins require, with sources, and whether a report meets it. Pure.
//
// AMD publishes no machine-readable list of good TCBs, and its own pages could not be read here, so these numbers are
// entered by hand. Each names its origin. 'first' hand is AMD's own code, and firmware below it fails. 'second' hand is
// a third party's reading of a bulletin, and firmware below it is reported without failing. A value without a source is
// left out. A floor does not prove that firmware has no other vulnerability.

import { dayMs } from '../../base/time.ts'
import type { Cpuid, Product } from '../amd/product.ts'
import { decodeTcb, type RawTcb, type Tcb } from '../amd/tcb.ts'
import { reasonOf } from '../malformed.ts'
import { hasBit, PLATFORM_BITS } from '../report/bits.ts'
import type { SnpReport } from '../report/report.ts'
import { type Check, check, fail, notChecked, pass } from '../verdict.ts'

/** The day on which the bulletins were last reviewed. */
export const floorsCompiledOn = '2026-11-25'
/** Days until the floors count as old: AMD publishes such bulletins several times a year. */
export const floorsFreshDays = 180

/** `published`: a day, or a month if no source gives the day. */
export const BULLETINS = {
  'AMD-SB-3015': { cve: 'CVE-2024-21944', about: 'BadRAM', published: '2024-12-10' },
  'AMD-SB-3019': { cve: 'CVE-2024-56161', about: 'microcode signatures', published: '2025-02-03' },
  'AMD-SB-3020': { cve: 'CVE-2025-0033', about: 'RMP initialization', published: '2025-10' },
  'AMD-SB-3023': { cve: 'CVE-2025-48514', about: 'SEV-ES guests beside SNP', published: '2026-02' },
  'AMD-SB-3027': { cve: 'CVE-2025-29943', about: 'StackWarp', published: '2026-01' },
  'AMD-SB-3030': { cve: 'CVE-2025-61971', about: 'BreakFAST', published: '2026-05-12' },
} as const satisfies Readonly<Record<string, { cve: string; about: string; published: string }>>

type BulletinId = keyof typeof BULLETINS

export type Floor = {
  readonly least: number
  readonly bulletin: BulletinId
  readonly hand: 'first' | 'second'
  /** Source of the number, and the day on which it was read. */
  readonly source: string
  readonly readOn: string
}

const ccp = 'Linux, drivers/crypto/ccp/sev-dev.c, which AMD wrote for this bulletin'
const loader = 'Linux, arch/x86/kernel/cpu/microcode/amd.c: the last revision that loads forged patches, and one more'
const review = 'ariofrio/pi-tee, a review that read the bulletin on 2026-10-08'
const required = 'sentinelsubnet.com, its required firmware; the policy of Stogas has the same number'

/** A floor from AMD's own code. For microcode, the number is the low byte of its revision. */
const first = (least: number, bulletin: BulletinId, source: string): Floor => ({
  least,
  bulletin,
  hand: 'first',
  source,
  readOn: '2026-11-25',
})
/** A floor from a third party's reading of the bulletin. */
const second = (least: number, bulletin: BulletinId, source: string): Floor => ({
  least,
  bulletin,
  hand: 'second',
  source,
  readOn: '2026-11-21',
})

/** SPL of the SNP firmware, by product, first hand first. */
export const SNP_FLOORS = {
  milan: [first(0x1b, 'AMD-SB-3023', ccp), second(0x1d, 'AMD-SB-3030', required)],
  // AMD-SB-3034 named 0x1c for Genoa, and withdrew its TCB values on 2026-09-24.
  genoa: [first(0x1b, 'AMD-SB-3023', ccp)],
  turin: [first(0x04, 'AMD-SB-3023', ccp)],
} as const satisfies Readonly<Record<Product, readonly Floor[]>>

type Silicon = {
  readonly name: string
  readonly product: Product
  readonly family: number
  readonly model: number
  readonly stepping: number
  readonly microcode: readonly Floor[]
}

/** SPL of the microcode. Each line of processors has its own numbering, so a product has several unrelated numbers. */
export const MICROCODE_FLOORS: readonly Silicon[] = [
  {
    name: 'Milan',
    product: 'milan',
    family: 0x19,
    model: 0x01,
    stepping: 1,
    // No source gives Milan's value for AMD-SB-3020 or AMD-SB-3027. Later patches are 0xde, and 0x47 for Milan-X.
    microcode: [first(0xdb, 'AMD-SB-3019', loader)],
  },
  {
    name: 'Milan-X',
    product: 'milan',
    family: 0x19,
    model: 0x01,
    stepping: 2,
    microcode: [first(0x44, 'AMD-SB-3019', loader)],
  },
  {
    name: 'Genoa',
    product: 'genoa',
    family: 0x19,
    model: 0x11,
    stepping: 1,
    microcode: [first(0x54, 'AMD-SB-3019', loader), second(0x56, 'AMD-SB-3027', review)],
  },
  {
    name: 'Genoa-X',
    product: 'genoa',
    family: 0x19,
    model: 0x11,
    stepping: 2,
    microcode: [first(0x4f, 'AMD-SB-3019', loader), second(0x51, 'AMD-SB-3027', review)],
  },
  {
    // AMD certifies both as Genoa. No source gives their value for AMD-SB-3020 or AMD-SB-3027.
    name: 'Bergamo and Siena',
    product: 'genoa',
    family: 0x19,
    model: 0xa0,
    stepping: 2,
    microcode: [first(0x19, 'AMD-SB-3019', loader)],
  },
  {
    name: 'Turin',
    product: 'turin',
    family: 0x1a,
    model: 0x02,
    stepping: 1,
    microcode: [first(0x47, 'AMD-SB-3019', loader), second(0x51, 'AMD-SB-3027', review)],
  },
  {
    name: 'Turin Dense',
    product: 'turin',
    family: 0x1a,
    model: 0x11,
    stepping: 0,
    // AMD-SB-3027 covers it too, but no source gives its value.
    microcode: [first(0x47, 'AMD-SB-3019', loader)],
  },
]

/** Names of the floors: for REPORTED_TCB, for LAUNCH_TCB, and for the search for memory aliases. */
export const FLOOR_PARTS = ['snp', 'microcode', 'launch-snp', 'launch-microcode', 'alias-check'] as const

export type FloorPart = (typeof FLOOR_PARTS)[number]

/** Floors that a relying party waives, each with its reason, which the verdict repeats. */
export type FloorWaivers = Readonly<Partial<Record<FloorPart, string>>>

/**
 * Checks a report against the floors: REPORTED_TCB, LAUNCH_TCB (a later update does not repair a guest launched by old
 * firmware), and whether the firmware has searched for memory aliases. Always returns the same checks in the same
 * order. Compares waived floors too. Does not check signatures.
 */
export function floorChecks(report: SnpReport | null, product: Product | null, waivers: FloorWaivers = {}): Check[] {
  if (report === null || product === null) {
    const reason = report === null ? 'there is no report to check' : 'the product is not known'
    return FLOOR_PARTS.map(part => notChecked(floorCheckName(part), reason, true))
  }
  const microcode = microcodeFloors(product, report.cpuid)
  const { reported, launch } = report.rawTcb
  const checks = [
    ...tcbChecks('tcb-floor', reported, { product, microcode }),
    ...tcbChecks('tcb-floor-launch', launch, { product, microcode }),
    aliasCheck(report),
  ]
  return checks.map(check => {
    const part = FLOOR_PARTS.find(name => floorCheckName(name) === check.name)
    const reason = part === undefined ? undefined : waivers[part]
    if (reason === undefined || check.outcome !== 'fail') return check
    return notChecked(check.name, `waived (${reason}): ${check.reason}`, false)
  })
}

export function floorCheckName(part: FloorPart): string {
  return `tcb-floor-${part}`
}

/** Returns the floors of a processor. Reports of version 2 contain no CPUID: they get the floors of all lines. */
export function microcodeFloors(product: Product, cpuid: Cpuid | null): readonly Floor[] {
  return MICROCODE_FLOORS.filter(
    silicon =>
      silicon.product === product &&
      (cpuid === null ||
        (silicon.family === cpuid.family && silicon.model === cpuid.model && silicon.stepping === cpuid.stepping)),
  ).flatMap(({ microcode }) => microcode)
}

/** Returns the floors above `found`: the highest first-hand floor, then the highest second-hand floor. */
export function floorsAbove(found: number, floors: readonly Floor[]): Floor[] {
  const highest = (hand: Floor['hand']) =>
    floors.filter(floor => floor.hand === hand && floor.least > found).toSorted((a, b) => b.least - a.least)
  return [...highest('first').slice(0, 1), ...highest('second').slice(0, 1)]
}

function tcbChecks(
  prefix: string,
  raw: RawTcb,
  { product, microcode }: { product: Product; microcode: readonly Floor[] },
): Check[] {
  const wanted = [
    ['snp', SNP_FLOORS[product]],
    ['microcode', microcode],
  ] as const
  let tcb: Tcb
  try {
    tcb = decodeTcb(raw, product)
  } catch (error) {
    return wanted.map(([component]) => fail(`${prefix}-${component}`, reasonOf(error)))
  }
  return wanted.map(([component, floors]) => floorCheck(`${prefix}-${component}`, component, tcb[component], floors))
}

function floorCheck(name: string, component: string, found: number, floors: readonly Floor[]): Check {
  if (floors.length === 0) {
    return notChecked(name, `${component} ${found}: not established here: the processor is not in the table`, false)
  }
  const [missed] = floorsAbove(found, floors)
  if (missed === undefined) {
    const [highest] = floors.toSorted((a, b) => b.least - a.least)
    return pass(name, `${component} ${found}, at least ${highest?.least} (${highest?.bulletin})`)
  }
  const { cve, about } = BULLETINS[missed.bulletin]
  const reason = `${component} ${found} is less than ${missed.least}, which ${missed.bulletin} (${cve}, ${about}) requires`
  if (missed.hand === 'first') return fail(name, reason)
  return notChecked(name, `${reason}, by second hand (${missed.source}; read on ${missed.readOn})`, false)
}

function aliasCheck({ platformInfo }: SnpReport): Check {
  const { cve, about } = BULLETINS['AMD-SB-3015']
  return check(
    'tcb-floor-alias-check',
    hasBit(platformInfo, PLATFORM_BITS.aliasCheck),
    `the firmware has not completed its search for memory aliases, which AMD-SB-3015 (${cve}, ${about}) requires`,
    'no memory aliases were found (AMD-SB-3015)',
  )
}

/** Old floors may be too low. Reports their age without failing. */
export function floorAgeCheck(asOf: Date | number): Check {
  const name = 'tcb-floor-age'
  const days = Math.floor((Number(asOf) - Date.parse(floorsCompiledOn)) / dayMs)
  if (days > floorsFreshDays) {
    const advice = "look for a newer release or AMD's bulletins"
    return notChecked(name, `the TCB floors that this verifier ships are ${days} days old; ${advice}`, false)
  }
  return pass(name, `the TCB floors were compiled on ${floorsCompiledOn}`)
}
