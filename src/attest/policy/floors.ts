// The least firmware that AMD's security bulletins ask for, with sources, and whether a report meets it. Pure.
//
// AMD publishes no machine-readable list of good TCBs; these numbers are typed in from public quotations of the
// bulletins, which `source` names, because AMD's own pages could not be read here. A number without a source stands as
// 'not established here'. A floor does not prove that firmware has no other hole.

import { type Cpuid, cpuidText, PRODUCTS, type Product } from '../amd/product.ts'
import { decodeTcb, type RawTcb, type Tcb } from '../amd/tcb.ts'
import { reasonOf } from '../malformed.ts'
import { hasBit, PLATFORM_BITS } from '../report/bits.ts'
import type { SnpReport } from '../report/report.ts'
import { type Check, check, fail, notChecked, pass } from '../verdict.ts'
import { type Policy, strictPolicy } from './policy.ts'
import type { TcbMinimums } from './schema.ts'

/** The day on which the bulletins were last looked through. */
export const floorsCompiledOn = '2026-11-21'
/** AMD publishes such bulletins several times a year. */
export const floorsFreshDays = 180

/** `published`: a day, or a month where no source gives the day. */
export const BULLETINS = {
  'AMD-SB-3015': { cve: 'CVE-2024-21944', about: 'BadRAM', published: '2024-12-10' },
  'AMD-SB-3019': { cve: 'CVE-2024-56161', about: 'microcode signatures', published: '2025-02-03' },
  'AMD-SB-3020': { cve: 'CVE-2025-0033', about: 'RMP initialization', published: '2025-10' },
  'AMD-SB-3027': { cve: 'CVE-2025-29943', about: 'StackWarp', published: '2026-01' },
  'AMD-SB-3030': { cve: 'CVE-2025-61971', about: 'BreakFAST', published: '2026-05-12' },
} as const satisfies Readonly<Record<string, { cve: string; about: string; published: string }>>

type BulletinId = keyof typeof BULLETINS

export type Floor = LeastFloor | { readonly kind: 'not-established'; readonly note: string }

type LeastFloor = {
  readonly kind: 'least'
  readonly least: number
  readonly bulletin: BulletinId
  /** Where the number was read. */
  readonly source: string
}

const review = 'ariofrio/pi-tee, a review that read the bulletin on 2026-10-08'
const fwupd = 'fwupd, fu-cpu-common.c: first microcode with the fix, of which the TCB has the low byte'
const least = (value: number, bulletin: BulletinId, source: string): LeastFloor => ({
  kind: 'least',
  least: value,
  bulletin,
  source,
})
const unknown = (note: string): Floor => ({ kind: 'not-established', note: `not established here: ${note}` })

/** SPL of the SNP firmware: one number for each product. */
export const SNP_FLOORS = {
  // AMD-SB-3019 asked for 0x18, AMD-SB-3016 and AMD-SB-3023 for 0x1b.
  milan: least(
    0x1d,
    'AMD-SB-3030',
    'sentinelsubnet.com, its required firmware; the policy of Stogas has the same number',
  ),
  // AMD-SB-3019 asked for 0x17. AMD-SB-3034 named 0x1c, and withdrew its TCB values on 2026-09-24.
  genoa: least(0x1b, 'AMD-SB-3020', `${review}; AMD-SB-3023 has the same number in Linux, drivers/crypto/ccp`),
  turin: least(0x04, 'AMD-SB-3020', `${review}; AMD-SB-3023 has the same number in Linux, drivers/crypto/ccp`),
} as const satisfies Readonly<Record<Product, LeastFloor>>

type Silicon = {
  readonly name: string
  readonly product: Product
  readonly family: number
  readonly model: number
  readonly stepping: number
  readonly microcode: Floor
}

/** SPL of the microcode. Each line of processors counts its own, so a product has several unrelated numbers. */
export const MICROCODE_FLOORS: readonly Silicon[] = [
  {
    name: 'Milan',
    product: 'milan',
    family: 0x19,
    model: 0x01,
    stepping: 1,
    // No source gives the value of AMD-SB-3020 or AMD-SB-3027 for Milan. Later patches are 0xde, and 0x47 of Milan-X.
    microcode: least(0xdb, 'AMD-SB-3019', fwupd),
  },
  {
    name: 'Milan-X',
    product: 'milan',
    family: 0x19,
    model: 0x01,
    stepping: 2,
    microcode: least(0x44, 'AMD-SB-3019', fwupd),
  },
  {
    name: 'Genoa',
    product: 'genoa',
    family: 0x19,
    model: 0x11,
    stepping: 1,
    microcode: least(0x56, 'AMD-SB-3027', review),
  },
  {
    name: 'Genoa-X',
    product: 'genoa',
    family: 0x19,
    model: 0x11,
    stepping: 2,
    microcode: least(0x51, 'AMD-SB-3027', review),
  },
  {
    // AMD certifies both as Genoa. No source gives their value in AMD-SB-3020 or AMD-SB-3027.
    name: 'Bergamo and Siena',
    product: 'genoa',
    family: 0x19,
    model: 0xa0,
    stepping: 2,
    microcode: least(0x19, 'AMD-SB-3019', fwupd),
  },
  {
    name: 'Turin',
    product: 'turin',
    family: 0x1a,
    model: 0x02,
    stepping: 1,
    microcode: least(0x51, 'AMD-SB-3027', review),
  },
  {
    name: 'Turin Dense',
    product: 'turin',
    family: 0x1a,
    model: 0x11,
    stepping: 0,
    microcode: unknown('AMD-SB-3027 covers it, no source gives its value'),
  },
]

