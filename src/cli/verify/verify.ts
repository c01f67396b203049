// strongroom verify: evidence against AMD's roots and a policy. Needs no daemon, no configuration and no root; only `gateway` uses the network.

import { type Command, Option } from 'commander'
import { PRODUCTS, type Product } from '../../attest/amd/product.ts'
import { BUNDLE_LIMITS } from '../../attest/encoding/pem.ts'
import { idAuthBytes, idBlockBytes } from '../../attest/launch/id-block.ts'
import { verifyIdBlock } from '../../attest/launch/id-block-verify.ts'
import { Malformed } from '../../attest/malformed.ts'
import { encodePolicy, strictPolicy } from '../../attest/policy/policy.ts'
import { policySchema } from '../../attest/policy/schema.ts'
import { findReport, hclSizeBytesMax } from '../../attest/report/form.ts'
import { FIELDS } from '../../attest/report/report.ts'
import { type Check, fail, pass, verdict } from '../../attest/verdict.ts'
import { type EvidenceVerdict, verifyEvidence } from '../../attest/verify/evidence.ts'
import { toHex } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { type Cli, helpText, type Run, runOf } from '../cli.ts'
import { EXIT } from '../exit.ts'
import { hexOption, readInput, readOptionalInput, timeOption } from '../input-file.ts'
import { json } from '../render.ts'
import { reportDocument } from '../report-document.ts'
import { verdictDocument, verdictText } from '../verdict-render.ts'
import { addVerifyGateway } from './gateway.ts'
import { addVerifyResponse } from './response.ts'
import { readPolicy, readRoots } from './trust-inputs.ts'

const certificateBytesMax = BUNDLE_LIMITS.bytesMax

export function addVerify(program: Command, cli: Cli): void {
  const verify = program
    .command('verify')
    .description('evidence: report, id-block, gateway, response, policy-schema, policy-example; without daemon')
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
    .description("print a policy to begin with: no debug, no migration, VMPL 0; narrow what says 'any'")
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
      'verify an SNP report: its signature, the chain to AMD, revocation and a policy; a line for each check',
    )
    .requiredOption('--report <file>', 'report: 1184 bytes, or an Azure HCL report with one in it')
    .requiredOption('--vek <file>', 'VCEK or VLEK, DER or PEM; a PEM bundle may bring its chain')
    .option('--chain <file>', "PEM of ASK or ASVK and ARK; without it AMD's own, which are built in")
    .addOption(
      new Option('--product <name>', 'needed for reports of version 2, which do not say; others must agree').choices(
        PRODUCTS,
      ),
    )
    .option('--crl <file>', "the ARK's revocation list, DER or PEM")
    .option('--require-crl', 'fail without a revocation list')
    .option('--as-of <time>', 'verify for this time in UTC, like 2025-06-01T00:00:00Z; default now', timeOption)
    .option(
      '--policy <file>',
      'JSON as in `verify policy-schema`; default: no debug and no migration, all else allowed',
    )
    .option('--report-data <hex>', 'the 64 bytes that the report must carry', hexOption(FIELDS.reportData[1]))
    .option('--masked-chip-id', 'accept a platform that hides its chip_id, so that no VCEK can be tied to it')
    .option('--trust-simulated-root <file>', 'PEM of a simulated ARK, ASK and ASVK; the verdict then says SIMULATED')
    .addHelpText(
      'after',
      helpText(
        'strongroom verify report --report report.bin --vek vcek.der --product milan',
        'strongroom verify report --report report.bin --vek vlek.pem --crl crl.der --as-of 2025-06-01T00:00:00Z',
        'strongroom verify policy-example > policy.json   # then name your measurements in it',
        'strongroom verify report --report report.bin --vek vcek.pem --policy policy.json --json',
      ),
    )
    .action(async (options: ReportOptions, command: Command) => reportOnEvidence(runOf(cli, command), options))
}

async function reportOnEvidence(run: Run, options: ReportOptions): Promise<void> {
  const { form, bytes } = readReport(options.report)
  const certificates = (param: string, path: string | undefined) =>
    readOptionalInput({ path, param, bytesMax: certificateBytesMax })
  const asOf = options.asOf ?? systemClock.nowMs()
  const policy = await readPolicy(options.policy)
  const evidence = await verifyEvidence({
    report: bytes,
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
  const ok = await showEvidence(run, { evidence, form, asOf })
  if (ok && policy.measurements === 'any') {
    await run.hint('remark: no measurement is asked for, so any genuine guest passes; name yours in a --policy')
  }
}

async function showEvidence(
  run: Run,
  { evidence, form, asOf }: { evidence: EvidenceVerdict; form: Check; asOf: number },
): Promise<boolean> {
  const { report, product, simulated } = evidence
  const shown = { ...verdict([form, ...evidence.checks]), simulated }
  const document = {
    ...verdictDocument(shown),
    as_of: iso(asOf),
    product,
    report: report === null ? null : reportDocument(report, product),
  }
  await run.result(document, verdictText(shown, run.paint))
  if (!shown.ok) run.exitWith(EXIT.failed)
  return shown.ok
}

/** What is no report at all is verified as it is, and fails. */
function readReport(path: string): { form: Check; bytes: Uint8Array } {
  const name = 'report-form'
  const whole = readInput({ path, param: 'report', bytesMax: hclSizeBytesMax })
  try {
    const { form, report } = findReport(whole)
    const reason = form === 'plain' ? 'an SNP report' : 'an SNP report inside an Azure HCL report'
    return { form: pass(name, reason), bytes: report }
  } catch (error) {
    if (error instanceof Malformed) return { form: fail(name, error.message), bytes: whole }
    throw error
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
      const { idKeyDigest, authorKeyDigest, ...answer } = await verifyIdBlock({
        idBlock: readInput({ path: options.idBlock, param: 'id-block', bytesMax: idBlockBytes }),
        idAuth: readInput({ path: options.idAuth, param: 'id-auth', bytesMax: idAuthBytes }),
        author: options.requireAuthor === true ? 'required' : 'any',
      })
      const digests = [
        ['id_key_digest', idKeyDigest],
        ['author_key_digest', authorKeyDigest],
      ] as const
      const named = digests.map(([name, bytes]) => [name, bytes === null ? null : toHex(bytes)] as const)
      const lines = named.map(([name, text]) => `${name}: ${text ?? 'none'}\n`).join('')
      await run.result(
        { ...verdictDocument(answer), ...Object.fromEntries(named) },
        lines + verdictText(answer, run.paint),
      )
      if (!answer.ok) run.exitWith(EXIT.failed)
    })
}
