// strongroom verify build: verifies the result of an attested build, offline. Effects: reads files.

import { InvalidArgumentError, Option } from 'commander'
import { type Check, verdict } from '../../../attest/verdict.ts'
import { toHex } from '../../../base/bytes.ts'
import { iso, systemClock } from '../../../base/clock.ts'
import type { LogFact } from '../../../contract/http/log-entry.ts'
import { blockSha256 } from '../../../linux/native-hash.ts'
import { type Command, helpText, type Run } from '../../../terminal/command.ts'
import { type ExitCode, InputFault } from '../../../terminal/exit.ts'
import { pastedHex } from '../../../terminal/hex.ts'
import { timeOption } from '../../../terminal/options.ts'
import { oneLine, type Paint, type ShownVerdict, verdictDocument } from '../../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../../terminal/verdict-exit.ts'
import { type BuildVerdict, verifyBuild } from '../../../verifier/build/build.ts'
import type { AskedRequest, ResultFiles } from '../../../verifier/build/question.ts'
import { pinCheckName, REPORT_PINS } from '../../../verifier/pins.ts'
import { loadClientDefaults } from '../../client-config.ts'
import type { LogJudgement } from '../../log/judge.ts'
import {
  addLogOptions,
  askChipList,
  askLog,
  type LogOptions,
  type LogQuestion,
  logDocument,
  loggedPins,
  readLogOptions,
  withLog,
} from '../../log/options.ts'
import { nativeSha384 } from '../../measure/native.ts'
import { readCrl } from '../../trust/crl-file.ts'
import { addPinOptions, type PinOptions, readPins, withFlags } from '../../trust/pin-options.ts'
import { addPolicyFlags, measurementSources, type PolicyFlags } from '../../trust/policy-flags.ts'
import { addEvidenceOptions, type EvidenceOptions, readPolicy, readRoots } from '../../trust/trust-options.ts'
import { plainVerdict } from '../../verdict/plain.ts'
import { basisLines } from '../../verdict/summary.ts'
import { addRequestOptions, askedBuild, type SourceOptions } from './asked-build.ts'
import { openBootImage, readIgvmFile } from './boot-source.ts'
import { buildWords } from './build-facts.ts'
import { readResult } from './result-source.ts'

/** Options of `verify build`, and of `build submit` for the result. */
export type BuildOptions = PinOptions &
  PolicyFlags &
  EvidenceOptions &
  LogOptions & {
    nonce?: Uint8Array
    anyNonce?: boolean
    igvm?: string
    image?: string
    ownImage?: boolean
    policy?: string
    asOf?: number
  }

export function addVerifyBuild(verify: Command): void {
  const command = verify
    .command('build')
    .description(
      'verify the result of a build: source, VM, hardware and nonce; needs no network except for an online --log',
    )
    .argument('<project>', "the result's directory, or its tar.gz")
    .option('--source <path>', 'the directory or archive that you sent; compared by git tree ID')
    .option('--repository <url>', 'with --commit: the expected repository')
    .option('--nonce <hex>', 'the nonce that you sent with the request, 1 to 16 bytes', buildNonceOption)
    .addOption(new Option('--any-nonce', 'accept any nonce; the result may then be an old one'))
    .option('--igvm <file>', 'IGVM file that the VM was launched from, or the directory of an image with one')
    .option(
      '--image <path>',
      "the builder's image: its directory, as pulled or as built; or root.img beside its cmdline",
    )
    .addOption(ownImageOption())
    .option('--policy <file>', 'JSON as in `verify policy-schema`; it may name the measurements and the operator key')
    .option('--as-of <time>', 'verify for this time in UTC, like 2026-06-01T00:00:00Z; default now', timeOption)
  const asked = addEvidenceOptions(addRequestOptions(addPolicyFlags(command)))
  addLogOptions(addPinOptions(asked, REPORT_PINS))
    .addHelpText(
      'after',
      clientTrustHelp +
        helpText(
          'strongroom verify build ./project --nonce 00112233445566778899aabbccddeeff --source . --igvm builder.igvm --image ./builder-image --own-image',
          'strongroom verify build project.tar.gz --nonce 0011223344556677 --commit COMMIT --policy policy.json',
        ),
    )
    .runs(
      async (run, project: string, options: BuildOptions & SourceOptions) => await verifyResult(run, project, options),
    )
}

