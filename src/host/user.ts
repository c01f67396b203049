// Users of this machine. Effects: reads /etc/passwd (passwd(5)).

import { readFileSync } from 'node:fs'
import { Fault } from '../base/fault.ts'
import type { Owner } from '../linux/files.ts'

/** User and primary group id by name. Fault host.unsupported when there is no such user. */
export function lookupUser(name: string, passwdFile = '/etc/passwd'): Owner {
  for (const line of readFileSync(passwdFile, 'utf8').split('\n')) {
    const [user, , uid, gid] = line.split(':')
    if (user === name && uid && gid) return { uid: Number(uid), gid: Number(gid) }
  }
  throw new Fault('host.unsupported', `there is no user ${name} on this host; create it, or set vm.user`)
}
