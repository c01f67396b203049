// The transparency log in the admin interface. Effects: the log.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { decodeCheckpoint } from '../attest/log/checkpoint.ts'
import { decodeNote, encodeNote, encodeNoteKey } from '../attest/log/note.ts'
import { parsed } from '../attest/malformed.ts'
import { fromUtf8, utf8 } from '../base/bytes.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import {
  AdminCosign,
  AdminLog,
  AdminLogEntries,
  type AdminLogSummary,
  AdminPublishPolicy,
  logEntryListMax,
} from '../contract/admin/log.ts'
import { criticalProblem, type FoundProblem } from '../contract/admin/problems.ts'
import { logProblems, logState, type WatchedLog } from '../transparency/health.ts'
import type { TransparencyLog } from '../transparency/log.ts'

export type OperatorLog = WatchedLog & {
  readonly log: Pick<TransparencyLog, 'key' | 'signed' | 'cosign' | 'append'>
}

export function logRoutes(
  transparency: OperatorLog,
  readBody: (context: { readonly request: Request; readonly route: string }) => Promise<unknown>,
) {
  const { log } = transparency
  return new Elysia({ normalize: false })
    .get('/log', () => view(transparency), { response: AdminLog })
    .get(
      '/log/entries',
      ({ query: { from, limit } }) => {
        const last = log.head()?.size ?? 0
        const rows = log.entries(from ?? Math.max(0, last - limit), limit)
        return { entries: rows.map(row => ({ index: row.seq, at: iso(row.atMs), entry: fromUtf8(row.entry) })) }
      },
      {
        query: Type.Object({
          from: Type.Optional(t.Integer({ minimum: 0 })),
          limit: t.Integer({ default: 20, minimum: 1, maximum: logEntryListMax }),
        }),
        response: AdminLogEntries,
      },
    )
    .post(
      '/log/cosign',
      async ({ body }) => {
        const note = parsed(() => decodeNote(utf8(body.note)))
        const checkpoint = note.ok ? parsed(() => decodeCheckpoint(note.value.text)) : note
        if (!note.ok || !checkpoint.ok)
          throw new Fault('invalid_request', checkpoint.ok ? 'no note' : checkpoint.reason, { param: 'note' })
        await log.cosign(note.value, checkpoint.value)
        return view(transparency)
      },
      { parse: readBody, body: AdminCosign, response: AdminLog },
    )
    .post(
      '/log/policy',
      ({ body }) => {
        log.append({ kind: 'verifier-policy', sha256: body.sha256 })
        return view(transparency)
      },
      { parse: readBody, body: AdminPublishPolicy, response: AdminLog },
    )
}

/** Returns a summary of the log, including its problem. */
export function logSummary(watched: WatchedLog, nowMs: number): AdminLogSummary {
  const state = logState(watched)
  return {
    size: state.size,
    shown: state.shown,
    last_entry_at: isoOrNull(state.lastEntryMs),
    waiting_since: isoOrNull(state.waitingSinceMs),
    witnesses: state.witnesses.length,
    problems: logProblems(state, nowMs),
  }
}

/** Reports that no entry can be written, so that nothing new is launched or handed out. */
export function unwritableLog({ log }: Pick<WatchedLog, 'log'>): FoundProblem[] {
  const failure = log.failure()
  if (failure === null) return []
  const detail = `the transparency log cannot be written since ${iso(failure.atMs)}: ${failure.reason}`
  const remedy = 'make room on the disk of the state directory; nothing new is launched or handed out until then'
  return [criticalProblem({ name: 'log', detail, remedy }, failure.atMs)]
}

function view({ log, named, witnesses }: OperatorLog): AdminLog {
  const [key, head] = [log.key(), log.head()]
  const note = head === null ? null : log.signed(head.size)
  const cosigned = new Map(log.cosignatures().map(row => [row.witness, row]))
  return {
    key: key === null ? null : encodeNoteKey(key),
    size: head?.size ?? 0,
    shown: log.shown(),
    note: note === null ? null : encodeNote(note),
    witnesses: named.map(({ key: { name }, url }) => {
      const found = cosigned.get(name)
      return {
        name,
        url,
        size: found?.size ?? null,
        cosigned_at: isoOrNull(found?.atMs ?? null),
        problem: witnesses.problem(name),
      }
    }),
  }
}
