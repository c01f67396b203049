// Compiles and checks strict schemas of response_format in child processes, so that no client's text blocks the event
// loop. Fails closed: unchecked content is not forwarded. Effects: those of the children.

import { toHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { Deadlines } from '../../base/work/deadlines.ts'
import { UpstreamFault } from '../failure.ts'
import { invalidRequest, type JsonObject } from '../json-text.ts'
import { ChildError, jobMs, type StartSchemaProcess, startSchemaChild } from './child.ts'
import { SchemaPool } from './pool.ts'
import { contentCharsMax, type Reply, schemaText } from './wire.ts'

/**
 * Checks contents. Throws UpstreamFault not_json, schema_violated or check_unavailable. A check that takes too long
 * counts as schema_violated.
 */
export type ContentsCheck = (contents: readonly string[]) => Promise<void>

export type SchemaChecks = {
  /**
   * Compiles the schema. `scope`: requests that may reuse the compiled schema, such as the digest of the client's
   * key; default: this request alone. Faults: invalid_request (not JSON Schema 2020-12, unsupported, or too much
   * work), rate_limited, UpstreamFault check_unavailable. Rejects with the signal's reason.
   */
  readonly prepare: (schema: JsonObject, by: SchemaClient) => Promise<ContentsCheck>
  readonly close: () => void
}

export type SchemaClient = { readonly key: string; readonly scope?: string; readonly signal: AbortSignal }

export type SchemaChecksDeps = {
  readonly startProcess: StartSchemaProcess
  readonly clock: Clock
  readonly deadlines: Deadlines
  readonly log: Logger
  readonly random: RandomBytes
}

export function createSchemaChecks(deps: SchemaChecksDeps): SchemaChecks {
  const { startProcess, clock, deadlines, log, random } = deps
  const secret = random(32)
  // The children get neither the prefix nor the digest of a key.
  const hidden = (text: string) => new Bun.CryptoHasher('sha256', secret).update(text).digest('base64url')
  const pool = new SchemaPool({ startChild: () => startSchemaChild(deadlines, startProcess), clock, deadlines })
  const unavailable = () => {
    log.error('schemas of response_format cannot be checked: a child process did not start or was killed')
    return new UpstreamFault('check_unavailable')
  }
  return {
    prepare: async (schema, { key, scope: given, signal }) => {
      const text = schemaText(schema)
      const by = { owner: hidden(key), scope: given === undefined ? toHex(random(16)) : hidden(given) }
      const compiled = await pool
        .run({ key, signal, isUrgent: false, job: { ...by, schema: text, contents: [] } })
        .catch(error => {
          if (!(error instanceof ChildError)) throw error
          if (error.failure === 'lost') throw unavailable()
          throw invalid(`takes more than ${jobMs} ms or too much memory to compile; make it smaller`)
        })
      if (compiled.verdict === 'refused') throw invalid(compiled.message)
      return async contents => {
        if (contents.length === 0) return
        const isTooLong = contents.reduce((sum, content) => sum + content.length, 0) > contentCharsMax
        if (isTooLong) throw new UpstreamFault('schema_violated')
        // JSON has no lone surrogates, and they cannot be sent to the child in UTF-8.
        if (!contents.every(content => content.isWellFormed())) throw new UpstreamFault('not_json')
        const checked = await pool
          .run({ key, signal, isUrgent: true, job: { ...by, schema: text, contents } })
          .catch(error => {
            signal.throwIfAborted()
            if (error instanceof ChildError && error.failure !== 'lost') return late
            throw unavailable()
          })
        if (checked.verdict === 'not_json') throw new UpstreamFault('not_json')
        if (checked.verdict !== 'valid') throw new UpstreamFault('schema_violated')
      }
    },
    close: () => pool.close(),
  }
}

const late: Reply = { verdict: 'violated' }

function invalid(what: string) {
  return invalidRequest(`The schema of response_format ${what}.`)
}
