// strongroom build: sends source to service C, follows the build, fetches the result and verifies it. Effects: the network, files.

import { existsSync, mkdirSync, statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { fromHex, toHex } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import { TOOLCHAINS } from '../../contract/build.ts'
import { REPORT_PINS } from '../../verifier/pins.ts'
import { type Cli, helpText, type Run, runOf } from '../cli.ts'
import { clientConfigHelp, loadClientDefaults } from '../client-config.ts'
import { EXIT, InputFault } from '../exit.ts'
import { KIB, MIB, readTextInput } from '../input-file.ts'
import { plainUrl, timeOption, urlOption } from '../options.ts'
import { bytesText, oneLine, paintFor, type ShownVerdict, wantsColour } from '../render.ts'
import { type BuildOptions, buildDocument, buildSummary, judgeResult } from '../verify/build.ts'
import { readApiKey } from '../verify/instance-source.ts'
import { addPinOptions, withFlags } from '../verify/pin-options.ts'
import { addEvidenceOptions } from '../verify/trust-options.ts'
import { BuildClient } from './client.ts'
import { packSource } from './pack.ts'
import { createProgress, type Progress } from './progress.ts'
import { listSource } from './source-files.ts'
import { unpackResult } from './unpack.ts'

type SubmitOptions = BuildOptions & {
  api?: URL
  keyFile?: string
  ca?: string
  nonce?: Uint8Array
  ref?: string
  projectDir?: string
  toolchain?: string
  reproduce?: boolean
  output: string
}

const nonceBytes = 16
/** Larger sources are for git, or for a service that says so itself. */
const archiveBytesMax = 1024 * MIB
const apiEnv = 'STRONGROOM_BUILDS_API'

export function addBuild(program: Command, cli: Cli): void {
  const build = program
    .command('build')
    .description('attested builds: submit')
    .addHelpText('after', helpText('strongroom build submit . --api https://builds.example:8443'))
  const submit = build
    .command('submit')
    .description('build a directory or a git repository in a confidential VM, fetch the result and verify it')
    .argument('<source>', 'a directory, or the https address of a git repository')
    .option('--api <url>', `address of service C, https://HOST:PORT (env ${apiEnv})`, urlOption)
    .option(
      '--key-file <file>',
      'file with an API key of your organization (env STRONGROOM_API_KEY has the key itself)',
    )
    .option('--ca <file>', "PEM of the authority that issued service C's certificate")
    .option('--nonce <hex>', '1 to 16 bytes, new for each build; drawn unless given', submitNonceOption)
    .option('--ref <name>', 'branch, tag or commit of a git repository')
    .option('--project-dir <path>', 'directory within the source; its root unless given')
    .addOption(new Option('--toolchain <name>', 'detected unless given').choices([...TOOLCHAINS]))
    .option('--reproduce', 'build twice and compare each artifact')
    .option('--output <dir>', 'where the result goes, as an archive and unpacked', '.')
    .option('--igvm <file>', 'for the verification: IGVM file that the VM is to be launched from')
    .option('--image <path>', "for the verification: the builder's image")
    .option('--policy <file>', 'for the verification: JSON as in `verify policy-schema`')
    .addOption(new Option('--as-of <time>', 'for the verification: its time').argParser(timeOption).hideHelp())
  addPinOptions(addEvidenceOptions(submit), REPORT_PINS)
    .addHelpText(
      'after',
      `${clientConfigHelp}
Of a directory, .git, target, result and what .gitignore names are left out. Ctrl-C cancels the build on the server.
${helpText(
  'strongroom build submit . --api https://builds.example:8443 --policy policy.json',
  'strongroom build submit https://git.example/acme/tool.git --ref v1.2.0 --output ./out',
)}`,
    )
    .action(async (source: string, options: SubmitOptions, one: Command) => {
      await submitBuild(runOf(cli, one), source, options)
    })
}

function submitNonceOption(text: string): Uint8Array {
  const bytes = fromHex(text)
  if (bytes !== null && bytes.length >= 1 && bytes.length <= nonceBytes) return bytes
  throw new InvalidArgumentError(`It must be 1 to ${nonceBytes} bytes in hexadecimal.`)
}

type Ended =
  | { readonly ok: true; readonly archive: string; readonly directory: string; readonly sha256: string }
  | { readonly ok: false; readonly errorType: string; readonly error: string }

async function submitBuild(run: Run, source: string, options: SubmitOptions): Promise<void> {
  const { io } = run
  const nonce = options.nonce ?? systemRandom(nonceBytes)
  const client = clientOf(run, options)
  const output = resolve(options.output)
  mkdirSync(output, { recursive: true })
  const paint = paintFor(wantsColour({ isTerminal: io.stderrIsTerminal, env: io.env }))
  const progress = createProgress({ io, paint, isQuiet: run.json, monotonicMs: systemClock.monotonicMs })
  const stopping = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) io.onSignal(signal, () => stopping.abort())
  let jobId: string | null = null
  let ended: Ended
  try {
    const sent = await requestOf(source, options, { nonce, progress, run })
    jobId = await client.submit(sent, stopping.signal)
    await run.hint(`job ${jobId}, nonce ${toHex(nonce)}`)
    ended = await followBuild(client, jobId, { output, progress, signal: stopping.signal })
  } catch (error) {
    await progress.stop()
    if (!stopping.signal.aborted) throw error
    await cancelBuild(run, client, jobId)
    return
  }
  await progress.stop()
  await report(run, { jobId, nonce, ended, options })
}