/** Option --own-image of `verify build` and `build submit`. */
export function ownImageOption(): Option {
  return new Option(
    '--own-image',
    'the --igvm or --image is your own build, or you have its digest from another source than the service: its measurement is then the expected one',
  )
}

const clientTrustHelp = `
~/.config/strongroom/client.toml gives trust_simulated_root and the log alone: its policy and its image are those of instances.
`

/** Limit on the bytes of a build's nonce. */
export const nonceBytesMax = 16

export function buildNonceOption(text: string): Uint8Array {
  const bytes = pastedHex(text)
  if (bytes !== null && bytes.length >= 1 && bytes.length <= nonceBytesMax) return bytes
  throw new InvalidArgumentError(`It must be 1 to ${nonceBytesMax} bytes in hexadecimal.`)
}

async function verifyResult(run: Run, project: string, options: BuildOptions & SourceOptions): Promise<void> {
  // Read these before the long work on the result, so that a mistake is reported at once.
  const log = await readLogOptions(run, options)
  const asked = (given: SourceOptions) =>
    askedBuild(given, remarks => run.hint(`left out: ${remarks.map(oneLine).join(', ')}`))
  const judged = await judgeResult(run, project, { ...options, logQuestion: log }, asked)
  await run.result(
    () => ({ ...buildDocument(judged), ...logDocument(judged.logged) }),
    () => buildSummary(judged, { argv: run.argv, paint: run.paint, verbose: options.verbose === true }),
  )
  run.exitWith(exitCodeOfBuild(judged))
}

/** Returns the log entry of this build; null if its receipt is unreadable. */
function buildFact({ completion }: BuildVerdict): LogFact | null {
  const statement = completion?.statement ?? null
  if (statement === null) return null
  const { image, keysDigest, provenanceDigest } = statement
  const measurement = toHex(image.measurement)
  return { kind: 'build', measurement, keys: toHex(keysDigest), provenance: toHex(provenanceDigest) }
}

/** Adds the log's checks, in the wording of the command line. */
function shownBuild(
  found: BuildVerdict,
  chips: readonly Check[],
  logged: LogJudgement | null,
  log: LogQuestion | null,
): ShownVerdict {
  const checks = [...withLog(found.checks, logged, log), ...chips]
  const ok = found.ok && verdict(checks).ok
  return { ok, simulated: found.simulated, checks: withFlags(checks).map(withOwnImage) }
}

/** Names --own-image in the reason of a missing measurement. */
function withOwnImage(check: Check): Check {
  const isMissing = check.name === pinCheckName('measurement') && check.outcome === 'fail'
  return isMissing ? { ...check, reason: `${check.reason}; or say --own-image of an --image that is yours` } : check
}

export type JudgedResult = {
  readonly found: BuildVerdict
  readonly shown: ShownVerdict
  /** Files and options that name the expected measurement. */
  readonly sources: readonly string[]
  /** Null if no log was used. */
  readonly logged: LogJudgement | null
  readonly asOf: number
  readonly files: ResultFiles
}

/** Judges a result. Throws Fault invalid_request if a file is unreadable. */
export async function judgeResult<Options extends BuildOptions & { readonly logQuestion: LogQuestion | null }>(
  run: Run,
  project: string,
  options: Options,
  asked: (options: Options) => Promise<AskedRequest>,
): Promise<JudgedResult> {
  const nonce = nonceOf(options)
  const { logQuestion: log } = options
  const pins = readPins(loggedPins(options, log))
  // The other defaults, policy and image, are those of instances.
  const trustRoot = options.trustSimulatedRoot ?? (await loadClientDefaults(run.io.env)).trust_simulated_root
  const question = {
    nonce,
    pins,
    roots: await readRoots(trustRoot),
    policy: await readPolicy(options.policy, pins, options),
    crl: readCrl(options.crl),
    igvm: readIgvmFile(options.igvm),
    request: await asked(options),
    ownImage: options.ownImage === true,
  }
  await using boot = await openBootImage(options.image)
  const files = await readResult(project)
  const asOf = options.asOf ?? systemClock.nowMs()
  const hashes = { sha256: blockSha256(), sha384: nativeSha384 }
  const found = await verifyBuild(files, { ...question, asOf, image: boot.image, hashes })
  // Do not wait for a witness if the result is bad.
  const waiting = log === null || found.ok ? log : { ...log, waitMs: 0 }
  const logged = await askLog(run, buildFact(found), waiting, asOf)
  const chips = await askChipList(question.policy, log, asOf)
  const ownImages = options.ownImage === true ? [options.igvm, options.image] : []
  const sources = [
    ...measurementSources(question.policy, options, options.policy),
    ...new Set(ownImages.filter(path => path !== undefined)),
  ]
  return { found, shown: shownBuild(found, chips, logged, log), sources, logged, asOf, files }
}

