// A saved document has no connection, so that options of one would have no effect beside it. Pure.

import { InputFault } from '../../terminal/exit.ts'

/** Longest wait for a response, in milliseconds, unless `--timeout-ms` is given. */
export const timeoutMsDefault = 30_000

/** Options of a connection, by their names without the dashes; undefined if not given. */
export type ConnectionOptions = Readonly<Partial<Record<'ca' | 'timeout-ms' | 'api' | 'key-file', unknown>>>

/** Fault invalid_request for the first option that is given. Call it where `--document` is given. */
export function refuseConnectionOptions(given: ConnectionOptions): void {
  const [param] = Object.entries(given).find(([, value]) => value !== undefined) ?? []
  if (param === undefined) return
  const forLog = param === 'ca' ? '; the authority of a log is --log-ca' : ''
  throw new InputFault(`--${param} is for a connection, and a saved --document needs none`, {
    param,
    remedy: `leave out --${param}, or --document${forLog}`,
  })
}
