// The guard: the static table of strongroom-guard.nft, which keeps taps shut while our own table is absent. Its unit
// loads it; a flush of the ruleset removes it. Effects: reads one file, runs nft(8) in our network namespace.

import { existsSync } from 'node:fs'
import type { Logger } from '../../base/log.ts'
import { run } from '../../linux/command.ts'

/** Path of the guard's installation. */
export const guardFile = '/etc/strongroom/strongroom-guard.nft'
export const guardTable = 'strongroom_guard'

const outputBytesMax = 1_048_576

export type Guard = {
  /** The beginnings of interface names that it holds for taps, each once; null: its table is not there. */
  readonly prefixes: readonly string[] | null
}

/** Faults: host.command_failed, host.command_timeout. */
export async function lookAtGuard(timeoutMs: number): Promise<Guard> {
  const { stdout } = await run(['nft', 'list', 'tables'], { timeoutMs, outputBytesMax })
  if (!stdout.split('\n').includes(`table inet ${guardTable}`)) return { prefixes: null }
  const rules = await run(['nft', 'list', 'table', 'inet', guardTable], { timeoutMs, outputBytesMax })
  const found = [...rules.stdout.matchAll(/[io]ifname "([^"]*)\*"/g)].map(([, prefix = '']) => prefix)
  return { prefixes: [...new Set(found)] }
}

export type GuardOptions = { readonly file: string; readonly log: Logger; readonly timeoutMs: number }

/** Reloads an installed guard whose table is gone. Never rejects: VMs must get their own rules all the same. */
export async function restoreGuard({ file, log, timeoutMs }: GuardOptions): Promise<void> {
  try {
    if (!existsSync(file) || (await lookAtGuard(timeoutMs)).prefixes !== null) return
    await run(['nft', '--file', file], { timeoutMs, outputBytesMax })
    log.warn('the firewall guard had vanished; it is loaded again', { table: guardTable, file })
  } catch (error) {
    log.error('the firewall guard cannot be loaded', { file, error })
  }
}
