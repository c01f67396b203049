// The sockets of the admin interface, and the users that the configuration lets in. Effects: looks up users, listens.

import type { Logger } from '../../base/log.ts'
import type { Config } from '../../config/schema.ts'
import { adminSocketName, monitorSocketName } from '../../contract/admin/sockets.ts'
import { gidOf, uidOf } from '../../host/peer.ts'
import { removeFile } from '../../linux/files/removal.ts'
import type { Administrator } from './caller.ts'
import { type AdminServer, type AskedAdmin, listenAdmin } from './socket.ts'

/**
 * Returns the configured administrators. A user that this host does not have gets no rights; the daemon starts anyway.
 */
export function administratorsOf({ operator }: Pick<Config, 'operator'>, log: Logger): Administrator[] {
  return operator.admins.flatMap(({ user, role }) => {
    const uid = uidOf(user)
    if (uid !== null) return [{ uid, user, role }]
    log.error(
      'an administrator in the configuration is not a user of this host, so no one can connect under that name',
      {
        user,
        remedy: 'create the user, or take it out of [[operator.admins]]; then start the daemon again',
      },
    )
    return []
  })
}

/** Opens the sockets. Faults: conflict (another daemon listens there), host.unsupported. */
export async function listenSockets(
  admin: AskedAdmin,
  { config, stateDir, log }: { readonly config: Config; readonly stateDir: string; readonly log: Logger },
): Promise<AdminServer> {
  await using undo = new AsyncDisposableStack()
  // Any user may connect to the socket; strangers are turned away before anything is read.
  const mode = config.operator.admins.length === 0 ? 0o600 : 0o666
  const main = await listenAdmin(`${stateDir}/${adminSocketName}`, admin, { socket: 'admin', mode, gid: null })
  undo.defer(() => main.stop())
  const monitor = await listenMonitor(admin, `${stateDir}/${monitorSocketName}`, config.operator.monitor_group, log)
  if (monitor !== null) undo.defer(() => monitor.stop())
  const all = undo.move()
  return { path: main.path, stop: () => all.disposeAsync() }
}

async function listenMonitor(admin: AskedAdmin, path: string, group: string, log: Logger): Promise<AdminServer | null> {
  const gid = group === '' ? null : gidOf(group)
  if (gid !== null) return listenAdmin(path, admin, { socket: 'monitor', mode: 0o660, gid })
  // A daemon with another configuration may have left the socket behind.
  removeFile(path)
  if (group !== '') {
    log.error('operator.monitor_group is no group of this host, so there is no socket for it', {
      group,
      remedy: 'create the group (groupadd --system), then start the daemon again',
    })
  }
  return null
}
