// strongroom verify tdx: verifies a saved TDX quote with its collateral and a policy. Effects: reads files; with
// --fetch the network, files of --cache.

import { decodeAnchor } from '../../attest/tdx/chain.ts'
import { openRtmrs, type TdxPolicy } from '../../attest/tdx/policy.ts'
import { TD_REPORT } from '../../attest/tdx/quote.ts'
import { type Check, fail, notChecked, pass, verdict } from '../../attest/verdict.ts'
import { iso, systemClock } from '../../base/clock.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { readingInput } from '../../terminal/input-file.ts'
import { hexOption, timeOption } from '../../terminal/options.ts'
import { verdictDocument } from '../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../terminal/verdict-exit.ts'
import { addFetchOptions, mirrorOption } from '../collateral/fetch-options.ts'
import { verboseHelp } from '../trust/trust-options.ts'
import { rtmrPinName, verdictSummary } from '../verdict/summary.ts'
import { collateralUrls, pcsUrlDefault } from './collateral-urls.ts'
import {
  addEventOptions,
  type EventInput,
  type EventOptions,
  eventChecks,
  eventsDocument,
  namesEvents,
  readEvents,
} from './event-log.ts'
import {
  checkTdxOptions,
  judgeTdx,
  measurementPin,
  readTdxPolicy,
  readTdxRoot,
  type TdxSources,
  tdxDocument,
  withWords,
} from './judge.ts'
import { readQuoteFile } from './quote-file.ts'

type TdxOptions = TdxSources &
  EventOptions & {
    policy?: string
    reportData?: Uint8Array
    asOf?: number
    anyMeasurement?: boolean
    anyRtmr?: boolean
    trustSimulatedRoot?: string
    printCollateralUrls?: boolean
    verbose?: boolean
  }

export function addVerifyTdx(verify: Command): void {
  const command = verify
    .command('tdx')
    .description('verify a TDX quote: signatures, chain to Intel, revocation, TCB level and policy')
    .argument('<file>', 'quote of version 4 or 5, or hexadecimal, base64 or base64url of it; - is stdin')
    .option('--collateral <file>', "JSON of Intel's signed documents about the platform, as in `help tdx`")
    .option(
      '--policy <file>',
      'JSON as in `verify tdx-policy-schema`; default: no debug, profiling, migration or service TD, TCB up to date; MRTD and RTMRs then need --any-measurement',
    )
    .option(
      '--report-data <hex>',
      'the 64 bytes of REPORTDATA that the quote must carry',
      hexOption(TD_REPORT.reportData[1]),
    )
    .option(
      '--any-measurement',
      'accept any MRTD, with any kernel; without this the --policy must name the expected ones',
    )
    .option(
      '--any-rtmr',
      'accept any kernel that the firmware starts; without this the --policy must name rtmr1 and rtmr2, which measure it',
    )
    .option('--as-of <time>', 'verify for this time in UTC, like 2025-06-01T00:00:00Z; default now', timeOption)
    .option(
      '--trust-simulated-root <file>',
      "PEM of a simulated root, instead of Intel's; the verdict is then marked SIMULATED",
    )
    .option('--print-collateral-urls', "print where Intel serves the quote's collateral, and end; uses no network")
    .option(
      '--pcs-url <url>',
      `with --fetch or --print-collateral-urls: a mirror of ${pcsUrlDefault} that has /IntelSGXRootCA.der, too`,
      mirrorOption,
    )
    .option('--verbose', verboseHelp)
  addFetchOptions(addEventOptions(command), "the collateral from Intel's service, unless --collateral names it")
    .examples(
      'strongroom verify tdx quote.bin --fetch --cache collateral --policy tdx.json',
      'strongroom verify tdx quote.bin --collateral collateral.json --policy tdx.json',
      'strongroom verify tdx quote.bin --print-collateral-urls',
      'strongroom verify policy-example --tdx > tdx.json   # then put your measurements into mrTds, rtmr1 and rtmr2',
    )
    .runs(verifyTdx)
}

async function verifyTdx(run: Run, path: string, options: TdxOptions): Promise<void> {
  const file = await readQuoteFile(path)
  const root = await readTdxRoot(options.trustSimulatedRoot)
  checkTdxOptions(options)
  if (options.printCollateralUrls === true) {
    const urls = await readingInput(path, () => collateralUrls(file.quote, decodeAnchor(root), options.pcsUrl))
    const line = ({ member, url, chain }: (typeof urls)[number]) =>
      `${member}: ${url}${chain === null ? '' : `\n  ${member}_issuer_chain: its header ${chain}`}\n`
    return await run.result({ urls }, urls.map(line).join(''))
  }
  const policy = withReportData(await readTdxPolicy(options.policy), options)
  const events = await readEvents(options)
  const asOf = options.asOf ?? systemClock.nowMs()
  const { judged, downloader } = await judgeTdx(run, file, { ...options, policy, root, asOf })
  const pins = [measurementPin(policy, options.anyMeasurement, judged.quote), rtmrPin(policy, options, events)]
  const checks = [...judged.checks.map(withWords), ...eventChecks(events, judged.quote), ...pins]
  const shown = { ...verdict(checks), simulated: root.simulated === true }
  const kept = downloader?.keep(checks) ?? {}
  await run.result(
    {
      ...verdictDocument(shown),
      as_of: iso(asOf),
      ...tdxDocument(judged),
      event_log: eventsDocument(events, judged.quote),
      ...kept,
    },
    verdictSummary(shown, { verbose: options.verbose === true, paint: run.paint }),
  )
  await downloader?.showHints()
  run.exitWith(exitCodeOfVerdict(shown))
}

/** Adds the report data, as for an SNP report. If the policy has another value, throws instead of overriding it. */
function withReportData(policy: TdxPolicy, { reportData, policy: file }: TdxOptions): TdxPolicy {
  if (reportData === undefined) return policy
  if (policy.reportData === 'any') return { ...policy, reportData }
  throw new InputFault(`--report-data: ${file} names reportData, too`, {
    param: 'report-data',
    remedy: 'leave it out in the file ("any"), or here',
  })
}

/**
 * Requires RTMRs. MRTD only measures the firmware, which a cloud gives to every TD. The firmware measures the loader or
 * the kernel into RTMR 1; command line and initrd follow in RTMR 2.
 */
function rtmrPin(policy: TdxPolicy, { anyMeasurement, anyRtmr }: TdxOptions, events: EventInput | null): Check {
  const name = rtmrPinName
  const open = openRtmrs(policy).filter(register => !namesEvents(events, register))
  if (open.length === 0) return pass(name, 'RTMR 1 and 2, named in the policy or event by event')
  if (anyRtmr === true || (anyMeasurement === true && policy.mrTds === 'any')) {
    const flag = anyRtmr === true ? '--any-rtmr' : '--any-measurement'
    return notChecked(name, `accepted any kernel that this firmware starts: you asked with ${flag}`, false)
  }
  const missing = open.join(' and ')
  return fail(name, `no kernel is expected: name ${missing} in the --policy, or accept any with --any-rtmr`)
}
