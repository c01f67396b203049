// Where the time of a VM's boot goes: the daemon's journal and the guest's console, put together. Effects: reads files, asks the daemon.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AdminEvent } from '../../src/contract/admin.ts'
import type { Appliance } from '../../test/rigs/appliance.ts'

/** Each begins where the one before it ends. */
export const PHASES = [
  /** From the accepted create to a QEMU that runs. */
  'Spawn',
  /** To the hand-over to the kernel. */
  'Firmware',
  /** Kernel, initrd, verity, init, and the start of the agent's executable up to its first line. */
  'Userland',
  /** To the agent's open port, claims restored. */
  'Agent',
  /** Its keys, its hello, its network. */
  'Hello',
] as const

export type BootTimeline = Partial<Record<(typeof PHASES)[number], number>>

const MARKS = { handedOver: 'Booting from ROM', started: '"agent started"', ready: '"agent ready"' } as const
type Marks = Partial<Record<keyof typeof MARKS, number>>

const pollMs = 10

/** Begins to watch the console of the next VM; call it before that is asked for. `timeline` ends the watch; take it once the instance is ready. */
export function watchBoot(appliance: Appliance): { readonly timeline: (instance: string) => Promise<BootTimeline> } {
  const directory = join(appliance.stateDir, 'vms')
  const before = new Set(readdirSync(directory))
  const marks: Marks = {}
  const timer = setInterval(() => {
    const vm = readdirSync(directory).find(name => !before.has(name))
    if (vm === undefined) return
    const text = consoleText(join(directory, vm, 'console.log'))
    for (const mark of ['handedOver', 'started', 'ready'] as const) {
      if (text.includes(MARKS[mark])) marks[mark] ??= Date.now()
    }
  }, pollMs)
  return {
    timeline: async instance => {
      clearInterval(timer)
      const { events } = await appliance.admin<{ events: AdminEvent[] }>('instance', 'logs', instance)
      const at = (kind: string) => {
        const event = events.find(one => one.kind === kind)
        return event === undefined ? undefined : Date.parse(event.at)
      }
      const ends = [at('vm.booting'), marks.handedOver, marks.started, marks.ready, at('vm.running')]
      const starts = [at('instance.accepted'), ...ends]
      return Object.fromEntries(
        PHASES.flatMap((phase, i) => {
          const [start, end] = [starts[i], ends[i]]
          return start === undefined || end === undefined ? [] : [[phase, end - start]]
        }),
      )
    },
  }
}

function consoleText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    // Not there yet.
    return ''
  }
}
