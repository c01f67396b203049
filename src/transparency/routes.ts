// The transparency log over HTTP: read-only, without a key. Effects: reads the log.

import { encodeNote, encodeNoteKey } from '../attest/log/note.ts'
import { tileAt } from '../attest/log/tiles.ts'
import { fromHex } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import type { EdgeContext, EdgeRoute } from '../http/edge.ts'
import { UnavailableFault } from '../http/limited.ts'
import { joined } from '../http/operations.ts'
import type { TransparencyLog } from './log.ts'
import { LOG_OPERATIONS, type LogOperation } from './operations.ts'

export type LogReader = Pick<TransparencyLog, 'checkpoint' | 'tile' | 'proof' | 'key' | 'failure'>

export type LogPeer = {
  /** The client's address; a function because it costs a system call. */
  readonly address: () => string
}

export type LogRoutesDeps = {
  readonly log: LogReader
  /** Counts a request by its address. Fault rate_limited. */
  readonly admit: (address: string) => void
}

/** Any page may read it. */
const everybody = { 'Access-Control-Allow-Origin': '*' }
const forever = { 'Cache-Control': 'public, max-age=31536000, immutable' }

const HANDLERS: Readonly<Record<LogOperation, (log: LogReader, context: EdgeContext) => Response>> = {
  logCheckpoint: log => plain(begun(log, log.checkpoint()), encodeNote),
  logTile: tile,
  logLaterTile: tile,
  logLaterPartialTile: tile,
  logProof: (log, { params }) => {
    const leaf = fromHex(params.leaf ?? '')
    return plain(leaf?.length === leafBytes ? log.proof(leaf) : null, proof => proof)
  },
  logKey: log => plain(begun(log, log.key()), key => `${encodeNoteKey(key)}\n`),
}

export function logRoutes({ log, admit }: LogRoutesDeps): EdgeRoute<LogPeer>[] {
  return joined(LOG_OPERATIONS, HANDLERS).map(({ row: handle, ...place }) => ({
    ...place,
    respond: context => {
      admit(context.address())
      return handle(log, context)
    },
  }))
}

const leafBytes = 32
const retryMs = 60_000

function tile(log: LogReader, { params }: EdgeContext): Response {
  const { level = '', a = '', b, c } = params
  const asked = tileAt(['tile', level, a, b, c].filter(part => part !== undefined).join('/'))
  const bytes = asked === null ? null : log.tile(asked)
  if (bytes === null) throw new Fault('not_found', 'The log has no such tile.')
  const headers = { ...everybody, ...forever, 'Content-Type': 'application/octet-stream' }
  return new Response(new Uint8Array(bytes), { headers })
}

/** Without room on its disk a log cannot begin: that is another matter than a host that has none. */
function begun<T>(log: LogReader, found: T | null): T | null {
  if (found !== null || log.failure() === null) return found
  throw new UnavailableFault('The transparency log cannot be written at present; tell the operator.', retryMs, {
    code: 'store.unwritable',
  })
}

function plain<T>(found: T | null, toText: (found: T) => string): Response {
  if (found === null) throw new Fault('not_found', 'The log does not have it.')
  return new Response(toText(found), { headers: { ...everybody, 'Content-Type': 'text/plain;charset=utf-8' } })
}
