// When the idle time of this VM is over and a snapshot is due, and the owner's orders about both. Effects: reads /proc
// and sshd's log, writes files of root.
//
// A VM is in use while a session is open, and after a login or a request to the gateway. Other programs do not
// count: the owner postpones the end for them.

import * as fs from 'node:fs'
import { resultOr } from '../../base/result-or.ts'
import { checkValue } from '../../contract/check.ts'
import type { Static, TSchema } from '../../contract/type.ts'
import { EveryBody, IdleBody, KeepBody } from '../../contract/vm/orders/order.ts'
import { ensureDir, type Owner, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { endpointPort } from '../gateway/address.ts'
import type { GuestPaths } from '../paths.ts'
import type { OrderHandler, OrderOutcome } from './orders.ts'

type IdlePaths = Pick<GuestPaths, 'logDir' | 'ordersDir' | 'processes'>

export type Idle = {
  /**
   * Reports whether the idle time is over. Call it every minute: requests to the gateway leave a trace for that long.
   * The time begins again after a longer pause, as before the claim.
   *
   * `minutes`: from the host, unless an order has another; null for no end.
   */
  readonly isOver: (minutes: number | null) => boolean
  /** Reports whether the time between two snapshots is over, by the owner's schedule. `isLost`: of the last one. */
  readonly isSnapshotDue: (isLost?: boolean) => boolean
  /** Takes a snapshot. The schedule counts from its beginning; if it fails, it is due again after a pause. */
  readonly counted: <Taken extends { readonly ok: boolean; readonly code?: string }>(
    take: () => Promise<Taken>,
  ) => Promise<Taken>
  readonly handlers: Readonly<Record<'idle' | 'keep' | 'snapshot_every', OrderHandler>>
}

/** A poll may be late on a busy host. */
const pollGapSecondsMax = 150
const failedPauseSeconds = 900

export function createIdle({ paths, owner }: { readonly paths: IdlePaths; readonly owner: Owner }): Idle {
  const [idleFile, keptFile] = [`${paths.ordersDir}/idle`, `${paths.ordersDir}/kept`]
  const [everyFile, takenFile] = [`${paths.ordersDir}/snapshot-every`, `${paths.ordersDir}/snapshot-taken`]
  let [usedAt, polledAt, triedAt] = [0, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY]
  let login = lastLogin(paths)

  const write = (file: string, text: string) => {
    ensureDir(paths.ordersDir, { mode: 0o755, owner })
    writeFileAtomic(file, text, { mode: 0o600, owner })
  }
  const outcome = (): OrderOutcome => {
    const keptSeconds = Math.max(0, Number(readTextOrNull(keptFile) ?? 0) - uptime(paths))
    const every = readTextOrNull(everyFile)
    // Left out without a schedule: an earlier client refuses it.
    const schedule = every === null || every === 'off' ? {} : { snapshot_every: Number(every) }
    return {
      ok: true,
      result: { idle: readTextOrNull(idleFile), kept_minutes: Math.ceil(keptSeconds / 60), ...schedule },
    }
  }
  const handler = <T extends TSchema>(schema: T, carryOut: (body: Static<T>) => void): OrderHandler => {
    return async body => {
      const read = checkValue(schema, body)
      if (!read.ok) return { ok: false, message: read.problem }
      carryOut(read.value)
      return outcome()
    }
  }

  return {
    isOver: minutes => {
      const now = uptime(paths)
      const ordered = readTextOrNull(idleFile)
      const limit = ordered === null ? minutes : ordered === 'off' ? null : Number(ordered)
      const newest = lastLogin(paths)
      const isUnseen = limit === null || now - polledAt > pollGapSecondsMax
      if (isUnseen || newest !== login || hasSession(paths) || hasRequest(paths)) usedAt = now
      ;[login, polledAt] = [newest, now]
      if (limit === null) return false
      return now - usedAt >= limit * 60 && now >= Number(readTextOrNull(keptFile) ?? 0)
    },
    isSnapshotDue: isLost => {
      const every = Number(readTextOrNull(everyFile) ?? 'off') * 60
      const taken = Number((!isLost && readTextOrNull(takenFile)) || Number.NEGATIVE_INFINITY)
      // Never for `off`, which is no number.
      return uptime(paths) >= Math.max(taken + every, triedAt + failedPauseSeconds)
    },
    counted: async take => {
      const beganAt = uptime(paths)
      try {
        const taken = await take()
        if (taken.ok || taken.code === 'unchanged') write(takenFile, String(beganAt))
        return taken
      } finally {
        triedAt = uptime(paths)
      }
    },
    handlers: {
      idle: handler(IdleBody, ({ minutes }) => write(idleFile, String(minutes ?? 'off'))),
      keep: handler(KeepBody, ({ minutes }) => write(keptFile, String(uptime(paths) + minutes * 60))),
      snapshot_every: handler(EveryBody, ({ minutes }) => write(everyFile, String(minutes ?? 'off'))),
    },
  }
}

/** Seconds since boot, which no clock of the host changes. */
function uptime({ processes }: Pick<GuestPaths, 'processes'>): number {
  return Number.parseFloat(readTextOrNull(`${processes}/uptime`) ?? '0')
}

/** sshd's line about the last login, with its time or port; other lines are not the owner's. */
function lastLogin({ logDir }: Pick<GuestPaths, 'logDir'>): string | null {
  return (
    readTextOrNull(`${logDir}/sshd.log`)
      ?.match(/^Accepted publickey for .*$/gm)
      ?.at(-1) ?? null
  )
}

/** sshd names the process of a session after its user and terminal, once its user has logged in. */
function hasSession({ processes }: Pick<GuestPaths, 'processes'>): boolean {
  const titles = resultOr(() => fs.readdirSync(processes), [])
    .filter(name => /^\d+$/.test(name))
    .map(pid => resultOr(() => fs.readFileSync(`${processes}/${pid}/cmdline`, 'utf8'), ''))
  return titles.some(title => /^sshd(-session)?: [^ ]+@/.test(title))
}

const listening = '0A'

/** Reports a connection to the endpoint. A closed one stays in /proc/net/tcp (proc(5)) for a minute (TIME_WAIT). */
function hasRequest({ processes }: Pick<GuestPaths, 'processes'>): boolean {
  const port = `:${endpointPort.toString(16).toUpperCase().padStart(4, '0')}`
  const rows = (readTextOrNull(`${processes}/net/tcp`) ?? '').split('\n').map(line => line.trim().split(/\s+/))
  return rows.some(([, local, remote, state]) => {
    return state !== listening && (local?.endsWith(port) === true || remote?.endsWith(port) === true)
  })
}
