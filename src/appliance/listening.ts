// Starts a listener; a failure names the field of the configuration that requested it. Effects: those of the start.

import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import type { Listener } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'

/**
 * Result of `start`. Fault host.listen_failed, with the field. It does not wait and retry: the daemon exits with code
 * 1 and systemd starts it again.
 */
export function startListener<T>(name: Listener, listen: Config['listen'], start: () => T): Promise<Awaited<T>> {
  return startAt({ field: `listen.${name}`, address: listen[name] }, start)
}

/** The same for a listener whose address stands elsewhere. */
export async function startAt<T>(
  at: { readonly field: string; readonly address: string },
  start: () => T,
): Promise<Awaited<T>> {
  try {
    return await start()
  } catch (error) {
    const { field, address } = at
    const cause = error instanceof Fault ? error.cause : error
    const reason = REASONS[systemErrorCode(cause) ?? ''] ?? messageOf(error)
    throw new Fault('host.listen_failed', `${field} = "${address}": ${reason}`, { param: field, cause: error })
  }
}

const REASONS: { readonly [code: string]: string } = {
  EADDRINUSE: 'another process has this port',
  EADDRNOTAVAIL: 'this host does not have this address',
  EACCES: 'permission denied; only root may use this port',
}
