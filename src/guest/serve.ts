// Role `agent`: puts the parts together and serves the channel until the device fails. Effects: everything the parts do.

import * as fs from 'node:fs'
import { type Clock, systemClock } from '../base/clock.ts'
import { createLogger } from '../base/log.ts'
import { run } from '../linux/command.ts'
import type { Owner } from '../linux/files.ts'
import { type Agent, createAgent } from './agent.ts'
import { type Channel, createChannel, openPort } from './channel.ts'
import { createClaiming } from './claim.ts'
import { createIdentity, type Identity } from './identity.ts'
import { createNetworking } from './network.ts'
import { type GuestPaths, guestPaths } from './paths.ts'
import { powerOff } from './power.ts'
import { createSshd } from './sshd.ts'
import { encodeResponse, type ReceivedLine } from './wire.codec.ts'

/** What the agent runs on; tests give it a directory of their own. */
export type GuestSettings = {
  /** Before every path of guestPaths. */
  readonly root: string
  /** Of system files. */
  readonly system: Owner
  readonly login: Owner
  readonly sshdArgv: readonly [string, ...string[]]
  readonly sshPort: number
  readonly hostKeyWaitMs: number
  readonly interfaceWaitMs: number
  readonly listenTimeoutMs: number
  readonly openPort: (paths: GuestPaths, clock: Clock) => Promise<{ readonly readFd: number; readonly writeFd: number }>
  readonly run: typeof run
  readonly powerOff: typeof powerOff
}

/** Inside the VM: guest-image/common has the other half of these. */
export const guestSettings: GuestSettings = {
  root: '',
  system: { uid: 0, gid: 0 },
  login: { uid: 1000, gid: 1000 },
  sshdArgv: ['/usr/lib/strongroom/sshd'],
  sshPort: 22,
  hostKeyWaitMs: 15_000,
  interfaceWaitMs: 20_000,
  listenTimeoutMs: 30_000,
  openPort: async (paths, clock) => {
    const fd = await openPort(paths, { clock, waitMs: portWaitMs })
    return { readFd: fd, writeFd: fd }
  },
  run,
  powerOff,
}

const portWaitMs = 60_000

/** Rejects when the agent must be started again: no port, a failing device, no keys, a claimed guest whose sshd does not start. */
export async function serveAgent(version: string, settings: GuestSettings): Promise<never> {
  const clock = systemClock
  const log = createLogger({ level: 'info', sink: writeLogLine, nowMs: clock.nowMs, name: 'agent' })
  log.info('agent started', { version })
  const { system: owner, hostKeyWaitMs, interfaceWaitMs } = settings
  const paths = guestPaths(settings.root)
  fs.mkdirSync(paths.runDir, { recursive: true, mode: 0o755 })

  const portOpen = settings.openPort(paths, clock)
  const identity = createIdentity({ paths, clock, hostKeyWaitMs })
  identity.catch(() => {}) // reported where it is awaited
  const sshd = createSshd({ ...settings, paths, owner, clock, log })
  const claiming = createClaiming({ ...settings, paths, sshd, log })
  const networking = createNetworking({ paths, owner, clock, run: settings.run, interfaceWaitMs })

  const port = await portOpen
  await claiming.restore()
  const channel = createChannel({ ...port, clock })
  log.info('agent ready')
  const agent = createAgent({ version, identity, networking, claiming, log })
  await serveChannel({ channel, identity, agent, powerOff: () => settings.powerOff({ clock, log }) })
  throw new Error('invariant broken: the channel ended without an error')
}

type ServeDeps = {
  readonly channel: Channel
  readonly identity: Promise<Identity>
  readonly agent: Agent
  readonly powerOff: () => Promise<void>
}

async function serveChannel({ channel, identity, agent, powerOff }: ServeDeps): Promise<void> {
  const failed = Promise.withResolvers<never>()
  const serveLine = async (line: ReceivedLine) => {
    const handled = await agent.handle(line)
    if (handled === null) return
    await channel.send(encodeResponse(handled.response))
    if (handled.next === 'power_off') await powerOff()
  }
  const received = channel.receive(line => void serveLine(line).catch(failed.reject), new AbortController().signal)
  // Without keys there is nothing to serve, so their failure ends this too.
  await Promise.race([failed.promise, Promise.all([received, identity])])
}

/** Straight to the console: a stream would have to be set up first. A console that cannot be written to must not stop the agent. */
function writeLogLine(line: string): void {
  try {
    fs.writeSync(2, `${line}\n`)
  } catch {
    // There is nowhere else to say it.
  }
}
