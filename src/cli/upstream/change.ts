// Carries out a change of the upstreams: shows it, confirms it if prompts of instances stop, writes the configuration,
// restarts the service, and waits for the gateway. Effects: the configuration file, the service.

import { ConfigFault } from '../../config/load.ts'
import type { Config } from '../../config/schema.ts'
import { AdminInstanceList } from '../../contract/admin/admin.ts'
import { writeFileAtomic } from '../../linux/files.ts'
import { isUnderSystemd } from '../../linux/process/scope.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { checkFiles } from '../config-files.driver.ts'
import { writeConfigText } from '../config-write.driver.ts'
import type { Run } from '../operator-run.ts'
import { serviceWith, servingGateway } from '../service.driver.ts'
import { confirmText, type GatewayNow, stopsPrompts } from './effects.plan.ts'
import type { EditVerdict } from './entry.ts'

export type ChangeOptions = {
  /** Writes without a question. */
  readonly yes?: boolean
  readonly dryRun?: boolean
  readonly restart: boolean
}

export type ConfigSource = { readonly text: string; readonly config: Config; readonly file: string }

type Changed = { readonly changes: readonly string[]; readonly gateway: GatewayNow | null }

/**
 * Returns null after a dry run. `accept`: what an owner has to accept, as the command in an instance takes it. Faults:
 * config.invalid, conflict, and those of the service.
 */
export async function changeUpstreams(
  run: Run,
  source: ConfigSource,
  { verdict, accept, options }: { verdict: EditVerdict; accept: readonly string[]; options: ChangeOptions },
): Promise<Changed | null> {
  if (!verdict.ok) throw new ConfigFault(verdict.problems)
  const { file } = source
  const problems = checkFiles(verdict.config, Date.now()).filter(
    ({ kind, field }) => kind === 'problem' && field.startsWith('inference.'),
  )
  if (problems.length > 0) {
    throw new ConfigFault(problems.map(({ field, message }) => ({ file, line: 1, field, message })))
  }
  const plan = verdict.changes.map(change => `  ${oneLine(change)}`).join('\n')
  const stopped = stopsPrompts(source.config) ? await livingInstances(run) : []
  const words = stopped === null || stopped.length > 0 ? confirmText(stopped, accept) : ''
  if (options.dryRun === true) {
    await run.result(
      { ok: true, dry_run: true, file, changes: verdict.changes, stops_prompts_of: stopped },
      `${file} would get\n${plan}\n${words === '' ? '' : `${words}\n`}nothing was changed\n`,
    )
    return null
  }
  if (words !== '' && options.yes !== true) await confirm(run, words)
  writeConfigText(file, { before: source.text, after: verdict.text })
  await run.hint(`${file} has now\n${plan}`)
  const isRestarted = options.restart && isUnderSystemd()
  if (!isRestarted) {
    await run.hint('the running service has the former configuration: restart it (systemctl restart strongroom)')
    return { changes: verdict.changes, gateway: null }
  }
  const next = 'see `strongroom status`: the file has the change already'
  await orKeepFormer(run, source, () => serviceWith({ client: run.client(), file, isChanged: true, next }))
  const vm = await servingGateway(run)
  return { changes: verdict.changes, gateway: vm && { workloadSha256: vm.workload_sha256 } }
}

/** Starts the service with the new file. If that fails, keeps the former text beside it and prints its path. */
export async function orKeepFormer(
  run: Pick<Run, 'hint'>,
  { text, file }: Pick<ConfigSource, 'text' | 'file'>,
  start: () => Promise<unknown>,
): Promise<void> {
  try {
    await start()
  } catch (error) {
    const former = `${file}.before`
    writeFileAtomic(former, text, { mode: 0o600 })
    await run.hint(
      `the text before the change is in ${former}: to go back, copy it over ${file}, and restart the service`,
    )
    throw error
  }
}

/** Null if the daemon does not answer. */
async function livingInstances(run: Run): Promise<string[] | null> {
  const found = await run
    .client()
    .request({ path: '/instances', query: { status: 'living' }, response: AdminInstanceList })
    .catch(() => null)
  if (found === null) return null
  return found.instances
    .filter(({ status }) => status === 'ready' || status === 'provisioning')
    .map(({ organization, name }) => `${organization}/${name}`)
}

/** Throws Fault conflict if the person does not agree, or there is no terminal. */
async function confirm({ io }: Run, words: string): Promise<void> {
  const remedy = 'tell their owners first; then run the command again with --yes'
  if (io.ask === undefined) throw new AdvisedFault('conflict', `nothing was changed. ${words}`, { remedy })
  await io.stderr(`${words}\n`)
  const typed = await io.ask('Change it now? Type yes: ')
  if (typed?.trim().toLowerCase() !== 'yes') throw new AdvisedFault('conflict', 'nothing was changed', { remedy })
}
