// Ends what the appliance holds in this host's kernel: VMs and workers with their scopes, firewall tables, the network
// namespace of VMs, settings. Keeps what is on disk. Effects: processes, interfaces, nftables, /proc/sys.

import { existsSync } from 'node:fs'
import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { createLogger } from '../../base/log.ts'
import type { Config } from '../../config/schema.ts'
import { restoreSettings } from '../../host/changed-settings.ts'
import { createNft } from '../../host/network/nft.ts'
import { removeVmNamespace } from '../../host/network/vm-namespace.ts'
import { run } from '../../linux/command.ts'
import { lockFileOfDead } from '../../linux/lock.ts'
import { identifyProcess } from '../../linux/process/running.ts'
import { isUnderSystemd } from '../../linux/process/scope.ts'
import { listWithUuid, type ProcessIdentity, signalProcess } from '../../linux/process.ts'
import { listTpms } from '../../vm/launch/tpm.driver.ts'
import { probeTaps } from '../../vm/network/nft.plan.ts'

export type TeardownStep = {
  readonly name: 'scopes' | 'processes' | 'tables' | 'namespace' | 'settings'
  /** Names of everything that was ended; empty if nothing was there. */
  readonly ended: readonly string[]
  /** Null when done. */
  readonly problem: string | null
}

type Options = { readonly stateDir: string; readonly network: Pick<Config['network'], 'table' | 'tap_prefix'> }

const lockTimeoutMs = 2_000
/** A QEMU ends within a second of SIGTERM; systemd kills it after its own bound. */
const scopesTimeoutMs = 120_000
const stepTimeoutMs = 30_000
const outputBytesMax = 4_194_304
const slice = 'strongroom.slice'

/** Every step is tried, whatever became of those before. Fault conflict while a daemon runs. */
export async function tearDown({ stateDir, network }: Options): Promise<TeardownStep[]> {
  // Prevents the start of a daemon meanwhile. Without a state directory none has ever run.
  using _lock = existsSync(stateDir)
    ? await lockFileOfDead(`${stateDir}/lock`, { timeoutMs: lockTimeoutMs, clock: systemClock })
    : null
  const works = [
    ['scopes', endScopes],
    ['processes', () => endProcesses(stateDir)],
    ['tables', () => removeTables(network)],
    // With the taps that have lost their QEMU, and their tables.
    ['namespace', () => removeVmNamespace({ name: network.table, tapPrefix: network.tap_prefix })],
    ['settings', async () => putSettingsBack(stateDir)],
  ] as const
  const steps: TeardownStep[] = []
  for (const [name, work] of works) {
    try {
      steps.push({ name, ended: await work(), problem: null })
    } catch (error) {
      steps.push({ name, ended: [], problem: messageOf(error) })
    }
  }
  return steps
}

/** Scopes of VMs, TPMs and workers: stopping a slice stops all units in it (systemd.slice(5)). */
async function endScopes(): Promise<string[]> {
  if (!isUnderSystemd()) return []
  const before = await listUnits()
  // systemctl fails for a unit that is not loaded, such as the slice of a host that has had no VM.
  const stopped =
    before.length === 0 ? null : run(['systemctl', 'stop', ...before], { timeoutMs: scopesTimeoutMs, outputBytesMax })
  const problem = await stopped?.then(() => null, messageOf)
  // A unit may end by itself meanwhile, so that what is left decides.
  const left = (await listUnits()).filter(unit => before.includes(unit))
  if (left.length > 0) throw new Error(`still active: ${left.join(', ')}${problem == null ? '' : `; ${problem}`}`)
  return before.filter(unit => unit.endsWith('.scope'))
}

/** Active scopes and slices of the appliance. */
async function listUnits(): Promise<string[]> {
  const argv = ['systemctl', 'list-units', '--plain', '--no-legend', '--no-pager', '--type=scope,slice']
  const { stdout } = await run(argv, { timeoutMs: stepTimeoutMs, outputBytesMax })
  const units = stdout.split('\n').map(line => line.trim().split(/\s+/)[0] ?? '')
  return units.filter(unit => unit === slice || /^strongroom-.+\.(scope|slice)$/.test(unit))
}

/** Processes of a host without systemd, and those that outlived their scope. */
async function endProcesses(stateDir: string): Promise<string[]> {
  const directory = `${stateDir}/vms/`
  const isOurs = ({ pid }: ProcessIdentity) =>
    identifyProcess(pid)?.argv.some(word => word.includes(directory)) === true
  const qemus = listWithUuid().filter(isOurs)
  const tpms = listTpms(stateDir).map(({ pid, startTicks }) => ({ pid, startTicks, uuid: directory }))
  return [...qemus, ...tpms].flatMap(process => (signalProcess(process, 'SIGKILL') ? [`${process.pid}`] : []))
}

async function removeTables({ table, tap_prefix: tapPrefix }: Options['network']): Promise<string[]> {
  const before = await listTables()
  const log = createLogger({ level: 'error', sink: () => {}, nowMs: Date.now, priorities: false })
  await createNft({ table, log }).deleteTables(stepTimeoutMs)
  for (const other of probeTaps(tapPrefix).filter(name => before.includes(`inet ${name}`)))
    await run(['nft', 'delete', 'table', 'inet', other], { timeoutMs: stepTimeoutMs, outputBytesMax })
  const left = await listTables()
  return before.filter(name => !left.includes(name))
}

/** `FAMILY NAME` of each. */
async function listTables(): Promise<string[]> {
  const { stdout } = await run(['nft', 'list', 'tables'], { timeoutMs: stepTimeoutMs, outputBytesMax })
  return stdout.split('\n').flatMap(line => /^table (.+)$/.exec(line.trim())?.[1] ?? [])
}

function putSettingsBack(stateDir: string): string[] {
  const restored = restoreSettings({ stateDir })
  const failed = restored.filter(({ problem }) => problem !== null)
  if (failed.length > 0) throw new Error(failed.map(({ path, problem }) => `${path}: ${problem}`).join('; '))
  return restored.map(({ path, value }) => `${path.slice('/proc/sys/'.length).replaceAll('/', '.')} = ${value}`)
}
