// Starts our program in a VM (agent, builder, gateway): log, agent port, report device, network; then serves the
// channel until it fails. Effects: all of these.

import * as fs from 'node:fs'
import { type Clock, systemClock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { createLogger, type Logger } from '../base/log.ts'
import { matches } from '../contract/check.ts'
import { Closed } from '../contract/forms.ts'
import { Type } from '../contract/type.ts'
import { run } from '../linux/command.ts'
import { type Owner, readTextOrNull } from '../linux/files.ts'
import { type Channel, createChannel, openPort } from './channel.ts'
import { openLogFile } from './log-file.ts'
import { createNetworking, type Networking } from './network.ts'
import type { GuestPaths } from './paths.ts'
import { powerOff } from './power.ts'
import { type ConfigFiles, kernelFiles } from './report/configfs.ts'
import type { ReportDevice } from './report/device.ts'
import { findReportDevice } from './report/find.ts'
import type { HandleLine } from './requests.ts'
import { encodeResponse, jsonOf, type ReceivedLine } from './wire.codec.ts'

/** The outer edge of every program; tests replace it. */
export type ProgramSettings = {
  /** Before every path of GuestPaths. */
  readonly root: string
  /** Owner of system files. */
  readonly system: Owner
  readonly interfaceWaitMs: number
  readonly devicesWaitMs: number
  readonly configFiles: ConfigFiles
  /** Shows a boot stage on the host's console, where the host sees nothing else of the program. */
  readonly showStage: (stage: string) => void
  readonly openPort: (paths: GuestPaths, clock: Clock) => Promise<{ readonly readFd: number; readonly writeFd: number }>
  readonly run: typeof run
  readonly powerOff: typeof powerOff
}

/** Inside a VM: guest-image/common has the other half of these. */
export const programSettings: ProgramSettings = {
  root: '',
  system: { uid: 0, gid: 0 },
  interfaceWaitMs: 20_000,
  devicesWaitMs: 20_000,
  configFiles: kernelFiles,
  showStage,
  openPort: async (paths, clock) => {
    const fd = await openPort(paths, { clock, waitMs: portWaitMs })
    return { readFd: fd, writeFd: fd }
  },
  run,
  powerOff,
}

const portWaitMs = 60_000

type ProgramStart = {
  /** In the log's first line and in the boot stages. */
  readonly name: string
  readonly version: string
  readonly paths: GuestPaths
  /** Unit of the log's lines. */
  readonly unit: string
  /** Null for the log file `agent.log`. */
  readonly sink: ((line: string) => void) | null
}

type Program = {
  readonly clock: Clock
  readonly log: Logger
  readonly channel: Promise<Channel>
  /** Null on a platform without reports. */
  readonly device: Promise<ReportDevice | null>
  readonly networking: Networking
  /** Shows the last boot stage. */
  readonly ready: () => void
  /** Rejects when the channel or `needed` fails: then init starts the program again. */
  readonly serve: (channel: Channel, service: Service) => Promise<never>
}

type Service = {
  readonly needed: Promise<unknown>
  readonly handle: HandleLine
}

export function startProgram(settings: ProgramSettings, { name, version, paths, unit, sink }: ProgramStart): Program {
  const { system: owner, interfaceWaitMs, devicesWaitMs, configFiles, showStage, run } = settings
  const clock = systemClock
  process.umask(0o022)
  fs.mkdirSync(paths.runDir, { recursive: true, mode: 0o755 })
  const log = createLogger({
    level: 'info',
    sink: sink ?? openLogFile(paths.logDir, 'agent', owner).write,
    nowMs: clock.nowMs,
    name: unit,
  })
  log.info(`${name} started`, { version })
  showStage(`${name} started, version ${version}`)
  const channel = settings.openPort(paths, clock).then(port => createChannel({ ...port, clock }))
  const device = findReportDevice({ paths, files: configFiles, clock, devicesWaitMs })
  device.catch(() => {}) // reported where it is awaited
  return {
    clock,
    log,
    channel,
    device,
    networking: createNetworking({ paths, owner, clock, run, interfaceWaitMs }),
    ready: () => {
      log.info(`${name} ready`)
      showStage(`${name} ready`)
    },
    serve: async (channel, service) => {
      await serveChannel(channel, service, () => settings.powerOff({ clock, log }))
      throw new Error('invariant broken: the channel ended without an error')
    },
  }
}

async function serveChannel(
  channel: Channel,
  { needed, handle }: Service,
  powerOff: () => Promise<void>,
): Promise<void> {
  const failed = Promise.withResolvers<never>()
  const serveLine = async (line: ReceivedLine) => {
    const handled = await handle(line)
    if (handled === null) return
    await channel.send(encodeResponse(handled.response))
    if (handled.next === 'power_off') await powerOff()
  }
  const received = channel.receive(line => void serveLine(line).catch(failed.reject), new AbortController().signal)
  await Promise.race([failed.promise, Promise.all([received, needed])])
}

const ImageFile = Closed({ name: Type.String({ minLength: 1, maxLength: 64 }) })

/** The image's name, from the measured root. Fault internal: an image without a name cannot be attested. */
export function imageNameIn({ imageFile }: Pick<GuestPaths, 'imageFile'>): string {
  const image = jsonOf(readTextOrNull(imageFile) ?? 'null')
  if (!matches(ImageFile, image)) throw new Fault('internal', `read ${imageFile}: no image name`)
  return image.name
}

/** Hexadecimal verity root hash from the kernel's command line, which is measured. */
export function rootHashIn({ commandLine }: Pick<GuestPaths, 'commandLine'>): string | null {
  const words = readTextOrNull(commandLine)?.trim() ?? ''
  return /(?:^| )strongroom\.root_hash=([0-9a-f]{64})(?: |$)/.exec(words)?.[1] ?? null
}

/** Writes to the console without a stream (init made it standard output). A console that fails stops nothing. */
function showStage(stage: string): void {
  try {
    fs.writeSync(1, `strongroom: ${stage}\n`)
  } catch {
    // The log has it too.
  }
}
