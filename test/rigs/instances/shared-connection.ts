// One SSH connection for many commands: a login costs the emulated processor of a guest a second and more. Effects: an
// ssh process, a socket in the appliance's directory.

import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'

export type SharedConnection = AsyncDisposable & {
  /** Options of ssh, scp and sftp by which they share it. */
  readonly options: readonly string[]
}

/** `own`: further options of the login. */
export async function sharedConnection(
  appliance: Appliance,
  hostname: string,
  own: readonly string[] = [],
): Promise<SharedConnection> {
  const path = join(appliance.directory, `connection-${crypto.randomUUID().slice(0, 8)}`)
  const options = ['-o', `ControlPath=${path}`]
  const first = appliance.sshSession(hostname, 'echo there; read line', ...own, '-M', ...options)
  await first.printed('there', 120_000)
  return {
    options,
    [Symbol.asyncDispose]: async () => {
      first.type('\n')
      await first.exited
    },
  }
}
