// strongroom build: sends source to service C, follows the build, and verifies the result. Effects: the network, files.

import { mkdirSync, renameSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { Option } from 'commander'
import { toHex } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import { StageTimes } from '../../contract/http/build-stages.ts'
import { fieldsOfOptions } from '../../contract/http/option-words.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { EXIT, InputFault } from '../../terminal/exit.ts'
import { isDirectory, KIB, MIB, readTextInput } from '../../terminal/input-file.ts'
import { countOption, plainUrl, timeOption, urlOption } from '../../terminal/options.ts'
import { createProgress, type Progress } from '../../terminal/progress.ts'
import { bytesText, oneLine, paintFor, wantsColour } from '../../terminal/render.ts'
import type { AskedRequest, AskedSource } from '../../verifier/build/question.ts'
import { REPORT_PINS } from '../../verifier/pins.ts'
import { clientConfigHelp, loadClientDefaults } from '../client-config.ts'
import { addLogOptions, type LogQuestion, logDocument, readLogOptions } from '../log/options.ts'
import { refuseKeys, takesResults } from '../source/own-files.ts'
import { listSource, resultsDirectory } from '../source/source-files.ts'
import { isArchiveFile, packFiles, readArchive, refuseInclude, unpackPacked } from '../source/source-tree.ts'
import { addPinOptions } from '../trust/pin-options.ts'
import { addEvidenceOptions } from '../trust/trust-options.ts'
import { addRequestOptions, askedFields, isCommit, type RequestOptions } from '../verify/build/asked-build.ts'
import {
  type BuildOptions,
  buildDocument,
  buildNonceOption,
  buildSummary,
  exitCodeOfBuild,
  judgeResult,
  nonceBytesMax,
  ownImageOption,
} from '../verify/build/build.ts'
import { readApiKey } from '../verify/instance-source.ts'
import { BuildClient } from './client.ts'
import { findLacking, lackingText, refuseLacking } from './lacking.ts'
import { unpackResult } from './unpack.ts'
import { verifyBuildArgv } from './verify-argv.ts'

type SubmitOptions = BuildOptions &
  RequestOptions & {
    api?: URL
    keyFile?: string
    ca?: string
    nonce?: Uint8Array
    output: string
    downloadMib: number
    logWait: number
  }

/** How long to wait for the log to show an entry: only after a witness has cosigned it, seconds after the build. */
const logWaitSeconds = 60

const apiEnv = 'STRONGROOM_BUILDS_API'

export function addBuild(program: Command): void {
  const build = program
    .command('build')
    .description('attested builds: submit')
    .examples('strongroom build submit . --api https://builds.example:8443')
  const submit = build
    .command('submit')
    .description('build a directory, an archive or a git repository in a confidential VM, and verify the result')
    .argument('<source>', 'a directory, an archive file, or the https address of a git repository')
    .option('--api <url>', `address of service C, https://HOST:PORT (env ${apiEnv})`, urlOption)
    .option(
      '--key-file <file>',
      'file with an API key of your organization (env STRONGROOM_API_KEY has the key itself)',
    )
    .option('--ca <file>', "PEM of the authority that issued service C's certificate")
    .option('--nonce <hex>', '1 to 16 bytes, new for each build; default: random', buildNonceOption)
    .option(
      '--output <dir>',
      'directory for the result: its archive, and its files after verification',
      resultsDirectory,
    )
    .addOption(
      new Option('--download-mib <count>', 'largest accepted result archive')
        .default(4096)
        .argParser(countOption(1, 1_048_576)),
    )
    .option('--igvm <file>', 'for the verification: the IGVM file of the VM')
    .option('--image <path>', "for the verification: the builder's image")
    .addOption(ownImageOption())
    .option('--policy <file>', 'for the verification: JSON as in `verify policy-schema`')
    .addOption(new Option('--as-of <time>', 'for the verification: its time').argParser(timeOption).hideHelp())
  addLogOptions(addPinOptions(addEvidenceOptions(addRequestOptions(submit)), REPORT_PINS))
    .option(
      '--log-wait <seconds>',
      'longest wait for a witness to cosign the build; the log does not show it before',
      countOption(0, 3_600),
      logWaitSeconds,
    )
    .addHelpText(
      'after',
      `${clientConfigHelp}
This command takes builds, key_file, ca, trust_simulated_root and the fields of the log from there: policy, image and
the other fields are those of instances.
Of a directory, .git, target, result, ${resultsDirectory} and what .gitignore names are left out; --include sends a part
of that, too. Files of initialised submodules are sent. What a manifest needs and is left out is named before anything is
sent, and a file that holds an API key stops it. An archive (tar.gz, tar.xz, tar.zst, tar, zip) is sent as it is; the
build leaves out .git and the files that macOS adds.
Ctrl-C cancels the build on the server.
The result must be built of exactly this source, by its git tree id, or of the --commit of the repository; --ref may be that commit.
A result that is not good is not unpacked: its archive stays as JOB.unverified.tar.gz.
${helpText(
  'strongroom build submit . --api https://builds.example:8443 --policy policy.json',
  'strongroom build submit https://git.example/acme/tool.git --ref v1.2.0 --commit COMMIT --output ./out',
)}`,
    )
    .runs(submitBuild)
}

type Ended =
  | { readonly ok: true; readonly archive: string; readonly sha256: string }
  | { readonly ok: false; readonly errorType: string; readonly error: string }

async function submitBuild(run: Run, source: string, options: SubmitOptions): Promise<void> {
  const { io } = run
  // Read these before sending anything, so that a mistake costs no build.
  const log = await readLogOptions(run, options)
  const nonce = options.nonce ?? systemRandom(nonceBytesMax)
  const client = await clientOf(run, options)
  const output = resolve(options.output)
  mkdirSync(output, { recursive: true })
  const paint = paintFor(wantsColour({ isTerminal: io.stderrIsTerminal, env: io.env }))
  const progress = createProgress({ io, paint, isQuiet: run.json, monotonicMs: systemClock.monotonicMs })
  const stopping = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) io.onSignal(signal, () => stopping.abort())
  let jobId: string | null = null
  let ended: Ended
  const stages = new StageTimes()
  let asked: AskedRequest
  try {
    const sent = await requestOf(source, options, { nonce, progress, run })
    asked = sent.asked
    jobId = await client.submit(sent.body, stopping.signal)
    await run.hint(`job ${jobId}, nonce ${toHex(nonce)}`)
    const bytesMax = options.downloadMib * MIB
    ended = await followBuild(client, jobId, { output, progress, stages, bytesMax, signal: stopping.signal })
  } catch (error) {
    await progress.stop()
    if (!stopping.signal.aborted) throw error
    await cancelBuild(run, client, jobId)
    return
  }
  await progress.stop()
  await report(run, { source, jobId, nonce, ended, stages, options, log, asked, output })
}

