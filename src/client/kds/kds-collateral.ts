// Certificates and CRL that verify a report: the relying party's files, and with --fetch those from AMD's key server.
// Effects: the network, files below --save.

import { join } from 'node:path'
import type { Product } from '../../attest/amd/product.ts'
import { servedRequests } from '../../attest/kds/served.ts'
import { kdsUrlDefault } from '../../attest/kds/service-url.ts'
import { findReport } from '../../attest/report/form.ts'
import { decodeReport, type SnpReport } from '../../attest/report/report.ts'
import type { Check } from '../../attest/verdict.ts'
import { systemClock } from '../../base/clock.ts'
import type { Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { inputFault, isDirectory, readingInput } from '../../terminal/input-file.ts'
import { writeOutputs } from '../../terminal/output-file.ts'
import { type Fetched, fetchMissing, fetchTimeoutMs, type GivenFiles } from './kds-fetch.ts'
import { checkKdsOptions, type KdsOptions } from './kds-options.ts'
import { kdsUrls } from './kds-urls.ts'

export type ReportAsked = {
  /** Report in a form of report/form.ts. */
  readonly report: Uint8Array
  readonly path: string
  readonly product: Product | undefined
}

/** `fetched` is null without --fetch. */
export type KdsCollateral = GivenFiles & { readonly vek: Uint8Array; readonly fetched: Fetched | null }

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

/**
 * Returns the certificates and the CRL. Throws InputFault without a VEK, and with --fetch the Faults of fetchMissing.
 */
export async function kdsCollateral(
  run: Run,
  asked: ReportAsked,
  { given, options }: { readonly given: GivenFiles; readonly options: KdsOptions },
): Promise<KdsCollateral> {
  const { kdsUrl: baseUrl = kdsUrlDefault, save } = options
  if (options.fetch !== true) return { ...given, vek: wholeVek(given.vek), fetched: null }
  // Check before sending any request.
  if (save !== undefined && !isDirectory(save))
    throw inputFault({ path: save, param: 'save' }, 'there is no such directory', 'make it, or name another')
  const { report, served } = await readingInput(`--report ${asked.path}`, () => {
    const report = read(asked)
    return { report, served: servedRequests(report, asked.product ?? null) }
  })
  const from = { baseUrl, timeoutMs: fetchTimeoutMs, nowMs: systemClock.nowMs }
  const fetched = await fetchMissing(report, { served, given }, from)
  if (fetched.withoutChain !== null)
    await run.hint(`the chain was not fetched, and the one that is built in is used: ${fetched.withoutChain}`)
  const bytesOf = (wanted: string) => fetched.files.find(({ kind }) => kind === wanted)?.bytes
  return {
    vek: wholeVek(given.vek ?? bytesOf('vcek')),
    chain: given.chain ?? bytesOf('chain'),
    crl: given.crl ?? bytesOf('crl'),
    fetched,
  }
}

/** Returns the addresses of fetched files and the files of --save, for the document. Empty without --fetch. */
export async function fetchedDocument(run: Run, fetched: Fetched | null, kept: KeepOptions): Promise<object> {
  if (fetched === null) return {}
  const addresses = Object.fromEntries(fetched.files.map(({ kind, url }) => [kind, url]))
  return { fetched: addresses, saved: await keepFetched(run, fetched, kept) }
}

type KeepOptions = { readonly checks: readonly Check[]; readonly directory: string | undefined }

/** Writes all files, or none if one fails or a check found one to be bad. Returns their paths. */
async function keepFetched(run: Run, { files }: Fetched, { checks, directory }: KeepOptions): Promise<string[]> {
  if (directory === undefined) return []
  const bad = checks.find(({ name, outcome }) => outcome === 'fail' && /^(?:vek|chain)-/.test(name))
  if (bad !== undefined) {
    await run.hint(`nothing was saved: ${bad.name} failed`)
    return []
  }
  const saved = files.map(({ file, bytes }) => ({ path: join(directory, file), param: 'save', bytes }))
  writeOutputs(saved, { replaces: true })
  for (const { path } of saved) await run.hint(`saved ${path}`)
  return saved.map(({ path }) => path)
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
