// strongroom verify report: a saved SNP report against certificates, floors and a policy. Effects: reads files.

import { Option } from 'commander'
import { PRODUCTS, type Product } from '../../attest/amd/product.ts'
import { BUNDLE_LIMITS } from '../../attest/encoding/pem.ts'
import { certificateTableBytesMax } from '../../attest/report/certificate-table.ts'
import { hclSizeBytesMax } from '../../attest/report/form.ts'
import { FIELDS } from '../../attest/report/report.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { REPORT_PINS } from '../../verifier/pins.ts'
import { verifySavedReport } from '../../verifier/report.ts'
import type { Command, Run } from '../cli.ts'
import { readInput, readOptionalInput } from '../input-file.ts'
import { hexOption, timeOption } from '../options.ts'
import { verdictDocument } from '../render.ts'
import { exitCodeOfVerdict } from './failure.ts'
import { addPinOptions, type PinOptions, readPins, withFlags } from './pin-options.ts'
import { reportDocument } from './report-document.ts'
import { verdictSummary } from './summary.ts'
import { readPolicy, readRoots, verboseHelp } from './trust-options.ts'

type ReportOptions = PinOptions & {
  report: string
  vek: string
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
    .requiredOption('--report <file>', 'report: 1184 bytes, or an Azure HCL report that contains one')
    .requiredOption('--vek <file>', 'VCEK or VLEK certificate, DER or PEM; a PEM bundle may contain its chain')
    .option('--chain <file>', "PEM of ASK or ASVK and ARK; default: AMD's own, which are built in")
    .addOption(
      new Option(
        '--product <name>',
        'the product that it must be; never needed, because certificate or report name it',
      ).choices(PRODUCTS),
    )
    .option('--crl <file>', "the ARK's revocation list, DER or PEM, from https://kdsintf.amd.com/vcek/v1/{product}/crl")
    .option('--as-of <time>', 'verify for this time in UTC, like 2025-06-01T00:00:00Z; default now', timeOption)
    .option(
      '--policy <file>',
      'JSON as in `verify policy-schema`; default: no debug, no migration and VMPL 0, all else allowed',
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
      'PEM of a simulated ARK and ASK, and for VLEKs the ASVK; the verdict then says SIMULATED',
    )
    .option('--verbose', verboseHelp)
  addPinOptions(command, REPORT_PINS)
    .examples(
      'strongroom verify report --report report.bin --vek vcek.pem --crl crl.der --policy policy.json',
      'strongroom verify report --report report.bin --vek vlek.pem --crl crl.der --any-measurement --verbose',
      'strongroom verify policy-example > policy.json   # then put your measurements into it',
    )
    .runs(verifyReport)
}

async function verifyReport(run: Run, options: ReportOptions): Promise<void> {
  const certificates = (param: string, path: string | undefined) =>
    readOptionalInput({ path, param, bytesMax: certificateBytesMax })
  const asOf = options.asOf ?? systemClock.nowMs()
  const pins = readPins(options)
  const judged = await verifySavedReport({
    report: readInput({ path: options.report, param: 'report', bytesMax: hclSizeBytesMax }),
    vek: readInput({ path: options.vek, param: 'vek', bytesMax: certificateBytesMax }),
    chain: certificates('chain', options.chain),
    crl: certificates('crl', options.crl),
    roots: await readRoots(options.trustSimulatedRoot),
    product: options.product,
    policy: await readPolicy(options.policy, pins),
    pins,
    reportData: options.reportData,
    maskedChipId: options.maskedChipId === true ? 'any' : 'refuse',
    certificateTable: readOptionalInput({
      path: options.certificateTable,
      param: 'certificate-table',
      bytesMax: certificateTableBytesMax,
    }),
    asOf,
  })
  const found = { ...judged, checks: withFlags(judged.checks) }
  const { report, product } = found
  await run.result(
    {
      ...verdictDocument(found),
      as_of: iso(asOf),
      product,
      report: report === null ? null : reportDocument(report, product),
    },
    verdictSummary(found, { verbose: options.verbose === true, paint: run.paint }),
  )
  run.exitWith(exitCodeOfVerdict(found))
}
