// Where the time of a VM's boot and claim goes: the daemon's journal and the guest's console, put together. Effects:
// reads files, asks the daemon.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AdminEvent } from '../../../src/contract/admin/admin.ts'
import type { Appliance } from '../../rigs/appliance.ts'

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
  /** The claim's files, the host name, sshd. */
  'Claim',
  /** The evidence over a nonce, its verification, and the receipt handed back. */
  'Evidence',
  /** The network opened, and the SSH handshake. */
  'Probe',
] as const

export type Timeline = Partial<Record<(typeof PHASES)[number], number>>

/** Console line of the guest at the end of each phase. */
const MARKS = {
  Firmware: 'Booting from ROM',
  Userland: 'agent started',
  Agent: 'agent ready',
} as const satisfies Partial<Record<(typeof PHASES)[number], string>>

/** Journal event of the daemon at the end of each phase. */
const EVENTS = { Spawn: 'vm.booting', Hello: 'vm.running' } as const

const pollMs = 10

/**
 * Watches the console of the next VM, or of the waiting one; call it before the create. `timeline` ends the watch;
 * take it once the instance is ready. It lacks phases that were over before the create, or without a line.
 */
export function watchVm(
  appliance: Appliance,
  which: 'next' | 'present',
): { readonly timeline: (instance: string) => Promise<Timeline> } {
  const directory = join(appliance.stateDir, 'vms')
  const before = readdirSync(directory)
  const marked = new Map<string, number>()
  const look = () => {
    const vm = which === 'present' ? before[0] : readdirSync(directory).find(name => !before.includes(name))
    if (vm === undefined) return
    const text = consoleText(join(directory, vm, 'console.log'))
    for (const [phase, mark] of Object.entries(MARKS)) {
      if (!marked.has(phase) && text.includes(mark)) marked.set(phase, Date.now())
    }
  }
  // Lines that a waiting VM has written already belong to phases before the create.
  look()
  const timer = setInterval(look, pollMs)
  return {
    timeline: async instance => {
      clearInterval(timer)
      const { events } = await appliance.admin<{ events: AdminEvent[] }>('instance', 'logs', instance)
      const at = (kind: string) => Date.parse(events.find(event => event.kind === kind)?.at ?? '')
      for (const [phase, kind] of Object.entries(EVENTS)) marked.set(phase, at(kind))
      return { ...phasesBetween(at('instance.accepted'), marked), ...provisionedIn(appliance) }
    },
  }
}

/** Phases in the daemon's record of the newest claim. */
function provisionedIn(appliance: Appliance): Timeline {
  const line = appliance
    .log()
    .split('\n')
    .findLast(text => text.includes('"tookMs"'))
  const { tookMs }: { tookMs?: { claim: number; evidence: number; probe: number } } = JSON.parse(line ?? '{}')
  if (tookMs === undefined) throw new Error('the daemon does not say what a claim took')
  return { Claim: Math.round(tookMs.claim), Evidence: Math.round(tookMs.evidence), Probe: Math.round(tookMs.probe) }
}

function phasesBetween(acceptedAtMs: number, marked: ReadonlyMap<string, number>): Timeline {
  const timeline: Timeline = {}
  let sinceMs = acceptedAtMs
  for (const phase of PHASES) {
    const endMs = marked.get(phase)
    if (endMs === undefined || !(endMs >= sinceMs)) continue
    // The console of a VM that waited has been there all along.
    if (endMs > acceptedAtMs) timeline[phase] = endMs - sinceMs
    sinceMs = endMs
  }
  return timeline
}

function consoleText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    // Not there yet.
    return ''
  }
}
