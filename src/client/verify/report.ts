// strongroom verify report: verifies a saved SNP report with certificates, floors and a policy. Effects: reads files.

import { Option } from 'commander'
import { PRODUCTS, type Product } from '../../attest/amd/product.ts'
import { BUNDLE_LIMITS } from '../../attest/encoding/pem.ts'
import { FIELDS } from '../../attest/report/report.ts'
import type { Check } from '../../attest/verdict.ts'
import { iso, systemClock } from '../../base/clock.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { readInput, readingInput, readOptionalInput } from '../../terminal/input-file.ts'
import { hexOption, timeOption } from '../../terminal/options.ts'
import { verdictDocument } from '../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../terminal/verdict-exit.ts'
import { REPORT_PINS } from '../../verifier/pins.ts'
import { verifySavedReport } from '../../verifier/report.ts'
import { evidenceBytesMax, type ReportEvidence } from '../evidence/evidence.ts'
import { readEvidence } from '../evidence/read.ts'
import { kdsCollateral, printedKdsUrls } from '../kds/kds-collateral.ts'
import { addKdsOptions, type KdsOptions } from '../kds/kds-options.ts'
import { withAdvice } from '../trust/advice.ts'
import { chipListChecks } from '../trust/chip-list.ts'
import { readCrl, requireCrlOf } from '../trust/crl-file.ts'
import { addPinOptions, type PinOptions, readPins, withFlags } from '../trust/pin-options.ts'
import { addPolicyFlags, type PolicyFlags } from '../trust/policy-flags.ts'
import { readPolicy, readRoots, readTable, verboseHelp } from '../trust/trust-options.ts'
import { reportDocument } from '../verdict/report-document.ts'
import { verdictSummary } from '../verdict/summary.ts'

type ReportOptions = PinOptions &
  PolicyFlags &
  KdsOptions & {
    report: string
    vek?: string
    chain?: string
    product?: Product
    crl?: string
    asOf?: number
    policy?: string
    reportData?: Uint8Array
    maskedChipId?: boolean
    certificateTable?: string
    trustSimulatedRoot?: string
    verbose?: boolean
  }

const certificateBytesMax = BUNDLE_LIMITS.bytesMax

export function addVerifyReport(verify: Command): void {
  const command = verify
    .command('report')
    .description('verify an SNP report: signature, certificate chain to AMD, revocation, floors of the TCB and policy')
    .requiredOption(
      '--report <file>',
      'report in any form of `help verify`, such as 1184 bytes, base64 or a bundle; - is stdin',
    )
    .option(
      '--vek <file>',
      'VCEK or VLEK certificate, DER or PEM; a PEM bundle may contain its chain; required unless it is beside the report, or with --fetch',
    )
    .option('--chain <file>', "PEM of ASK or ASVK and ARK; default: AMD's own, which are built in")
    .addOption(
      new Option('--product <name>', 'the expected product; optional, because certificate or report name it').choices(
        PRODUCTS,
      ),
    )
    .option('--crl <file>', "the ARK's revocation list, DER or PEM, from https://kdsintf.amd.com/vcek/v1/{product}/crl")
    .option('--as-of <time>', 'verify for this time in UTC, like 2025-06-01T00:00:00Z; default now', timeOption)
    .option(
      '--policy <file>',
      'JSON as in `verify policy-schema`; default: no debug, no migration and VMPL 0, all else allowed; a measurement is still required (--measurement or --any-measurement)',
    )
    .option(
      '--report-data <hex>',
      'the 64 bytes of REPORT_DATA that the report must carry',
      hexOption(FIELDS.reportData[1]),
    )
    .option('--masked-chip-id', 'accept a platform that hides its chip_id; the VCEK is then not compared with it')
    .option('--certificate-table <file>', "the host's certificate table, for a policy with certificateEntries")
    .option(
      '--trust-simulated-root <file>',
      'PEM of a simulated ARK and ASK, and for VLEKs the ASVK; the verdict is then marked SIMULATED',
    )
    .option('--verbose', verboseHelp)
  addPinOptions(addKdsOptions(addPolicyFlags(command)), REPORT_PINS)
    .examples(
      'strongroom verify report --report report.bin --vek vcek.pem --crl crl.der --policy policy.json',
      'strongroom verify report --report report.bin --vek vlek.pem --crl crl.der --measurement LAUNCH_DIGEST',
      'strongroom verify report --report report.bin --fetch --cache collateral --policy policy.json',
      'base64 report.bin | strongroom verify report --report - --vek vcek.pem --any-measurement --any-crl --verbose',
      'strongroom verify policy-example > policy.json   # then put your measurements into it',
    )
    .runs(verifyReport)
}

async function verifyReport(run: Run, options: ReportOptions): Promise<void> {
  const certificates = (param: string, path: string | undefined) =>
    readOptionalInput({ path, param, bytesMax: certificateBytesMax })
  const asOf = options.asOf ?? systemClock.nowMs()
  const input = readInput({ path: options.report, param: 'report', bytesMax: evidenceBytesMax })
  const evidence = await readingInput(`--report ${options.report}`, () => readEvidence(input))
  const { report } = evidence
  const asked = { report, path: options.report, product: options.product }
  if (await printedKdsUrls(run, asked, options)) return
  const pins = readPins(options)
  const crl = readCrl(options.crl)
  const given = {
    vek: certificates('vek', options.vek) ?? evidence.vek ?? undefined,
    chain: certificates('chain', options.chain) ?? (evidence.chain.length === 0 ? undefined : evidence.chain),
    crl: crl ?? evidence.crl ?? undefined,
  }
  const { downloader, load } = await kdsCollateral(run, asked, { given, options, asOfMs: asOf })
  const policy = await readPolicy(options.policy, pins, options)
  const named = {
    report,
    roots: await readRoots(options.trustSimulatedRoot),
    product: options.product,
    policy,
    pins,
    reportData: options.reportData,
    maskedChipId: options.maskedChipId === true ? ('any' as const) : ('refuse' as const),
    certificateTable: readTable(options.certificateTable) ?? evidence.table ?? undefined,
    asOf,
  }
  const judge = async () => verifySavedReport({ ...named, ...(await load()) })
  const judged = await (downloader?.judged(judge) ?? judge())
  requireCrlOf(judged, options.crl, crl)
  const advised = withAdvice(withFlags(judged.checks), {
    product: judged.product,
    canFetch: true,
    measurement: judged.report?.measurement ?? null,
  })
  const listed = [...advised, ...chipListChecks(policy, asOf)]
  const found = { ...judged, checks: listed.map(check => withContainer(check, evidence)) }
  const { product } = found
  const saved = downloader?.keep(found.checks) ?? {}
  await run.result(
    () => ({
      ...verdictDocument(found),
      as_of: iso(asOf),
      product,
      report: found.report === null ? null : reportDocument(found.report, product),
      ...saved,
    }),
    () => verdictSummary(found, { verbose: options.verbose === true, paint: run.paint }),
  )
  await downloader?.showHints()
  run.exitWith(exitCodeOfVerdict(found))
}

/** Adds to the check of a report from a container how much of the container counts. */
function withContainer(check: Check, { container }: ReportEvidence): Check {
  if (check.name !== 'report-form' || check.outcome !== 'pass' || container === null) return check
  return { ...check, reason: `${check.reason} out of ${container}: it and its certificates count, and nothing else` }
}
