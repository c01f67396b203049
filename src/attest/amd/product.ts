// AMD EPYC products and the CPUIDs that identify them. Pure. A CPUID outside the table is unknown.

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

/** Returns the product of a processor; null if this library does not support it. */
export function productOfCpuid(cpuid: Cpuid): Product | null {
  const range = CPUID_RANGES.find(
    range => range.family === cpuid.family && range.modelMin <= cpuid.model && cpuid.model <= range.modelMax,
  )
  return range?.product ?? null
}

/** Formats a CPUID for people. */
export function cpuidText({ family, model, stepping }: Cpuid): string {
  return `family ${family.toString(16)}h model ${model.toString(16)}h stepping ${stepping.toString(16)}h`
}
