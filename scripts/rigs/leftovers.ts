// Traces of an appliance on this host, from the kernel and the disk rather than from the appliance. Effects: reads.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isNetns } from '../../src/host/network/netns.ts'
import { listTpms } from '../../src/vm/launch/tpm.driver.ts'
import { insideVms, usualFile } from './inside.ts'

export type Holdings = {
  readonly taps: readonly string[]
  readonly nftObjects: readonly string[]
  readonly processes: readonly string[]
  readonly directories: readonly string[]
  readonly routes: readonly string[]
}

export const NOTHING: Holdings = { taps: [], nftObjects: [], processes: [], directories: [], routes: [] }

/**
 * Everything that belongs to VMs of the appliance with this state directory, in our network namespace and in that of
 * VMs. The link between the two stays.
 */
export function holdings(stateDir: string): Holdings {
  type Ruleset = { nftables: { quota?: { name: string }; counter?: { name: string } }[] }
  const places = isNetns(usualFile) ? [plainly, insideVms] : [plainly]
  const rulesets = places.map(within => json<Ruleset>(...within(['nft', '--json', 'list', 'ruleset'])))
  const links = places.flatMap(within => json<{ ifname: string }[]>(...within(['ip', '-json', 'link', 'show'])))
  const routes = places.flatMap(within =>
    ['-4', '-6'].flatMap(family =>
      json<{ dst: string; dev: string }[]>(...within(['ip', family, '-json', 'route', 'show'])),
    ),
  )
  return {
    taps: links.map(link => link.ifname).filter(name => name.startsWith('sr') && !name.includes('-')),
    nftObjects: rulesets
      .flatMap(({ nftables }) => nftables)
      .flatMap(({ quota, counter }) => [quota?.name ?? [], counter?.name ?? []].flat()),
    processes: [...qemuProcesses(stateDir), ...tpmProcesses(stateDir)].map(pid => `${pid}`),
    directories: existsSync(join(stateDir, 'vms')) ? readdirSync(join(stateDir, 'vms')) : [],
    routes: routes.filter(({ dev, dst }) => dev?.startsWith('sr') && dst !== 'default').map(route => route.dst),
  }
}

/** Pids of the QEMU processes whose sockets are in this state directory; not of programs that prepare their files. */
export function qemuProcesses(stateDir: string): number[] {
  return readdirSync('/proc')
    .filter(name => /^[0-9]+$/.test(name))
    .filter(pid => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
        return words.includes(`${stateDir}/vms/`) && /(^|\/)qemu-system-[^/\0]*$/.test(words.split('\0', 1)[0] ?? '')
      } catch {
        return false
      }
    })
    .map(Number)
}

/** Pids of the swtpm processes of this state directory's VMs. */
export function tpmProcesses(stateDir: string): number[] {
  return listTpms(stateDir).map(({ pid }) => pid)
}

function plainly(argv: readonly string[]): string[] {
  return [...argv]
}

function json<T>(...argv: string[]): T {
  const { stdout, exitCode, stderr } = Bun.spawnSync(argv)
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr.toString()}`)
  return JSON.parse(stdout.toString() || '[]') as T
}
