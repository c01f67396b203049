// A cgroup for the programs of a phase: limits memory, processes and CPU, and kills all of them together. Effects:
// cgroup2 (Documentation/admin-guide/cgroup-v2.rst).

import * as fs from 'node:fs'
import type { Clock } from '../../base/clock.ts'
import { Fault, systemErrorCode, wrapFault } from '../../base/fault.ts'

type CgroupLimits = {
  readonly memoryBytes: number
  readonly pids: number
}

/** Location of the cgroups. `needed`: controllers that are required. */
export type CgroupSite = { readonly root: string; readonly needed: readonly Controller[] }
const controllers = ['memory', 'pids', 'cpu', 'io'] as const
type Controller = (typeof controllers)[number]

/** The limit that was exceeded, or null. */
type Exhausted = 'memory' | 'pids' | null

export type Cgroup = {
  readonly dir: string
  readonly exhausted: () => Exhausted
  /** Kills all processes, waits for the last one, and removes the cgroup. Idempotent. Fault host.command_timeout. */
  readonly end: () => Promise<void>
}

const prefix = 'strongroom-'
const endTimeoutMs = 30_000
const pollMs = 10
/** CPU weight in competition with the VM's own agent, which has 100. */
const weight = '50'

/** Creates a cgroup. Fault host.unsupported if a controller is missing, or the limits cannot be set. */
export function createCgroup(site: CgroupSite, name: string, limits: CgroupLimits, clock: Clock): Cgroup {
  const dir = `${site.root}/${prefix}${name}`
  const has = enable(site)
  try {
    fs.mkdirSync(dir)
    const set = (controller: Controller, file: string, value: string) => {
      if (has.has(controller)) fs.writeFileSync(`${dir}/${file}`, value)
    }
    set('memory', 'memory.max', String(limits.memoryBytes))
    // All or nothing: a build that lost one of its compilers would fail later without a visible reason.
    set('memory', 'memory.oom.group', '1')
    set('pids', 'pids.max', String(limits.pids))
    set('cpu', 'cpu.weight', weight)
    // Exists only if the kernel's disk scheduler supports weights.
    if (fs.existsSync(`${dir}/io.weight`)) set('io', 'io.weight', weight)
  } catch (error) {
    throw new Fault('host.unsupported', wrapFault(error, `cgroup ${dir}`).message, { cause: error })
  }
  const count = (file: string, event: string): number => {
    const text = readOrEmpty(`${dir}/${file}`)
    return Number(new RegExp(`^${event} (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
  }
  // Cached, because the counters are removed with the directory.
  let met: Exhausted = null
  const exhausted = (): Exhausted => {
    if (met === null && count('memory.events', 'oom_kill') + count('memory.events', 'oom_group_kill') > 0)
      met = 'memory'
    if (met === null && count('pids.events', 'max') > 0) met = 'pids'
    return met
  }
  return {
    dir,
    exhausted,
    end: async () => {
      exhausted()
      await endCgroup(dir, clock)
    },
  }
}

/** Ends processes that a crashed builder left behind. Fault host.command_timeout. */
export async function endLeftCgroups({ root }: CgroupSite, clock: Clock): Promise<void> {
  const names = fs.existsSync(root) ? fs.readdirSync(root) : []
  for (const name of names.filter(name => name.startsWith(prefix))) await endCgroup(`${root}/${name}`, clock)
}

/** Enables the controllers for the children, and returns them. */
function enable({ root, needed }: CgroupSite): ReadonlySet<Controller> {
  const offered = readOrEmpty(`${root}/cgroup.controllers`).trim().split(/\s+/)
  const missing = needed.filter(kind => !offered.includes(kind))
  if (missing.length > 0)
    throw new Fault('host.unsupported', `cgroup ${root}: controller not available: ${missing.join(', ')}`)
  const enabled = new Set<Controller>()
  for (const controller of controllers) {
    if (!offered.includes(controller)) continue
    try {
      fs.writeFileSync(`${root}/cgroup.subtree_control`, `+${controller}`)
      enabled.add(controller)
    } catch (error) {
      if (needed.includes(controller))
        throw new Fault('host.unsupported', wrapFault(error, `cgroup ${root}: ${controller}`).message, { cause: error })
    }
  }
  return enabled
}

async function endCgroup(dir: string, clock: Clock): Promise<void> {
  const untilMs = clock.monotonicMs() + endTimeoutMs
  for (;;) {
    try {
      fs.writeFileSync(`${dir}/cgroup.kill`, '1')
      fs.rmdirSync(dir)
      return
    } catch (error) {
      if (systemErrorCode(error) === 'ENOENT') return
      // Busy: killed processes are not reaped yet.
      if (systemErrorCode(error) !== 'EBUSY') throw wrapFault(error, `end cgroup ${dir}`)
    }
    if (clock.monotonicMs() >= untilMs)
      throw new Fault('host.command_timeout', `cgroup ${dir}: its processes did not end`)
    await clock.sleep(pollMs)
  }
}

function readOrEmpty(path: string): string {
  try {
    return fs.readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
