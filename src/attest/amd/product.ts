// Which AMD EPYC product made a report, by CPUID. Pure. Nothing is guessed: what the table does not name is unknown.

/** Families of processors that share one AMD root key and one TCB layout. */
export const PRODUCTS = ['milan', 'genoa', 'turin'] as const

export type Product = (typeof PRODUCTS)[number]

/** Combined (base plus extended) family and model, as in CPUID Fn8000_0001_EAX. */
export type Cpuid = { readonly family: number; readonly model: number; readonly stepping: number }

type CpuidRange = {
  readonly product: Product
  readonly family: number
  readonly modelMin: number
  readonly modelMax: number
}

/** AMD 57230 (VCEK and KDS interface), product names. Siena and Bergamo (A0–AF) are certified as Genoa. */
export const CPUID_RANGES: readonly CpuidRange[] = [
  { product: 'milan', family: 0x19, modelMin: 0x00, modelMax: 0x0f },
  { product: 'genoa', family: 0x19, modelMin: 0x10, modelMax: 0x1f },
  { product: 'genoa', family: 0x19, modelMin: 0xa0, modelMax: 0xaf },
  { product: 'turin', family: 0x1a, modelMin: 0x00, modelMax: 0x11 },
]

/** Null for a processor that this library does not know. */
export function productOfCpuid(cpuid: Cpuid): Product | null {
  const range = CPUID_RANGES.find(
    one => one.family === cpuid.family && one.modelMin <= cpuid.model && cpuid.model <= one.modelMax,
  )
  return range?.product ?? null
}

export type ProductAnswer =
  | { readonly kind: 'known'; readonly product: Product }
  | { readonly kind: 'unknown'; readonly reason: string }

/**
 * The product of a report: from its CPUID (version 3 and later), else the one that the caller names.
 * Unknown when the CPUID is, when the caller names another one, and when a version 2 report comes without a name.
 */
export function productOfReport(report: { readonly cpuid: Cpuid | null }, named: Product | null): ProductAnswer {
  if (report.cpuid === null) {
    if (named !== null) return { kind: 'known', product: named }
    return { kind: 'unknown', reason: 'a version 2 report carries no CPUID: the product has to be named' }
  }
  const product = productOfCpuid(report.cpuid)
  if (product === null) {
    return { kind: 'unknown', reason: `the report's CPUID is of no known product: ${cpuidText(report.cpuid)}` }
  }
  if (named !== null && named !== product) {
    return { kind: 'unknown', reason: `the report's CPUID is ${product}, but ${named} was named` }
  }
  return { kind: 'known', product }
}

function cpuidText({ family, model, stepping }: Cpuid): string {
  return `family ${family.toString(16)}h model ${model.toString(16)}h stepping ${stepping.toString(16)}h`
}
