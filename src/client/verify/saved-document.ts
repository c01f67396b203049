// Rejects options of a connection for a saved document, for which they would have no effect. Pure.

import { InputFault } from '../../terminal/exit.ts'

/** Default timeout of a response, in milliseconds. */
export const timeoutMsDefault = 30_000

/** Options of a connection, by name without dashes; undefined if not given. */
export type ConnectionOptions = Readonly<Partial<Record<'ca' | 'timeout-ms' | 'api' | 'key-file', unknown>>>

/** Throws Fault invalid_request for the first given option. Call it if `--document` is given. */
export function refuseConnectionOptions(given: ConnectionOptions): void {
  const [param] = Object.entries(given).find(([, value]) => value !== undefined) ?? []
  if (param === undefined) return
  const forLog = param === 'ca' ? '; the authority of a log is --log-ca' : ''
  throw new InputFault(`--${param} is for a connection, and a saved --document needs none`, {
    param,
    remedy: `leave out --${param}, or --document${forLog}`,
  })
}
