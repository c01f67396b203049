// A user namespace (user_namespaces(7)) for one builder. The builder's fixed users are users of the namespace alone, so
// several suites on one machine neither end nor count each other's processes. Effects: a process; needs root.

import { readlinkSync, writeFileSync } from 'node:fs'
import { uids } from '../../../src/builder/phase.ts'
import { until } from '../until.ts'
import { placesMax, type VmPlace } from './vm-places.ts'

const firstUid = 800_000
const usersPerBuilder = 3
/** Test processes whose users differ. */
const processesMax = 50_000

export type OwnUsers = {
  /** User of a build's programs, as this machine counts users. */
  readonly buildUid: number
  readonly spawn: (argv: readonly string[], options: SpawnOptions) => Promise<Bun.Subprocess>
}

type SpawnOptions = { readonly output: number; readonly env: Record<string, string | undefined> }

/** Users that no other builder of this machine has. */
export function ownUsers({ index }: Pick<VmPlace, 'index'>): OwnUsers {
  const place = (process.pid % processesMax) * placesMax + index
  const outside = firstUid + place * usersPerBuilder
  const rest = uids.fetch + usersPerBuilder
  // Inside, outside, length: all below `firstUid` but these are the machine's own.
  const map = [
    [0, 0, uids.fetch],
    [uids.fetch, outside, usersPerBuilder],
    [rest, rest, firstUid - rest],
  ]
  return {
    buildUid: outside + uids.build - uids.fetch,
    spawn: async (argv, { output, env }) => {
      const waiting = ['unshare', '--user', 'sh', '-c', 'read -r _ && exec "$@" </dev/null', 'sh', ...argv]
      const child = Bun.spawn(waiting, { stdio: ['pipe', output, output], env })
      const namespaceOf = (pid: number | 'self') => readlinkSync(`/proc/${pid}/ns/user`)
      await until('it has a user namespace', 60_000, () => {
        if (child.exitCode !== null) throw new Error(`unshare: exit code ${child.exitCode}`)
        return namespaceOf(child.pid) !== namespaceOf('self')
      })
      const lines = map.map(line => `${line.join(' ')}\n`).join('')
      for (const kind of ['uid', 'gid']) writeFileSync(`/proc/${child.pid}/${kind}_map`, lines)
      child.stdin.write('go on\n')
      await child.stdin.end()
      return child
    },
  }
}
