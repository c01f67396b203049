// strongroom verify: evidence against AMD's roots and a policy. Needs no daemon, no configuration and no root; only `gateway` uses the network.

import { type Command, Option } from 'commander'
import { PRODUCTS, type Product } from '../../attest/amd/product.ts'
import { BUNDLE_LIMITS } from '../../attest/encoding/pem.ts'
import { idAuthBytes, idBlockBytes } from '../../attest/launch/id-block.ts'
import { verifyIdBlock } from '../../attest/launch/id-block-verify.ts'
import { encodePolicy, strictPolicy } from '../../attest/policy/policy.ts'
import { policySchema } from '../../attest/policy/schema.ts'
import { hclSizeBytesMax } from '../../attest/report/form.ts'
import { FIELDS } from '../../attest/report/report.ts'
import { toHex } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { verifySavedReport } from '../../verifier/report.ts'
import { type Cli, helpText, type Run, runOf } from '../cli.ts'
import { EXIT } from '../exit.ts'
import { readInput, readOptionalInput } from '../input-file.ts'
import { hexOption, timeOption } from '../options.ts'
import { json, verdictDocument, verdictText } from '../render.ts'
import { addVerifyGateway } from './gateway.ts'
import { reportDocument } from './report-document.ts'
import { addVerifyResponse } from './response.ts'
import { readPolicy, readRoots } from './trust-options.ts'

const certificateBytesMax = BUNDLE_LIMITS.bytesMax

export function addVerify(program: Command, cli: Cli): void {
  const verify = program
    .command('verify')
    .description('verify evidence: report, id-block, gateway, response, policy-schema, policy-example; needs no daemon')
    .addHelpText('after', helpText('strongroom verify report --report report.bin --vek vcek.pem --policy policy.json'))

  addReport(verify, cli)
  addIdBlock(verify, cli)
  addVerifyGateway(verify, cli)
  addVerifyResponse(verify, cli)

  verify
    .command('policy-schema')
    .description('print the JSON schema (2020-12) of the file that --policy takes')
    .addHelpText('after', helpText('strongroom verify policy-schema > policy.schema.json'))
    .action(async (_options: unknown, command: Command) => {
      await runOf(cli, command).result(policySchema, json(policySchema))
    })

  verify
    .command('policy-example')
    .description("print a policy to start from: no debug, no migration, VMPL 0; replace each 'any' that you can")
    .addHelpText('after', helpText('strongroom verify policy-example > policy.json'))
    .action(async (_options: unknown, command: Command) => {
      const policy = encodePolicy(strictPolicy())
      await runOf(cli, command).result(policy, json(policy))
    })
}

type ReportOptions = {
  report: string
  vek: string
  chain?: string
  product?: Product
  crl?: string
  requireCrl?: boolean
  asOf?: number
  policy?: string
  reportData?: Uint8Array
  maskedChipId?: boolean
  trustSimulatedRoot?: string
}

function addReport(verify: Command, cli: Cli): void {
  verify
    .command('report')
    .description(
      'verify an SNP report: signature, certificate chain to AMD, revocation and policy; prints a line for each check',
    )
    .requiredOption('--report <file>', 'report: 1184 bytes, or an Azure HCL report that contains one')
    .requiredOption('--vek <file>', 'VCEK or VLEK certificate, DER or PEM; a PEM bundle may contain its chain')
    .option('--chain <file>', "PEM of ASK or ASVK and ARK; default: AMD's own, which are built in")
    .addOption(
      new Option(
        '--product <name>',
        'required for reports of version 2, which do not name it; for others it must match',
      ).choices(PRODUCTS),
    )
    .option('--crl <file>', "the ARK's revocation list, DER or PEM")
    .option('--require-crl', 'fail without a revocation list')
    .option('--as-of <time>', 'verify for this time in UTC, like 2025-06-01T00:00:00Z; default now', timeOption)
    .option(
      '--policy <file>',
      'JSON as in `verify policy-schema`; default: no debug and no migration, all else allowed',
    )
    .option(
      '--report-data <hex>',
      'the 64 bytes of REPORT_DATA that the report must carry',
      hexOption(FIELDS.reportData[1]),
    )
    .option('--masked-chip-id', 'accept a platform that hides its chip_id; the VCEK is then not compared with it')
    .option('--trust-simulated-root <file>', 'PEM of a simulated ARK, ASK and ASVK; the verdict then says SIMULATED')
    .addHelpText(
      'after',
      helpText(
        'strongroom verify report --report report.bin --vek vcek.der --product milan',
        'strongroom verify report --report report.bin --vek vlek.pem --crl crl.der --as-of 2025-06-01T00:00:00Z',
        'strongroom verify policy-example > policy.json   # then put your measurements into it',
        'strongroom verify report --report report.bin --vek vcek.pem --policy policy.json --json',
      ),
    )
    .action(async (options: ReportOptions, command: Command) => verifyReport(runOf(cli, command), options))
}

