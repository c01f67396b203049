// strongroom init: from a bare host to one that has passed a trial: prompts the user, checks, writes the
// configuration, restarts the service, and tries an instance. Effects: the configuration file, the service, one
// instance for a minute.

import { messageOf } from '../../base/fault.ts'
import { parseListen } from '../../config/listen.ts'
import { ConfigFault, configFileDefault } from '../../config/load.ts'
import type { Config } from '../../config/schema.ts'
import { defaultRouteAddress } from '../../host/network/default-route.ts'
import { listListening } from '../../host/network/listening.ts'
import { ownAddresses } from '../../host/network/own-networks.ts'
import { ignoreProxyVariables } from '../../linux/net/outgoing.ts'
import { AdvisedFault, EXIT, InputFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { checkFiles } from '../config-files.driver.ts'
import { readConfigText, writeConfigText } from '../config-write.driver.ts'
import { collectHostFacts } from '../doctor/host.driver.ts'
import { judge } from '../doctor/host.plan.ts'
import type { Command, Run } from '../operator-run.ts'
import { serviceWith, servingGateway, startedService } from '../service.driver.ts'
import { askQuestions, type InitAnswers, organizationDefault, preseededAnswers } from './ask.ts'
import { type Candidate, type CandidateVerdict, candidateOf } from './candidate.ts'
import { type KeptAnswers, openKeptAnswers } from './kept-answers.driver.ts'
import { lacksModel, withAskedModel } from './model.ts'
import { nextSteps } from './next.plan.ts'
import { tryInstance } from './trial.driver.ts'

type Options = {
  readonly preseed?: string
  readonly dryRun?: boolean
  readonly organization?: string
  readonly trial: boolean
  readonly forFleet?: boolean
}

const listeningTimeoutMs = 10_000

export function addInit(program: Command): void {
  program
    .command('init')
    .description(
      'set up this host from at most seven questions or a file. Checks everything before it changes anything; then creates, verifies, logs into, prompts and deletes an instance',
    )
    .option('--preseed <file>', 'configuration file to use instead of questions; an empty file takes every default')
    .option('--organization <slug>', 'with --preseed: the first organization (default: first)')
    .option('--for-fleet', 'make no organization and try no instance: this host enters a fleet, which has them')
    .option('--dry-run', 'check, and print what would change; change nothing')
    .option('--no-trial', 'stop when the service answers, without an instance')
    .examples(
      'strongroom init',
      'strongroom init --preseed host.toml --organization acme',
      'strongroom init --preseed host.toml --dry-run',
    )
    .runs((run, options: Options) => initialize(run, options))
}

async function initialize(run: Run, options: Options): Promise<void> {
  // Before anything connects: its trial verifies as a client does, and would go through the proxy of HTTPS_PROXY.
  ignoreProxyVariables()
  const { file, config } = await run.config()
  const path = file ?? configFileDefault
  const text = readConfigText(path)
  const kept = openKeptAnswers(run.stateDir)
  const daemon = await startedService(run)
  const forFleet = options.forFleet === true
  if (forFleet && options.organization !== undefined) {
    throw new InputFault('--for-fleet contradicts --organization', {
      param: 'for-fleet',
      remedy: 'leave one of them out: the organizations of a fleet are in its directory',
    })
  }
  const asked =
    options.preseed === undefined
      ? await askedAnswers(run, { config, kept, daemonPid: daemon?.pid ?? null, withOrganization: !forFleet })
      : preseededAnswers(options.preseed, forFleet ? null : (options.organization ?? organizationDefault))
  const candidate = await withModel(run, options, { path, kept, verdict: candidateOf(text, asked.settings, path) })
  await checkCandidate(run, candidate, path)
  const plan = candidate.changes.map(change => `  ${change}`).join('\n')
  if (options.dryRun === true) {
    const words = candidate.changes.length === 0 ? `${path} stays as it is` : `${path} would get\n${plan}`
    await run.result(
      { ok: true, dry_run: true, file: path, changes: candidate.changes },
      `${words}\nnothing was changed\n`,
    )
    return
  }
  const isChanged = candidate.changes.length > 0
  if (isChanged) writeConfigText(path, { before: text, after: candidate.text })
  await run.hint(isChanged ? `${path} has now\n${plan}` : `${path} stays as it is`)
  const steps = stepsOf(run)
  const again = 'run `strongroom init` again'
  let status = await serviceWith({ client: run.client(), file: path, isChanged, next: again })
  await run.hint(`service: version ${status.version} answers on ${status.platform}`)
  await steps.step('gateway', async () => {
    const vm = await servingGateway(run)
    return vm === null ? 'has no VM of its own' : `${vm.vm} serves`
  })
  const { organization } = asked
  if (options.trial && organization !== null) {
    await tryInstance({ run, config: candidate.config, status, organization, step: steps.step })
    status = await serviceWith({ client: run.client(), file: path, isChanged: false, next: again })
  }
  kept.clear()
  const next = nextSteps({ config: candidate.config, status, organization })
  const document = { ok: true, file: path, changes: candidate.changes, steps: steps.done, next }
  await run.result(document, `This host works. What is next:\n${next.map(line => `- ${line}\n`).join('')}`)
}

type Prompting = {
  readonly config: Config
  readonly kept: KeptAnswers
  readonly daemonPid: number | null
  readonly withOrganization: boolean
}

async function askedAnswers(run: Run, { config, kept, daemonPid, withOrganization }: Prompting): Promise<InitAnswers> {
  const listening = await listListening(listeningTimeoutMs).catch(() => null)
  const own = ownAddresses({ withV6: true })
  const listensOnAll = [config.listen.instances, config.listen.dns].some(text =>
    ['0.0.0.0', '::'].includes(parseListen(text)?.hostname ?? ''),
  )
  const addresses = { own, listensOnAll, routeV4: defaultRouteAddress(), listening, daemonPid }
  return await askQuestions(run, { config, kept, addresses, withOrganization })
}

type Modelled = {
  readonly path: string
  readonly kept: KeptAnswers
  readonly verdict: CandidateVerdict
}

/** Prompts for a model if the gateway has none. Throws Fault config.invalid. */
async function withModel(run: Run, options: Options, { path, kept, verdict }: Modelled): Promise<Candidate> {
  if (!verdict.ok) throw new ConfigFault(verdict.problems)
  if (options.preseed !== undefined || options.dryRun === true || !lacksModel(verdict.config)) return verdict
  return await withAskedModel(run, verdict, path, kept)
}

/** The files that it names, and what `doctor` finds with it. Fault if anything would keep the host from working. */
async function checkCandidate(run: Run, { config, warnings }: Candidate, file: string): Promise<void> {
  const found = checkFiles(config, Date.now()).filter(({ kind }) => kind === 'problem')
  if (found.length > 0) throw new ConfigFault(found.map(({ field, message }) => ({ file, line: 1, field, message })))
  const facts = await collectHostFacts({
    loaded: { config, file, warnings },
    stateDir: run.stateDir,
    client: run.client(),
    progress: run.hint,
    canary: true,
  })
  if (!facts.isRoot) throw new AdvisedFault('forbidden', 'init needs root', { remedy: 'run it as root' })
  // Problems of the present configuration, such as a gateway without a model, do not matter: the service restarts.
  const failed = judge({ ...facts, problems: null }).filter(({ result }) => result === 'FAIL')
  if (failed.length === 0) return
  const lines = failed.map(
    ({ name, detail, remedy }) => `${name}: ${oneLine(detail)}\n  remedy: ${oneLine(remedy ?? '')}`,
  )
  throw new AdvisedFault('host.unsupported', `nothing was changed: this host lacks\n${lines.join('\n')}`, {
    remedy: 'follow each line, then run `strongroom init` again',
  })
}

type DoneStep = { readonly name: string; readonly ok: boolean; readonly took_ms: number; readonly found: string }

function stepsOf(run: Run) {
  const done: DoneStep[] = []
  const step = async (name: string, work: () => Promise<string>) => {
    const startedMs = performance.now()
    const note = async (ok: boolean, found: string) => {
      const tookMs = Math.round(performance.now() - startedMs)
      done.push({ name, ok, took_ms: tookMs, found })
      await run.hint(
        `${run.paint.word(ok ? 'PASS' : 'FAIL')}  ${name.padEnd(12)}  ${(tookMs / 1000).toFixed(1)} s  ${oneLine(found)}`,
      )
    }
    try {
      await note(true, await work())
    } catch (error) {
      await note(false, messageOf(error))
      run.exitWith(EXIT.failed)
      throw error
    }
  }
  return { step, done }
}
