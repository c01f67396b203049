// PostgreSQL's programs of Debian's package, run as the server's user and ended with this process. Effects: processes.

import { chownSync, existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const programsRoot = '/usr/lib/postgresql'

/** Directory with the programs of the newest server that is installed; null if there is none. */
const programs = existsSync(programsRoot)
  ? (readdirSync(programsRoot)
      .sort((a, b) => Number(b) - Number(a))
      .map(version => join(programsRoot, version, 'bin'))
      .find(directory => existsSync(join(directory, 'postgres'))) ?? null)
  : null

export const hasPostgres = programs !== null

/** Owns the databases: a role with all rights. */
export const ownerRole = 'owner'

export const isRoot = process.getuid?.() === 0

/** Debian's package makes the user. */
const user = isRoot ? userOf('postgres') : null

/** The account of the server. */
export const serverUid = user?.uid ?? process.getuid?.() ?? 0

function userOf(name: string): { readonly uid: number; readonly gid: number } {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find(line => line.startsWith(`${name}:`))
  const [, , uid, gid] = (line ?? '').split(':')
  return { uid: Number(uid), gid: Number(gid) }
}

export function giveToServer(path: string): void {
  if (user !== null) chownSync(path, user.uid, user.gid)
}

/** As the server's user, ended with this process. */
export function asUser(...argv: string[]): string[] {
  const ends = '--pdeathsig=KILL'
  if (user === null) return ['setpriv', ends, ...argv]
  return ['setpriv', `--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups', ends, ...argv]
}

/** The path of one of its programs. */
export function program(name: string): string {
  return join(programs ?? '', name)
}

/** Runs a program to its end and returns its output. Throws if it fails. */
export async function command(argv: string[], env: Record<string, string> = {}): Promise<string> {
  const child = Bun.spawn(asUser(...argv), {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    cwd: '/',
    env: { ...process.env, ...env },
  })
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (code !== 0) throw new Error(`${argv[0]}: exit ${code}: ${err}`)
  return out
}
