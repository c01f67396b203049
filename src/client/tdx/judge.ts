// A TDX quote judged with its collateral and a policy, for `verify tdx` and `verify vtpm`. Effects: reads files; with
// --fetch the network, files of --cache. Throws InputFault and the Faults of Downloader.

import { BUNDLE_LIMITS } from '../../attest/encoding/pem.ts'
import { decodeAnchor, INTEL_ROOT, type TdxRoot } from '../../attest/tdx/chain.ts'
import { collateralBytesMax } from '../../attest/tdx/collateral.ts'
import { strictTdxPolicy } from '../../attest/tdx/encode-policy.ts'
import { parseTdxPolicy, type TdxPolicy, tdxPolicySchema } from '../../attest/tdx/policy.ts'
import type { TdxQuote } from '../../attest/tdx/quote.ts'
import { TDX_CHECKS, type TdxVerdict, verifyTdxQuote } from '../../attest/tdx/verify.ts'
import { type Check, fail, notChecked, pass, verdict } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import type { Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'
import { pinCheckName } from '../../verifier/pins.ts'
import { requireDirectory } from '../collateral/cache.ts'
import { Downloader } from '../collateral/download.ts'
import { type FetchOptions, requireFetch } from '../collateral/fetch-options.ts'
import { renewal } from '../trust/advice.ts'
import { explainingPolicy } from '../trust/policy-errors.ts'
import { requireFormat } from '../trust/policy-format.ts'
import { readPolicyJson } from '../trust/trust-options.ts'
import { chainFaults, fetchCollateral } from './fetch-collateral.ts'
import { quoteDocument } from './quote-document.ts'
import type { QuoteFile } from './quote-file.ts'

/** Options that say where collateral comes from. */
export type TdxSources = FetchOptions & { pcsUrl?: string; collateral?: string }

export type TdxJudgement = {
  readonly judged: TdxVerdict
  /** Null without --fetch. */
  readonly downloader: Downloader | null
}

export type TdxTrust = { readonly policy: TdxPolicy; readonly root: TdxRoot; readonly asOf: number }

export async function judgeTdx(
  run: Run,
  { bytes, quote }: QuoteFile,
  { fetch, cache, pcsUrl, collateral, policy, root, asOf }: TdxSources & TdxTrust,
): Promise<TdxJudgement> {
  const downloader = fetch === true ? new Downloader({ run, clock: systemClock, asOfMs: asOf, cache }) : null
  const question = { asOfMs: asOf, policy, root }
  if (downloader === null || collateral !== undefined) {
    const param = 'collateral'
    const given = readInput({ path: requiredCollateral(collateral), param, bytesMax: collateralBytesMax })
    return { judged: await verifyTdxQuote(bytes, given, question), downloader }
  }
  const anchor = decodeAnchor(root)
  const faults = await chainFaults(quote, anchor, asOf)
  if (faults.length > 0) return { judged: unfetched(quote, faults), downloader }
  const collateralOf = () => fetchCollateral(quote, { downloader, mirror: pcsUrl, anchor })
  const judge = async () => verifyTdxQuote(bytes, await collateralOf(), question)
  return { judged: await downloader.judged(judge), downloader }
}

/**
 * Returns the verdict on a quote whose PCK chain is bad. No collateral is requested for one: anyone can make such a
 * chain, and so choose the platform that the request names.
 */
function unfetched(quote: TdxQuote, faults: readonly string[]): TdxVerdict {
  const found = [pass('quote-form'), fail('pck-chain', faults.join('; '))]
  const open = "nothing was requested, because the quote's PCK chain is bad"
  const checks = TDX_CHECKS.map(name => found.find(made => made.name === name) ?? notChecked(name, open, true))
  return { ...verdict(checks), quote, pck: null, level: null, untilMs: null }
}

/** Adds the remedy for collateral that is not in force, and that nothing shows how old the quote is. */
export function withWords(check: Check): Check {
  const { name, outcome, reason } = check
  if (outcome === 'fail' && reason.endsWith('not for the time of this verification'))
    return { ...check, reason: `${reason}; ${renewal(true)}` }
  if (outcome !== 'not-checked' || name !== 'report-data' || check.required) return check
  return { ...check, reason: 'no report data was given, so the quote may be old: give yours with --report-data' }
}

function requiredCollateral(path: string | undefined): string {
  if (path !== undefined) return path
  throw new InputFault('required option --collateral is missing', {
    param: 'collateral',
    remedy: "name the file as in `help tdx`, or download it from Intel's service with --fetch",
  })
}

/** Throws InputFault for options that go together with --fetch alone, and a missing directory. */
export function checkTdxOptions(options: TdxSources & { printCollateralUrls?: boolean }): void {
  const { cache, pcsUrl, printCollateralUrls } = options
  requireFetch(options, { cache, ...(printCollateralUrls === true ? {} : { 'pcs-url': pcsUrl }) })
  requireDirectory({ cache })
}

export function tdxDocument({ quote, level, pck, untilMs }: TdxVerdict) {
  return {
    quote: quote === null ? null : quoteDocument(quote),
    tcb: level === null ? null : { status: level.status, advisories: level.advisories, date: iso(level.dateMs) },
    platform:
      pck === null
        ? null
        : {
            fmspc: toHex(pck.fmspc),
            ppid: toHex(pck.ppid),
            pce_id: toHex(pck.pceId),
            components: pck.components,
            pce_svn: pck.pceSvn,
          },
    collateral_until: untilMs === null ? null : iso(untilMs),
  }
}

export async function readTdxPolicy(path: string | undefined): Promise<TdxPolicy> {
  if (path === undefined) return strictTdxPolicy()
  const document = readPolicyJson(path, 'policy')
  return await readingInput(`--policy ${path}`, () => {
    requireFormat(document, 'strongroom/tdx-policy/v1')
    return explainingPolicy(document, tdxPolicySchema, () => parseTdxPolicy(document))
  })
}

export async function readTdxRoot(path: string | undefined): Promise<TdxRoot> {
  if (path === undefined) return INTEL_ROOT
  const certificate = readInput({ path, param: 'trust-simulated-root', bytesMax: BUNDLE_LIMITS.bytesMax })
  const root: TdxRoot = { certificate, names: 'SIMULATED SGX', simulated: true }
  await readingInput(`--trust-simulated-root ${path}`, () => decodeAnchor(root))
  return root
}

/** Requires a measurement: otherwise any rented TD would pass. */
export function measurementPin(
  { mrTds }: TdxPolicy,
  anyMeasurement: boolean | undefined,
  quote: TdxVerdict['quote'],
): Check {
  const name = pinCheckName('measurement')
  if (mrTds !== 'any') return pass(name, `${mrTds.length} MRTD, named in the policy`)
  const found = quote === null ? '' : `; it is ${toHex(quote.report.mrTd)}`
  return anyMeasurement === true
    ? notChecked(name, `accepted any measurement: you asked with --any-measurement${found}`, false)
    : fail(name, 'no MRTD is expected: name yours as mrTds in a --policy, or accept any with --any-measurement')
}