function nonceOf({ nonce, anyNonce }: BuildOptions): Uint8Array | 'any' {
  if (nonce !== undefined && anyNonce !== true) return nonce
  if (nonce === undefined && anyNonce === true) return 'any'
  throw new InputFault(nonce === undefined ? '--nonce is missing' : '--nonce and --any-nonce contradict each other', {
    param: 'nonce',
    remedy: 'name the nonce that you sent, or accept any with --any-nonce',
  })
}

/** `argv`: the command line of `verify build` for this result. */
export function buildSummary(
  { found, shown, sources }: Pick<JudgedResult, 'found' | 'shown' | 'sources'>,
  { argv, paint, verbose }: { readonly argv: readonly string[]; readonly paint: Paint; readonly verbose: boolean },
): string {
  const details = detailsOf(found)
  const { firstBroken, slsa } = found
  const plain = buildWords({ found, checks: shown.checks, details, argv, sources })
  const reached = [slsa.build, slsa.buildEnvironment].filter(text => text !== null)
  const lines = [
    ...(firstBroken === null ? [] : [`first broken link: ${firstBroken}`]),
    `SLSA: ${reached.length === 0 ? 'no level' : reached.join(', ')}`,
    ...slsa.missing.map(text => `  missing: ${text}`),
  ]
  const sorting = { details: everyCheck(found) }
  const text = plainVerdict(shown, plain, { verbose, details, sorting, paint })
  return text + lines.map(line => `${line}\n`).join('')
}

/** Returns every check of the last report under its own name. */
function detailsOf({ completion, report }: BuildVerdict): readonly Check[] {
  return completion?.checks ?? report?.details ?? []
}

export function exitCodeOfBuild({ found, shown }: Pick<JudgedResult, 'found' | 'shown'>): ExitCode {
  return exitCodeOfVerdict(shown, { details: everyCheck(found) })
}

function everyCheck({ dispatch, completion, report }: BuildVerdict): readonly Check[] {
  return [...(dispatch?.checks ?? []), ...(completion?.checks ?? []), ...(report?.details ?? [])]
}

export function buildDocument({ found, shown, asOf }: Pick<JudgedResult, 'found' | 'shown' | 'asOf'>) {
  const { provenance, dispatch, completion, report, slsa } = found
  const statement = completion?.statement ?? null
  const measurement = completion?.report?.measurement ?? report?.report?.measurement ?? null
  return {
    ...verdictDocument(shown, { details: everyCheck(found) }),
    rests_on: shown.ok ? basisLines(detailsOf(found)) : [],
    as_of: iso(asOf),
    first_broken: found.firstBroken,
    slsa: { build: slsa.build, build_environment: slsa.buildEnvironment, missing: slsa.missing },
    measurement: measurement === null ? null : toHex(measurement),
    operator_key: statement === null ? null : toHex(statement.operatorKey),
    tpm: report?.tpm ?? null,
    order: found.order,
    provenance: provenance === null ? null : provenanceDocument(provenance),
    receipts: {
      dispatch: dispatch === null ? null : verdictDocument(dispatch),
      completion: completion === null ? null : verdictDocument(completion),
    },
    report: report === null ? null : verdictDocument(report),
  }
}

function provenanceDocument({ predicate, subject }: NonNullable<BuildVerdict['provenance']>) {
  const { buildDefinition, runDetails } = predicate
  const { source, buildCommand } = buildDefinition.externalParameters
  return {
    build_type: buildDefinition.buildType,
    build_command: buildCommand,
    builder: runDetails.builder.id,
    job_id: runDetails.metadata.invocationId,
    started: runDetails.metadata.startedOn,
    finished: runDetails.metadata.finishedOn,
    source: { uri: source.uri, git_commit: source.digest.gitCommit, git_tree: source.digest.gitTree },
    artifacts: subject.map(({ name, digest }) => ({ name, digest })),
  }
}