/** Returns a client with address and key from the options, the environment, or client.toml. */
async function clientOf({ io }: Run, options: SubmitOptions): Promise<BuildClient> {
  const defaults = await loadClientDefaults(io.env)
  const text = io.env[apiEnv] || defaults.builds
  const api = options.api ?? (text === undefined ? null : plainUrl(text))
  if (api === null) {
    const message =
      text === undefined ? 'the address of service C is not known' : `${oneLine(text)} is not https://HOST:PORT`
    throw new InputFault(message, { param: 'api', remedy: `name it by --api, ${apiEnv}, or builds in client.toml` })
  }
  const hasKey = (options.keyFile ?? io.env.STRONGROOM_API_KEY ?? defaults.key_file ?? '') !== ''
  const key = hasKey ? readApiKey(options.keyFile, io.env, defaults.key_file).text : null
  const caFile = options.ca ?? defaults.ca
  const ca = caFile === undefined ? undefined : readTextInput({ path: caFile, param: 'ca', bytesMax: 64 * KIB })
  return new BuildClient({ api, key, ca, clock: systemClock })
}

const lfsNamedMax = 8

/** The body of the request, and the request with which the result is compared. */
type SubmitRequest = { readonly asked: AskedRequest; readonly body: object }

async function requestOf(
  source: string,
  options: SubmitOptions,
  { nonce, progress, run }: { readonly nonce: Uint8Array; readonly progress: Progress; readonly run: Run },
): Promise<SubmitRequest> {
  const fields = askedFields(options)
  const common = {
    nonce: toHex(nonce),
    project_dir: options.projectDir ?? null,
    toolchain: fields.toolchain,
    reproduce: fields.reproduce,
    ...fieldsOfOptions(fields.options),
    allow_lfs_pointers: fields.lfsPointers === 'any' ? true : null,
    any_toolchain: fields.compiler === 'any' ? true : null,
    fetch_ca_sha256: fields.fetchCaSha256,
    crates_mirror: fields.cratesMirror,
  }
  if (/^[a-z+]+:\/\//.test(source)) {
    refuseInclude(options.include ?? [])
    const ref = options.ref ?? null
    const asked = { ...fields, sourceName: null, source: askedCommit(source, options) }
    return { asked, body: { ...common, repo_url: source, repo_ref: ref } }
  }
  const [param] = (['ref', 'commit'] as const).filter(name => options[name] !== undefined)
  if (param !== undefined) {
    throw new InputFault(`--${param} is for a git repository`, {
      param,
      remedy: 'leave it out, or name the repository',
    })
  }
  const packed = isDirectory(source)
    ? await packProject(source, options, { progress, run })
    : readSource(source, options.include ?? [])
  // Inspect the archive that is sent, not the directory, which another program may change in the meantime.
  const { tree, fileCount, leftOut, lfsPointers } = await unpackPacked(packed.bytes, 'source', fields.projectDir)
  if (fields.lfsPointers === 'none' && lfsPointers.length > 0) {
    const named = lfsPointers.slice(0, lfsNamedMax).map(oneLine).join(', ')
    throw new InputFault(`${source} has Git LFS pointers without their content, ${lfsPointers.length}: ${named}`, {
      param: 'source',
      remedy: 'run `git lfs pull`, or accept them by --allow-lfs-pointers',
    })
  }
  await progress.phase('send', `${fileCount} files, ${bytesText(packed.bytes.length)}, git tree ${tree.sha1}`)
  const remarks = [...packed.leftOut, ...leftOut].map(oneLine)
  if (remarks.length > 0) await run.hint(`left out: ${remarks.join(', ')}`)
  const { sourceName } = packed
  return {
    asked: { ...fields, sourceName, source: options.anySource === true ? 'any' : tree },
    body: { ...common, source_data: Buffer.from(packed.bytes).toString('base64'), source_name: sourceName },
  }
}