async function verifyReport(run: Run, options: ReportOptions): Promise<void> {
  const certificates = (param: string, path: string | undefined) =>
    readOptionalInput({ path, param, bytesMax: certificateBytesMax })
  const asOf = options.asOf ?? systemClock.nowMs()
  const policy = await readPolicy(options.policy)
  const found = await verifySavedReport({
    report: readInput({ path: options.report, param: 'report', bytesMax: hclSizeBytesMax }),
    vek: readInput({ path: options.vek, param: 'vek', bytesMax: certificateBytesMax }),
    chain: certificates('chain', options.chain),
    crl: certificates('crl', options.crl),
    roots: await readRoots(options.trustSimulatedRoot),
    product: options.product,
    policy,
    reportData: options.reportData,
    requireCrl: options.requireCrl === true,
    maskedChipId: options.maskedChipId === true ? 'any' : 'refuse',
    asOf,
  })
  const { report, product } = found
  await run.result(
    {
      ...verdictDocument(found),
      as_of: iso(asOf),
      product,
      report: report === null ? null : reportDocument(report, product),
    },
    verdictText(found, run.paint),
  )
  if (!found.ok) run.exitWith(EXIT.failed)
  else if (policy.measurements === 'any') {
    await run.hint('remark: no measurement is expected, so every genuine guest passes; name yours in a --policy')
  }
}

type IdBlockOptions = { idBlock: string; idAuth: string; requireAuthor?: boolean }

function addIdBlock(verify: Command, cli: Cli): void {
  verify
    .command('id-block')
    .description('verify who signed an ID block, and print the key digests that a report of its launch will carry')
    .requiredOption('--id-block <file>', `ID block, ${idBlockBytes} bytes`)
    .requiredOption('--id-auth <file>', `ID authentication, ${idAuthBytes} bytes`)
    .option('--require-author', 'fail without a signature of an author')
    .addHelpText('after', helpText('strongroom verify id-block --id-block id-block.bin --id-auth id-auth.bin'))
    .action(async (options: IdBlockOptions, command: Command) => {
      const run = runOf(cli, command)
      const found = await verifyIdBlock({
        idBlock: readInput({ path: options.idBlock, param: 'id-block', bytesMax: idBlockBytes }),
        idAuth: readInput({ path: options.idAuth, param: 'id-auth', bytesMax: idAuthBytes }),
        author: options.requireAuthor === true ? 'required' : 'any',
      })
      const hexOrNull = (bytes: Uint8Array | null) => (bytes === null ? null : toHex(bytes))
      const digests = {
        id_key_digest: hexOrNull(found.idKeyDigest),
        author_key_digest: hexOrNull(found.authorKeyDigest),
      }
      const lines = Object.entries(digests).map(([name, digest]) => `${name}: ${digest ?? 'none'}\n`)
      await run.result({ ...verdictDocument(found), ...digests }, lines.join('') + verdictText(found, run.paint))
      if (!found.ok) run.exitWith(EXIT.failed)
    })
}
