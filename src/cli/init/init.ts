// strongroom init: from a bare host to one that has passed a trial: prompts the user, checks, writes the
// configuration, restarts the service, and tries an instance. Effects: the configuration file, the service, one
// instance for a minute.

import { dirname } from 'node:path'
import { messageOf } from '../../base/fault.ts'
import { type Setting, settingsOf } from '../../config/edit.ts'
import { ConfigFault, configFileDefault } from '../../config/load.ts'
import { parseConfig } from '../../config/parse.ts'
import { slugProblem } from '../../contract/admin/admin.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { AdvisedFault, EXIT, InputFault } from '../../terminal/exit.ts'
import { MIB, readTextInput } from '../../terminal/input-file.ts'
import { oneLine } from '../../terminal/render.ts'
import { checkFiles } from '../config-files.driver.ts'
import { collectHostFacts } from '../doctor/host.driver.ts'
import { judge } from '../doctor/host.plan.ts'
import type { Command, Run } from '../operator-run.ts'
import { type Candidate, candidateOf } from './candidate.ts'
import { nextSteps } from './next.plan.ts'
import { presentAnswer, promptText, QUESTIONS, readAnswer } from './questions.ts'
import { serviceWith } from '../service.driver.ts'
import { tryInstance } from './trial.driver.ts'

type Options = { preseed?: string; dryRun?: boolean; organization: string; trial: boolean }

const organizationDefault = 'first'
const attemptsMax = 3

export function addInit(program: Command): void {
  program
    .command('init')
    .description(
      'set up this host from at most six questions or a file. Checks everything before it changes anything, then creates, verifies, logs into and deletes an instance',
    )
    .option('--preseed <file>', 'configuration file to use instead of questions; an empty file takes every default')
    .option('--organization <slug>', 'with --preseed: the first organization', organizationDefault)
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
  const { file, config } = await run.config()
  const path = file ?? configFileDefault
  const text = readTextOrNull(path) ?? ''
  const asked =
    options.preseed === undefined ? await ask(run, config) : preseeded(options.preseed, options.organization)
  const candidate = candidateOf(text, asked.settings, path)
  if (!candidate.ok) throw new ConfigFault(candidate.problems)
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
  if (isChanged) {
    ensureDir(dirname(path), { mode: 0o755 })
    writeFileAtomic(path, candidate.text, { mode: 0o644 })
  }
  await run.hint(isChanged ? `${path} has now\n${plan}` : `${path} stays as it is`)
  const steps = stepsOf(run)
  let status = await serviceWith({ client: run.client(), file: path, isChanged })
  await run.hint(`service: version ${status.version} answers on ${status.platform}`)
  if (options.trial) {
    const { organization } = asked
    await tryInstance({ run, config: candidate.config, status, organization, step: steps.step })
    status = await serviceWith({ client: run.client(), file: path, isChanged: false })
  }
  const next = nextSteps({ config: candidate.config, status, organization: asked.organization })
  const document = { ok: true, file: path, changes: candidate.changes, steps: steps.done, next }
  await run.result(document, `This host works. What is next:\n${next.map(line => `- ${line}\n`).join('')}`)
}

type InitAnswers = { readonly settings: readonly Setting[]; readonly organization: string }

async function ask({ io }: Run, config: object): Promise<InitAnswers> {
  if (io.ask === undefined) {
    throw new InputFault('cannot ask questions: standard input is not a terminal', {
      param: 'preseed',
      remedy: 'name a file by --preseed; an empty one takes every default',
    })
  }
  const settings: Setting[] = []
  let organization = organizationDefault
  for (const question of QUESTIONS) {
    const { field } = question
    const present = field === null ? organizationDefault : presentAnswer(config, field)
    for (let attempt = 1; ; attempt += 1) {
      const typed = await io.ask(promptText(question, present))
      if (typed === null)
        throw new InputFault('the input ended', { remedy: 'run `strongroom init` again; nothing was changed' })
      const words = typed.trim() === '' ? present : typed.trim()
      const answer = readAnswer(question, words)
      if (!answer.ok) {
        if (attempt === attemptsMax)
          throw new InputFault(answer.problem, { remedy: 'run `strongroom init` again; nothing was changed' })
        await io.stderr(`  ${answer.problem}\n`)
        continue
      }
      if (field === null) organization = words
      // A value that stands there already, or is the default, needs no line.
      else if (answer.setting !== null && words !== present) settings.push(answer.setting)
      break
    }
  }
  return { settings, organization }
}

function preseeded(path: string, organization: string): InitAnswers {
  const wrong = slugProblem(organization)
  if (wrong !== null)
    throw new InputFault(`--organization ${JSON.stringify(organization)} ${wrong}`, {
      param: 'organization',
      remedy: 'name another',
    })
  const text = readTextInput({ path, param: 'preseed', bytesMax: MIB })
  // On its own first: its mistakes are shown with its own lines.
  const verdict = parseConfig(text, path)
  if (!verdict.ok) throw new ConfigFault(verdict.problems)
  return { settings: settingsOf(text) ?? [], organization }
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
  const failed = judge(facts).filter(({ result }) => result === 'FAIL')
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