/** An archive to send, and the files left out of it. */
type SourceArchive = { readonly bytes: Uint8Array; readonly sourceName: string; readonly leftOut: readonly string[] }

/** Packs a project. Fault invalid_request if a file that the build needs is left out. */
async function packProject(
  directory: string,
  { include = [], projectDir, goProxy, output }: SubmitOptions,
  { progress, run }: { readonly progress: Progress; readonly run: Run },
): Promise<SourceArchive> {
  await progress.phase('pack', directory)
  const files = await listSource(directory, include)
  refuseKeys(directory, files.paths)
  const lacking = findLacking(directory, files.paths, projectDir ?? null, { hasGoProxy: goProxy !== undefined })
  refuseLacking(lacking)
  if (lacking.length > 0) await run.hint(`left out, though named: ${lackingText(lacking)}`)
  if (takesResults(directory, output)) {
    await run.hint(`${oneLine(output)} is part of the source from the next build on, unless .gitignore names it`)
  }
  const { bytes, leftOut } = await packFiles(directory, files)
  return { bytes, leftOut, sourceName: `${basename(resolve(directory))}.tar.gz` }
}

/** Reads an archive file, which is sent unchanged. Fault invalid_request. */
function readSource(path: string, include: readonly string[]): SourceArchive {
  if (!isArchiveFile(path)) {
    throw new InputFault(`${path} is no directory, no archive file, and no address of a git repository`, {
      param: 'source',
      remedy: 'name a directory, a tar.gz, tar.xz, tar.zst, tar or zip, or an https address',
    })
  }
  refuseInclude(include)
  return { bytes: readArchive(path), leftOut: [], sourceName: basename(path) }
}

/** Returns the requested commit. A branch or tag is not one, because its server decides where it points. */
function askedCommit(url: string, { commit, ref, anySource }: SubmitOptions): AskedSource | 'any' {
  if (anySource === true && commit === undefined) return 'any'
  const known = commit ?? (ref !== undefined && isCommit(ref) ? ref.toLowerCase() : undefined)
  if (known !== undefined && anySource !== true) return { kind: 'commit', commit: known, url, ref: ref ?? null }
  const message =
    anySource === true
      ? '--commit and --any-source contradict each other'
      : 'no commit is named: the server decides where a branch or tag points'
  throw new InputFault(message, {
    param: 'commit',
    remedy: `name the commit by --commit (\`git ls-remote ${oneLine(url)} ${oneLine(ref ?? 'HEAD')}\`), or accept any with --any-source`,
  })
}

