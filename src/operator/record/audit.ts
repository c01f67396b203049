// Records operators' commands: a row before a change begins, its result afterwards, and a line of the log for each.
// Effects: the store, the log.
//
// A change whose row cannot be written does not happen. Refusals have no effect, so after the first of a kind in a
// minute they are only counted in memory: a flood of them costs one row and one line a minute.

import { type Clock, iso, isoOrNull } from '../../base/clock.ts'
import { type Logger, redact } from '../../base/log.ts'
import type { AdminCommand } from '../../contract/admin/events.ts'
import type { LedgerStore } from '../../store/db.ts'
import { appendAudit, countAudit, interruptAudit, listAudit, settleAudit } from '../../store/ledger/audit.query.ts'
import type { AuditRow } from '../../store/ledger/audit.table.ts'
import type { IdentifiedCaller } from '../access/caller.ts'

export type AuditDeps = {
  readonly ledger: LedgerStore
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly log: Logger
}

export type Command = {
  readonly by: IdentifiedCaller
  readonly operation: string
  readonly arguments: Readonly<Record<string, unknown>>
}

type RepeatedEntry = { readonly seq: number; readonly since: number; times: number; written: number }

const windowMs = 60_000
/**
 * Maximum number of kinds of refusals that are counted at a time: users by operations. No share: a user and operation
 * get one row and line per minute; beyond it they are only counted.
 */
const repeatedMax = 1_000
/**
 * Bound for all users together, in case one has many user ids (user_namespaces(7)). No share: a user and operation get
 * one row and line per minute; beyond it they are only counted.
 */
const refusalsPerWindowMax = 120
const argumentsCharsMax = 2_048

export class Audit {
  readonly #deps: AuditDeps
  readonly #repeated = new Map<string, RepeatedEntry>()
  #window = { since: Number.NEGATIVE_INFINITY, recorded: 0, dropped: 0 }

  constructor(deps: AuditDeps) {
    this.#deps = deps
  }

  /** Marks the commands of an earlier daemon that have no result. Call it once, before the first command. */
  start(): void {
    const { ledger, clock, log } = this.#deps
    for (const row of interruptAudit(ledger.db, clock.nowMs())) {
      log.warn('an operator command was interrupted; look at what it was to change', lineOf(row))
    }
  }

  /** Records a change that is about to begin. Throws if it cannot be recorded; then the change must not begin. */
  begin({ by, operation, arguments: asked }: Command): number {
    const { ledger, clock } = this.#deps
    const known = boundedArguments(asked)
    return appendAudit(ledger.db, {
      ...whoOf(by),
      atMs: clock.nowMs(),
      operation,
      arguments: known,
      result: null,
      refused: false,
    })
  }

  /** Records the result. Never throws, because the change has been made or refused by now. */
  end(command: Command, { seq, result }: { readonly seq: number; readonly result: string }): void {
    const { ledger, clock, log } = this.#deps
    log.info('operator command', { seq, ...lineOf(commandFields(command)), result })
    try {
      settleAudit(ledger.db, { seq, result, nowMs: clock.nowMs() })
    } catch (error) {
      log.error('the result of an operator command could not be recorded; this line is the record', {
        seq,
        result,
        error,
      })
    }
  }

  /** Records that nothing was done. Never throws. */
  refuse(command: Command, result: string): void {
    const { ledger, clock, log } = this.#deps
    const { by, operation } = command
    // Persons of the identity provider share a user id.
    const kind = JSON.stringify([by.uid, by.actor, by.socket, operation, result])
    const now = clock.monotonicMs()
    const known = this.#repeated.get(kind)
    if (known !== undefined && now - known.since < windowMs) {
      known.times += 1
      return
    }
    if (!this.#hasRoom(now)) return
    this.flush()
    this.#repeated.delete(kind)
    if (this.#repeated.size >= repeatedMax) this.#repeated.clear()
    log.warn('operator command refused', { ...lineOf(commandFields(command)), result })
    try {
      const seq = appendAudit(ledger.db, {
        ...whoOf(by),
        atMs: clock.nowMs(),
        operation,
        arguments: boundedArguments(command.arguments),
        result,
        refused: true,
      })
      this.#repeated.set(kind, { seq, since: now, times: 1, written: 1 })
    } catch (error) {
      log.error('a refused operator command could not be recorded; the line before is the record', { error })
    }
  }

  #hasRoom(now: number): boolean {
    const { since, recorded, dropped } = this.#window
    if (now - since >= windowMs) {
      if (dropped > 0) this.#deps.log.warn('refused operator commands were not recorded, being too many', { dropped })
      this.#window = { since: now, recorded: 1, dropped: 0 }
      return true
    }
    if (recorded >= refusalsPerWindowMax) this.#window.dropped += 1
    else this.#window.recorded += 1
    return recorded < refusalsPerWindowMax
  }

  /** Writes how often refused commands were repeated. Never throws. */
  flush(): void {
    const { ledger, log } = this.#deps
    for (const repeated of this.#repeated.values()) {
      if (repeated.times === repeated.written) continue
      try {
        countAudit(ledger.db, { seq: repeated.seq, times: repeated.times })
        log.warn('operator command refused again', { seq: repeated.seq, times: repeated.times })
        repeated.written = repeated.times
      } catch (error) {
        log.error('repeated refusals could not be recorded', { seq: repeated.seq, times: repeated.times, error })
      }
    }
  }

  list(asked: Parameters<typeof listAudit>[1]): AdminCommand[] {
    this.flush()
    return listAudit(this.#deps.ledger.db, asked).map(commandView)
  }
}

function whoOf({ uid, gid, pid, actor, role, socket }: IdentifiedCaller) {
  return { uid, gid, pid, actor, role, socket }
}

function commandFields({ by, operation, arguments: asked }: Command) {
  return { ...whoOf(by), operation, arguments: boundedArguments(asked) }
}

type Line = Pick<AuditRow, 'uid' | 'gid' | 'pid' | 'actor' | 'role' | 'socket' | 'operation' | 'arguments'> & {
  readonly seq?: number
}

function lineOf({ seq, uid, gid, pid, actor, role, socket, operation, arguments: asked }: Line) {
  return { ...(seq === undefined ? {} : { seq }), uid, gid, pid, actor, role, socket, operation, arguments: asked }
}

/** Bounds the arguments' length and removes keys that were typed into a field; no field itself is a secret. */
function boundedArguments(asked: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const text = redact(JSON.stringify(asked))
  if (text.length > argumentsCharsMax) return { shortened: text.slice(0, argumentsCharsMax) }
  const parsed: unknown = JSON.parse(text)
  return typeof parsed === 'object' ? { ...parsed } : {}
}

function commandView({ atMs, endedAtMs, refused: _refused, ...row }: AuditRow): AdminCommand {
  return { ...row, at: iso(atMs), ended_at: isoOrNull(endedAtMs) }
}
