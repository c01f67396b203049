// The requests to AMD's key distribution service for the certificates of a report. Pure.

import type { Product } from '../amd/product.ts'
import { decodeTcb } from '../amd/tcb.ts'
import { Malformed } from '../malformed.ts'
import { identifyReport } from '../report/identify.ts'
import type { SnpReport } from '../report/report.ts'
import { chainRequest, crlRequest, type KdsRequest, type Tree, type VcekWanted, vcekRequest } from './request.ts'

/**
 * Identifies the VCEK that signed the report (CHIP_ID and REPORTED_TCB; AMD 56860 rev 1.58, table 23). Throws Malformed
 * if it is not a VCEK or the chip is masked.
 */
export function vcekOfReport(report: SnpReport, named: Product | null): VcekWanted {
  const product = productOf(report, named)
  const reason = whyNoVcek(report)
  if (reason !== null) throw new Malformed(reason)
  return { product, chipId: report.chipId, tcb: decodeTcb(report.rawTcb.reported, product) }
}

export type ServedRequests = {
  /** A string explains why the service has no certificate for the signing key. */
  readonly vcek: KdsRequest | string
  readonly chain: KdsRequest
  readonly crl: KdsRequest
}

/** Returns the requests. Throws Malformed if the product is unknown or REPORTED_TCB does not fit it. */
export function servedRequests(report: SnpReport, named: Product | null): ServedRequests {
  const product = productOf(report, named)
  const tree: Tree = report.signer === 'vlek' ? 'vlek' : 'vcek'
  return {
    vcek: whyNoVcek(report) ?? vcekRequest(vcekOfReport(report, named)),
    chain: chainRequest(product, tree),
    crl: crlRequest(product, tree),
  }
}

function productOf(report: SnpReport, named: Product | null): Product {
  const found = identifyReport(report, named)
  if (found.kind === 'unknown') throw new Malformed(found.reason)
  return found.product
}

/**
 * Explains why the service has no VCEK for a report; null if it has one. It serves no VLEKs: they come from the cloud
 * provider.
 */
function whyNoVcek({ signer, chipId }: SnpReport): string | null {
  if (signer !== 'vcek') return `the report is not signed by a VCEK (${signer})`
  return chipId.every(byte => byte === 0) ? 'the report does not name its chip: CHIP_ID is masked' : null
}
