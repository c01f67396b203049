// Kernel settings of this host that the appliance has changed for all programs, stored so that `strongroom teardown`
// can restore them. Effects: one file of the state directory; writes /proc/sys.

import { readFileSync, writeFileSync } from 'node:fs'
import { type Static, Type } from '@sinclair/typebox'
import { messageOf } from '../base/fault.ts'
import { resultOr } from '../base/result-or.ts'
import { checkedJson } from '../contract/check.ts'
import { removeFile } from '../linux/files/removal.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { hostBootId } from './system.ts'

/** Name in the state directory. The file describes this machine's boot, regardless of other records next to it. */
export const changedSettingsFile = 'changed-settings.json'

/** A setting before and after the change. */
export type SettingChange = { readonly path: string; readonly was: string; readonly set: string }

const Settings = Type.Object({
  /** The kernel drops its settings when the host boots. */
  boot_id: Type.String(),
  settings: Type.Array(
    Type.Object({
      path: Type.String({
        pattern: '^/proc/sys/net/(ipv4/ip_forward|ipv6/conf/[^/]{1,15}/(forwarding|accept_ra))$',
      }),
      was: Type.String({ pattern: '^[0-9]{1,3}$' }),
      set: Type.String({ pattern: '^[0-9]{1,3}$' }),
    }),
    { maxItems: 4096 },
  ),
})

type SettingsFile = {
  readonly stateDir: string
  readonly bootId?: string
  readonly write?: (path: string, v: string) => void
}

/**
 * Returns a function that stores changes of this boot; the first value of a setting counts. Call it before each change.
 * Throws Fault internal.
 */
export function settingsNote({ stateDir, bootId = hostBootId() }: SettingsFile): (change: SettingChange) => void {
  return change => {
    const { settings } = readSettings(stateDir, bootId)
    const known = settings.find(({ path }) => path === change.path)
    const others = settings.filter(({ path }) => path !== change.path)
    const next = { boot_id: bootId, settings: [...others, { ...change, was: known?.was ?? change.was }] }
    writeFileAtomic(fileOf(stateDir), `${JSON.stringify(next)}\n`, { mode: 0o600 })
  }
}

export type RestoredSetting = { readonly path: string; readonly value: string; readonly problem: string | null }

/** Restores the settings, the last first. A setting that has changed since is not touched. Never throws. */
export function restoreSettings({
  stateDir,
  bootId = hostBootId(),
  write = writeFileSync,
}: SettingsFile): RestoredSetting[] {
  const { settings } = readSettings(stateDir, bootId)
  const restored = settings.toReversed().flatMap(({ path, was, set }): RestoredSetting[] => {
    try {
      if (was === set || readFileSync(path, 'utf8').trim() !== set) return []
      write(path, was)
      return [{ path, value: was, problem: null }]
    } catch (error) {
      return [{ path, value: was, problem: messageOf(error) }]
    }
  })
  if (restored.every(({ problem }) => problem === null)) removeFile(fileOf(stateDir))
  return restored
}

function fileOf(stateDir: string): string {
  return `${stateDir}/${changedSettingsFile}`
}

/** Reads the settings. None for a file of an earlier boot, or one that cannot be read. */
function readSettings(stateDir: string, bootId: string): Static<typeof Settings> {
  const none = { boot_id: bootId, settings: [] }
  const path = fileOf(stateDir)
  const found = resultOr(() => checkedJson(Settings, readFileSync(path), { what: path, code: 'internal' }), none)
  return found.boot_id === bootId ? found : none
}
