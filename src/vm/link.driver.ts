// Connections to one running QEMU: monitor, agent channel, console. Effects: three UNIX sockets.
//
// Events sent without a connection are lost, so attaching requests the status. A VM that waits for its first `cont`
// gets it.

import { lstatSync } from 'node:fs'
import { Fault } from '../base/fault.ts'
import { type RandomBytes, randomName } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import type { Hello } from '../contract/vm/agent-responses.ts'
import { type Channel, type ChannelLimits, connectChannel } from '../host/qemu/agent-channel.ts'
import { connectConsole } from '../host/qemu/console.ts'
import { connectQmp, type Qmp, qmpTimeoutMs } from '../host/qemu/qmp.ts'
import type { VmPaths } from './launch.plan.ts'

export type VmLink = {
  readonly qmp: Qmp
  readonly channel: Channel
  readonly observe: () => LinkObservation
  /** Requests the guest's hello unless a request is open. The answer is reported as a change. */
  readonly greet: (timeoutMs: number) => void
  /** Drops the guest's hello, because its agent has restarted with other keys. */
  readonly forget: () => void
  /** Resumes a paused VM. It may pause again before this resolves. Faults: qmp.*. */
  readonly resume: () => Promise<void>
  readonly close: () => void
}

export type LinkObservation = {
  /** Whether a connection has ended, so that QEMU has ended or is about to. */
  readonly closed: boolean
  /** Whether the guest has powered off or panicked; QEMU holds it paused. */
  readonly stopped: boolean
  /** Whether QEMU holds it until its scratch disk can be written again. */
  readonly paused: boolean
  readonly hello: Hello | null
}

export type LinkDeps = {
  readonly paths: VmPaths
  readonly consoleBytesMax: number
  readonly channelLimits: ChannelLimits
  readonly timeoutMs: number
  /** Stops waiting for connections. */
  readonly signal: AbortSignal
  readonly random: RandomBytes
  readonly log: Logger
  /** Called whenever an observation may have changed. */
  readonly onChange: () => void
}

const STOPPED = new Set(['shutdown', 'guest-panicked', 'internal-error'])
const WAITING_FOR_CONT = new Set(['prelaunch', 'inmigrate'])

/** Connects everything, then resumes a paused VM. Faults: qmp.*, channel.*. */
export async function attachLink(deps: LinkDeps): Promise<VmLink> {
  let closed = false
  let stopped = false
  let paused = false
  let hello: Hello | null = null
  let greeting = false
  const opened: { close: () => unknown }[] = []
  const close = () => {
    for (const connection of opened.splice(0)) connection.close()
  }
  const onClose = () => {
    closed = true
    deps.onChange()
  }
  for (const path of [deps.paths.qmp, deps.paths.console, deps.paths.channel]) refuseUnlessSocket(path)
  try {
    const qmp = await connectQmp(deps.paths.qmp, {
      timeoutMs: deps.timeoutMs,
      signal: deps.signal,
      log: deps.log,
      onClose,
      onEvent: event => {
        if (event.event === 'BLOCK_IO_ERROR' && event.data.action === 'stop') {
          paused = true
          deps.onChange()
        }
        if (event.event !== 'SHUTDOWN' && event.event !== 'GUEST_PANICKED') return
        stopped = true
        deps.onChange()
      },
    })
    opened.push(qmp)
    const recorder = await connectConsole(deps.paths.console, {
      dir: deps.paths.directory,
      bytesMax: deps.consoleBytesMax,
      timeoutMs: deps.timeoutMs,
      signal: deps.signal,
      onClose: () => {},
      log: deps.log,
    })
    opened.push(recorder)
    const idPrefix = randomName(12, deps.random)
    const channel = await connectChannel(deps.paths.channel, {
      idPrefix,
      timeoutMs: deps.timeoutMs,
      signal: deps.signal,
      onClose,
      log: deps.log,
      limits: deps.channelLimits,
    })
    opened.push(channel)
    const { status } = await qmp.command('query-status', qmpTimeoutMs.blocking)
    if (WAITING_FOR_CONT.has(status)) await qmp.command('cont', qmpTimeoutMs.blocking)
    stopped ||= STOPPED.has(status)
    paused ||= status === 'io-error'
    return {
      qmp,
      channel,
      close,
      observe: () => ({ closed, stopped, paused, hello }),
      resume: async () => {
        paused = false
        await qmp.command('cont', qmpTimeoutMs.blocking).catch(error => {
          paused = true
          throw error
        })
      },
      forget: () => {
        hello = null
      },
      greet: timeoutMs => {
        if (greeting || hello !== null) return
        greeting = true
        channel
          .hello(timeoutMs)
          .then(answer => {
            hello = answer
          })
          .catch(error => deps.log.warn('the agent has not said hello', { error }))
          .finally(() => {
            greeting = false
            deps.onChange()
          })
      },
    }
  } catch (error) {
    close()
    throw error
  }
}

/**
 * Refuses links, because connect(2) follows them, even to another VM's socket. A missing socket is accepted, because
 * connecting waits for it. Throws Fault qmp.closed.
 */
function refuseUnlessSocket(path: string): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.isSocket() === false) {
    throw new Fault('qmp.closed', `${path} is no socket`)
  }
}
