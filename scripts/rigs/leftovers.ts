// Traces of an appliance on this host, from the kernel and the disk rather than from the appliance. Effects: reads.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { listTpms } from '../../src/vm/launch/tpm.driver.ts'

export type Holdings = {
  readonly taps: readonly string[]
  readonly nftObjects: readonly string[]
  readonly processes: readonly string[]
  readonly directories: readonly string[]
  readonly routes: readonly string[]
}

export const NOTHING: Holdings = { taps: [], nftObjects: [], processes: [], directories: [], routes: [] }

/** Everything that belongs to VMs of the appliance with this state directory, in our network namespace. */
export function holdings(stateDir: string): Holdings {
  const ruleset = json<{ nftables: { quota?: { name: string }; counter?: { name: string } }[] }>(
    'nft',
    '--json',
    'list',
    'ruleset',
  )
  const links = json<{ ifname: string }[]>('ip', '-json', 'link', 'show')
  const routes = ['-4', '-6'].flatMap(family =>
    json<{ dst: string; dev: string }[]>('ip', family, '-json', 'route', 'show'),
  )
  return {
    taps: links.map(link => link.ifname).filter(name => name.startsWith('sr')),
    nftObjects: ruleset.nftables.flatMap(({ quota, counter }) => [quota?.name ?? [], counter?.name ?? []].flat()),
    processes: [...qemuProcesses(stateDir), ...tpmProcesses(stateDir)].map(pid => `${pid}`),
    directories: existsSync(join(stateDir, 'vms')) ? readdirSync(join(stateDir, 'vms')) : [],
    routes: routes.filter(route => route.dev.startsWith('sr')).map(route => route.dst),
  }
}

/** Pids of the QEMU processes whose sockets are in this state directory. */
export function qemuProcesses(stateDir: string): number[] {
  return readdirSync('/proc')
    .filter(name => /^[0-9]+$/.test(name))
    .filter(pid => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`${stateDir}/vms/`)
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

function json<T>(...argv: string[]): T {
  const { stdout, exitCode, stderr } = Bun.spawnSync(argv)
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr.toString()}`)
  return JSON.parse(stdout.toString() || '[]') as T
}