/** Its address and key, from the options, the environment, or client.toml. */
function clientOf({ io }: Run, options: SubmitOptions): BuildClient {
  const defaults = loadClientDefaults(io.env)
  const text = io.env[apiEnv] || defaults.builds
  const api = options.api ?? (text === undefined ? null : plainUrl(text))
  if (api === null) {
    const message =
      text === undefined ? 'the address of service C is not known' : `${oneLine(text)} is not https://HOST:PORT`
    throw new InputFault(message, { param: 'api', remedy: `name it by --api, ${apiEnv}, or builds in client.toml` })
  }
  const hasKey = (options.keyFile ?? io.env.STRONGROOM_API_KEY ?? defaults.keyFile ?? '') !== ''
  const key = hasKey ? readApiKey(options.keyFile, io.env, defaults.keyFile).text : null
  const caFile = options.ca ?? defaults.ca
  const ca = caFile === undefined ? undefined : readTextInput({ path: caFile, param: 'ca', bytesMax: 64 * KIB })
  return new BuildClient({ api, key, ca, clock: systemClock })
}

async function requestOf(
  source: string,
  options: SubmitOptions,
  { nonce, progress, run }: { readonly nonce: Uint8Array; readonly progress: Progress; readonly run: Run },
): Promise<object> {
  const common = {
    nonce: toHex(nonce),
    project_dir: options.projectDir ?? null,
    toolchain: options.toolchain ?? null,
    reproduce: options.reproduce ?? null,
  }
  if (/^[a-z+]+:\/\//.test(source)) return { ...common, repo_url: source, repo_ref: options.ref ?? null }
  if (options.ref !== undefined) {
    throw new InputFault('--ref is for a git repository', {
      param: 'ref',
      remedy: 'leave it out, or name the repository',
    })
  }
  if (!existsSync(source) || !statSync(source).isDirectory()) {
    throw new InputFault(`${source} is no directory, and no address of a git repository`, {
      param: 'source',
      remedy: 'name a directory, or an https address',
    })
  }
  await progress.phase('pack', source)
  const { paths, leftOut } = await listSource(source)
  const { bytes, fileCount } = await packSource(source, paths, archiveBytesMax)
  await progress.phase('send', `${fileCount} files, ${bytesText(bytes.length)}`)
  await run.hint(`left out: ${leftOut.join(', ')}`)
  return {
    ...common,
    source_data: Buffer.from(bytes).toString('base64'),
    source_name: `${basename(resolve(source))}.tar.gz`,
  }
}

type Following = { readonly output: string; readonly progress: Progress; readonly signal: AbortSignal }

async function followBuild(
  client: BuildClient,
  jobId: string,
  { output, progress, signal }: Following,
): Promise<Ended> {
  for await (const { data } of client.events(jobId, signal)) {
    await progress.show(data)
    if (data.type !== 'complete') continue
    if (data.result.status === 'failed')
      return { ok: false, errorType: data.result.error_type, error: data.result.error }
  }
  await progress.phase('download', jobId)
  const archive = join(output, `${jobId}.tar.gz`)
  const { sha256 } = await client.download(jobId, archive, signal)
  await progress.phase('unpack', archive)
  return { ok: true, archive, directory: await unpackResult(archive, output, jobId), sha256 }
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

type Reported = {
  readonly jobId: string
  readonly nonce: Uint8Array
  readonly ended: Ended
  readonly options: SubmitOptions
}

async function report(run: Run, { jobId, nonce, ended, options }: Reported): Promise<void> {
  const common = { job_id: jobId, nonce: toHex(nonce) }
  if (!ended.ok) {
    const { errorType: error_type, error } = ended
    const text = `${run.paint.bad('build failed')}: ${error_type}\n${error.split('\n').map(oneLine).join('\n')}\n`
    await run.result({ ...common, state: 'failed', error_type, error }, text)
    run.exitWith(EXIT.failed)
    return
  }
  const { archive, directory, sha256 } = ended
  const { found, asOf } = await judgeResult(run, archive, { ...options, nonce })
  const shown: ShownVerdict = { ok: found.ok, simulated: found.simulated, checks: withFlags(found.checks) }
  const verification = buildDocument(found, shown, asOf)
  const text = `${buildSummary({ found, shown }, run.paint, options.verbose === true)}result: ${directory}\narchive: ${archive}\n`
  await run.result({ ...common, state: 'ok', archive, directory, sha256, verification }, text)
  if (!found.ok) run.exitWith(EXIT.failed)
}
