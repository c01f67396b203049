// Certificates and CRL that verify a report: the relying party's files, and with --fetch those from AMD's key server.
// Effects: the network, files of --cache and --save.

import type { Product } from '../../attest/amd/product.ts'
import { servedRequests } from '../../attest/kds/served.ts'
import { kdsUrlDefault } from '../../attest/kds/service-url.ts'
import { findReport } from '../../attest/report/form.ts'
import { decodeReport, type SnpReport } from '../../attest/report/report.ts'
import { systemClock } from '../../base/clock.ts'
import type { Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { readingInput } from '../../terminal/input-file.ts'
import { requireDirectory } from '../collateral/cache.ts'
import { Downloader } from '../collateral/download.ts'
import { fetchMissing, type GivenFiles } from './kds-fetch.ts'
import { checkKdsOptions, type KdsOptions } from './kds-options.ts'
import { kdsUrls } from './kds-urls.ts'

export type ReportAsked = {
  /** Report in a form of report/form.ts. */
  readonly report: Uint8Array
  readonly path: string
  readonly product: Product | undefined
}

/** `downloader` is null without --fetch. `load` throws the Faults of fetchMissing. */
export type KdsCollateral = {
  readonly downloader: Downloader | null
  readonly load: () => Promise<GivenFiles & { readonly vek: Uint8Array }>
}

/**
 * Prints the addresses if requested, and reports whether nothing else remains to do. Throws InputFault for conflicting
 * options.
 */
export async function printedKdsUrls(run: Run, asked: ReportAsked, options: KdsOptions): Promise<boolean> {
  checkKdsOptions(options)
  if (options.printKdsUrls !== true) return false
  const { kdsUrl: baseUrl = kdsUrlDefault } = options
  const urls = await readingInput(`--report ${asked.path}`, () => kdsUrls(read(asked), asked.product ?? null, baseUrl))
  const { vcek, chain, crl, reason } = urls
  const lines = [vcek, chain, crl].flatMap(url => (url === null ? [] : [`${url}\n`]))
  await run.result(urls, lines.join(''))
  if (reason !== null) await run.hint(`no VCEK: ${reason}`)
  return true
}

/** Returns how to load certificates and CRL. Throws InputFault without a VEK. */
export async function kdsCollateral(
  run: Run,
  asked: ReportAsked,
  { given, options, asOfMs }: { readonly given: GivenFiles; readonly options: KdsOptions; readonly asOfMs: number },
): Promise<KdsCollateral> {
  const { kdsUrl: baseUrl = kdsUrlDefault, save, cache } = options
  if (options.fetch !== true) {
    const whole = { ...given, vek: wholeVek(given.vek) }
    return { downloader: null, load: async () => whole }
  }
  requireDirectory({ save, cache })
  const { report, served } = await readingInput(`--report ${asked.path}`, () => {
    const report = read(asked)
    return { report, served: servedRequests(report, asked.product ?? null) }
  })
  const downloader = new Downloader({ run, clock: systemClock, asOfMs, save, cache })
  const load = async () => {
    const { vek, ...rest } = await fetchMissing(report, { served, given }, { baseUrl, downloader })
    return { ...rest, vek: wholeVek(vek) }
  }
  return { downloader, load }
}

/**
 * Decodes the report. Throws Malformed. Throws InputFault if the report does not identify its product and none is
 * given.
 */
function read({ report: bytes, path, product }: ReportAsked): SnpReport {
  const report = decodeReport(findReport(bytes).report)
  if (report.cpuid !== null || product !== undefined) return report
  const remedy = 'name it by --product'
  throw new InputFault(`--report ${path}: a version 2 report does not name its product`, { param: 'product', remedy })
}

function wholeVek(vek: Uint8Array | undefined): Uint8Array {
  if (vek !== undefined) return vek
  throw new InputFault('--vek is missing', {
    param: 'vek',
    remedy: "name the VCEK or VLEK that signed, or have it fetched from AMD's key server by --fetch",
  })
}