/** For people, of what is not compared at all. */
export const OTHER_FLOORS: Readonly<Record<Product, string>> = {
  milan: 'bootloader: CCF of Microsoft asks for 4, no bulletin that does was found; TEE: not established here',
  genoa: 'bootloader: AMD-SB-3030 asks for a least value that is not established here; TEE: not established here',
  turin: 'TEE: AMD-SB-3030 asks for a least value that is not established here; FMC, bootloader: not established here',
}

/**
 * Checks a report against the floors: REPORTED_TCB, LAUNCH_TCB (a guest that old firmware launched is not made better
 * by a later update), and that the firmware has looked for memory aliases. Always the same checks in the same order.
 * Signatures are not checked here.
 */
export function floorChecks(report: SnpReport | null, product: Product | null): Check[] {
  if (report === null || product === null) {
    const reason = report === null ? 'there is no report to check' : 'the product is not known'
    return CHECK_NAMES.map(name => notChecked(name, reason, true))
  }
  const microcode = microcodeFloor(product, report.cpuid)
  const { reported, launch } = report.rawTcb
  return [
    ...tcbChecks('tcb-floor', reported, { product, microcode }),
    ...tcbChecks('tcb-floor-launch', launch, { product, microcode }),
    aliasCheck(report),
  ]
}

const CHECK_NAMES = [
  ...['tcb-floor-snp', 'tcb-floor-microcode', 'tcb-floor-launch-snp', 'tcb-floor-launch-microcode'],
  'tcb-floor-alias-check',
]

/** Reports of version 2 name no processor: they get the highest number of their product. */
export function microcodeFloor(product: Product, cpuid: Cpuid | null): Floor {
  const ofProduct = MICROCODE_FLOORS.filter(silicon => silicon.product === product)
  if (cpuid === null) {
    const order = ({ microcode }: Silicon) => (microcode.kind === 'least' ? microcode.least : -1)
    const [highest] = ofProduct.toSorted((a, b) => order(b) - order(a))
    return highest?.microcode ?? unknown(`no processor of ${product} is in the table`)
  }
  const found = ofProduct.find(
    ({ family, model, stepping }) => family === cpuid.family && model === cpuid.model && stepping === cpuid.stepping,
  )
  return found?.microcode ?? unknown(`${cpuidText(cpuid)} is not in the table`)
}

/** strictPolicy with the floors that a policy can state. Microcode depends on the processor: `floorChecks` has it. */
export function policyWithFloors(): Policy {
  const policy = strictPolicy()
  const minimums = minimumsOf()
  return {
    ...policy,
    platformInfo: { ...policy.platformInfo, aliasCheck: 'required' },
    minimumTcb: minimums,
    minimumLaunchTcb: minimums,
  }
}

function minimumsOf(): TcbMinimums {
  const minimum = (product: Product) =>
    ({ bootloader: 'any', tee: 'any', snp: SNP_FLOORS[product].least, microcode: 'any' }) as const
  return { milan: minimum('milan'), genoa: minimum('genoa'), turin: { fmc: 'any', ...minimum('turin') } }
}

function tcbChecks(
  prefix: string,
  raw: RawTcb,
  { product, microcode }: { product: Product; microcode: Floor },
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
  return wanted.map(([component, floor]) => floorCheck(`${prefix}-${component}`, component, tcb[component], floor))
}

function floorCheck(name: string, component: string, found: number, floor: Floor): Check {
  if (floor.kind === 'not-established') return notChecked(name, `${component} ${found}: ${floor.note}`, false)
  const { cve, about } = BULLETINS[floor.bulletin]
  const cited = `${floor.least}, which ${floor.bulletin} (${cve}, ${about}) asks for`
  return check(
    name,
    found >= floor.least,
    `${component} ${found} is less than ${cited}`,
    `${component} ${found}, at least ${floor.least} (${floor.bulletin})`,
  )
}

function aliasCheck({ platformInfo }: SnpReport): Check {
  const { cve, about } = BULLETINS['AMD-SB-3015']
  return check(
    'tcb-floor-alias-check',
    hasBit(platformInfo, PLATFORM_BITS.aliasCheck),
    `the firmware has not completed its search for memory aliases, which AMD-SB-3015 (${cve}, ${about}) asks for`,
    'no memory aliases were found (AMD-SB-3015)',
  )
}

const dayMs = 86_400_000

/** Old floors are not wrong, they may be too low: this is said, and no failure. */
export function floorAgeCheck(asOf: Date | number): Check {
  const name = 'tcb-floor-age'
  const days = Math.floor((Number(asOf) - Date.parse(floorsCompiledOn)) / dayMs)
  if (days > floorsFreshDays) {
    const advice = "look for a newer release or AMD's bulletins"
    return notChecked(name, `the TCB floors that this verifier ships are ${days} days old; ${advice}`, false)
  }
  return pass(name, `the TCB floors were compiled on ${floorsCompiledOn}`)
}

/** For people and programs: all of the data, flat. */
export function floorRows(): readonly {
  readonly product: Product
  readonly processor: string
  readonly component: 'snp' | 'microcode'
  readonly floor: Floor
}[] {
  return PRODUCTS.flatMap(product => [
    { product, processor: 'all', component: 'snp' as const, floor: SNP_FLOORS[product] },
    ...MICROCODE_FLOORS.filter(silicon => silicon.product === product).map(({ name, microcode }) => ({
      product,
      processor: name,
      component: 'microcode' as const,
      floor: microcode,
    })),
  ])
}