type Following = {
  readonly output: string
  readonly progress: Progress
  readonly stages: StageTimes
  readonly bytesMax: number
  readonly signal: AbortSignal
}

async function followBuild(
  client: BuildClient,
  jobId: string,
  { output, progress, stages, bytesMax, signal }: Following,
): Promise<Ended> {
  for await (const { data } of client.events(jobId, signal)) {
    stages.note(data.type, systemClock.monotonicMs())
    await progress.show(data)
    if (data.type !== 'complete') continue
    if (data.result.status === 'failed')
      return { ok: false, errorType: data.result.error_type, error: data.result.error }
  }
  await progress.phase('download', jobId)
  const archive = join(output, `${jobId}.unverified.tar.gz`)
  const sha256 = await client.download(jobId, archive, { bytesMax, signal })
  return { ok: true, archive, sha256 }
}

type KeptResult = { readonly archive: string; readonly directory: string }

async function keepResult(
  unverified: string,
  { output, jobId, digests }: { output: string; jobId: string; digests: ReadonlyMap<string, string> },
): Promise<KeptResult> {
  const directory = await unpackResult(unverified, { output, jobId, digests })
  const archive = join(output, `${jobId}.tar.gz`)
  renameSync(unverified, archive)
  return { archive, directory }
}

async function cancelBuild(run: Run, client: BuildClient, jobId: string | null): Promise<void> {
  const outcome =
    jobId === null
      ? 'nothing was submitted, as far as is known'
      : await client.cancel(jobId).then(
          () => `build ${jobId} was cancelled`,
          error => `build ${jobId} could not be cancelled: ${messageOf(error)}`,
        )
  await run.result({ job_id: jobId, state: 'cancelled', outcome }, '')
  await run.hint(outcome)
  run.exitWith(EXIT.failed)
}

type BuildReport = {
  readonly source: string
  readonly jobId: string
  readonly nonce: Uint8Array
  readonly ended: Ended
  readonly stages: StageTimes
  readonly options: SubmitOptions
  readonly log: LogQuestion | null
  readonly asked: AskedRequest
  readonly output: string
}

async function report(run: Run, reported: BuildReport): Promise<void> {
  const { source, jobId, nonce, ended, options, log, asked, output } = reported
  const stages = reported.stages.list().map(({ stage, ms }) => ({ stage, seconds: Math.round(ms / 100) / 10 }))
  const common = { job_id: jobId, nonce: toHex(nonce), stages }
  if (!ended.ok) {
    const { errorType: error_type, error } = ended
    const text = `${run.paint.bad('build failed')}: ${error_type}\n${error.split('\n').map(oneLine).join('\n')}\n`
    await run.result({ ...common, state: 'failed', error_type, error }, text)
    run.exitWith(EXIT.failed)
    return
  }
  const { sha256 } = ended
  const asking = { ...options, nonce, logQuestion: log === null ? null : { ...log, waitMs: options.logWait * 1000 } }
  const judged = await judgeResult(run, ended.archive, asking, async () => asked)
  const { shown, logged, files } = judged
  // Write executable files only after the verdict, and only those that it covers.
  const kept = shown.ok ? await keepResult(ended.archive, { output, jobId, digests: files.digests }) : null
  const archive = kept?.archive ?? ended.archive
  const directory = kept?.directory ?? null
  const verification = { ...buildDocument(judged), ...logDocument(logged) }
  const result = directory ?? 'not unpacked, for the verdict is not good'
  const argv = verifyBuildArgv(run.argv, { source, asked, nonce: toHex(nonce), archive })
  const summary = buildSummary(judged, { argv, paint: run.paint, verbose: options.verbose === true })
  const text = `${summary}result: ${result}\narchive: ${archive}\n`
  await run.result({ ...common, state: 'ok', archive, directory, sha256, verification }, text)
  run.exitWith(exitCodeOfBuild(judged))
}
