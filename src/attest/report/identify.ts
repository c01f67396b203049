// Identifies the product that made a report, by its CPUID, or in version 2, which has none, by the caller's word. Pure.

import { cpuidText, type Product, productOfCpuid } from '../amd/product.ts'
import type { SnpReport } from './report.ts'

declare const identified: unique symbol

/** A report with its product. Only `identifyReport` creates one, so the two agree. */
export type IdentifiedReport = {
  readonly kind: 'known'
  readonly report: SnpReport
  readonly product: Product
  readonly [identified]: true
}

export type ReportIdentity = IdentifiedReport | { readonly kind: 'unknown'; readonly reason: string }

/**
 * Identifies a report. Unknown if the CPUID is, if the caller names another product, or for version 2 without a name.
 */
export function identifyReport(report: SnpReport, named: Product | null): ReportIdentity {
  if (report.cpuid === null) {
    if (named !== null) return known(report, named)
    return { kind: 'unknown', reason: 'a version 2 report carries no CPUID: the product has to be named' }
  }
  const product = productOfCpuid(report.cpuid)
  if (product === null) {
    return { kind: 'unknown', reason: `the report's CPUID is of no known product: ${cpuidText(report.cpuid)}` }
  }
  if (named !== null && named !== product) {
    return { kind: 'unknown', reason: `the report's CPUID is ${product}, but ${named} was named` }
  }
  return known(report, product)
}

/** The type's brand exists for the compiler only. */
function known(report: SnpReport, product: Product): IdentifiedReport {
  return { kind: 'known', report, product } as IdentifiedReport
}
