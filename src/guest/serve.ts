// Role `agent`: puts the parts together and serves the channel until the device fails. Effects: everything the parts do.

import * as fs from 'node:fs'
import { Type } from '@sinclair/typebox'
import { Check } from '@sinclair/typebox/value'
import { makeReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import { type Clock, systemClock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { systemRandom } from '../base/ids.ts'
import { createLogger, type Logger } from '../base/log.ts'
import { run } from '../linux/command.ts'
import { type Owner, readTextOrNull } from '../linux/files.ts'
import { nativeKeys } from '../linux/native-keys.ts'
import { createAgent } from './agent.ts'
import { type Channel, createChannel, openPort } from './channel.ts'
import { type ClaimDeps, createClaiming } from './claim.ts'
import { createDaemon } from './daemon.ts'
import { createEvidence } from './evidence.ts'
import { createIdentity } from './identity.ts'
import { gatherFacts } from './lockout/facts.ts'
import { serveLockout } from './lockout/socket.ts'
import { openLogFile } from './log-file.ts'
import { createNetworking } from './network.ts'
import { type GuestPaths, guestPaths } from './paths.ts'
import { powerOff } from './power.ts'
import { type ConfigFiles, kernelFiles } from './report/configfs.ts'
import { findReportDevice } from './report/find.ts'
import { findSvsm } from './report/svsm.ts'
import { openTpmDevice } from './tpm/device.ts'
import { measuredIn } from './tpm/measured.ts'
import { serveTpm } from './tpm/socket.ts'
import { createTpm, type SvsmService, type Tpm } from './tpm/tpm.ts'
import { type BuilderResponse, encodeResponse, jsonOf, type ReceivedLine } from './wire.codec.ts'

/** What the agent runs on; tests give it a directory of their own. */
export type GuestSettings = {
  /** Before every path of guestPaths. */
  readonly root: string
  /** Of system files. */
  readonly system: Owner
  readonly login: Owner
  readonly sshdArgv: readonly [string, ...string[]]
  readonly sshPort: number
  readonly gatewayArgv: readonly [string, ...string[]]
  readonly hostKeyWaitMs: number
  readonly interfaceWaitMs: number
  readonly devicesWaitMs: number
  readonly configFiles: ConfigFiles
  /** Boot stages: all that the host's console sees of the agent. */
  readonly showStage: (stage: string) => void
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
  gatewayArgv: ['/usr/lib/strongroom/gateway'],
  hostKeyWaitMs: 15_000,
  interfaceWaitMs: 20_000,
  devicesWaitMs: 20_000,
  configFiles: kernelFiles,
  showStage,
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
  const { system: owner, hostKeyWaitMs, interfaceWaitMs, devicesWaitMs, showStage } = settings
  const paths = guestPaths(settings.root)
  fs.mkdirSync(paths.runDir, { recursive: true, mode: 0o755 })
  const { write: sink } = openLogFile(paths.logDir, 'agent', owner)
  const log = createLogger({ level: 'info', sink, nowMs: clock.nowMs, name: 'agent' })
  log.info('agent started', { version })
  showStage(`agent started, version ${version}`)

  const portOpen = settings.openPort(paths, clock)
  const identity = createIdentity({ paths, clock, hostKeyWaitMs })
  identity.catch(() => {}) // reported where it is awaited
  const networking = createNetworking({ paths, owner, clock, run: settings.run, interfaceWaitMs })

  const device = findReportDevice({ paths, files: settings.configFiles, clock, devicesWaitMs })
  device.catch(() => {}) // reported where it is awaited
  const svsm = device.then(found => (found === null ? null : findSvsm(paths.tsmReports, settings.configFiles)))
  const tpm = guestTpm({ paths, svsm, clock, log })
  const evidence = createEvidence({
    paths,
    owner,
    device,
    nowMs: clock.nowMs,
    keys: makeReceiptKeys(systemRandom, nativeKeys),
    imageName: imageNameIn(paths),
    tpm: nonce => tpmBytes(tpm, { nonce, log }),
  })
  const claiming = createClaiming({
    ...settings,
    paths,
    log,
    platform: evidence.platform,
    ...claimedDaemons({ settings, paths, clock, log }),
  })

  const port = await portOpen
  await claiming.restore()
  const channel = createChannel({ ...port, clock })
  log.info('agent ready')
  showStage('agent ready')
  using _lockout = serveLockout({
    clock,
    log,
    path: paths.lockoutSocket,
    gather: () => gatherFacts({ root: settings.root, sshdProgram: '/usr/sbin/sshd', run: settings.run }),
  })
  using _tpm = serveTpm({ path: paths.tpmSocket, tpm, log })
  // Beside the first requests: under software emulation the first claim and the first evidence would take three times as long.
  void identity.then(({ warmUp }) => Promise.all([warmUp(), evidence.warmUp()])).catch(() => {})
  const agent = createAgent({ version, identity, networking, claiming, evidence, log })
  await serveChannel({
    channel,
    needed: Promise.all([identity, device]),
    agent,
    powerOff: () => settings.powerOff({ clock, log }),
  })
  throw new Error('invariant broken: the channel ended without an error')
}

type DaemonParts = { settings: GuestSettings; paths: GuestPaths; clock: Clock; log: Logger }

/** What runs after the claim. */
function claimedDaemons({ settings, paths, clock, log }: DaemonParts): Pick<ClaimDeps, 'sshd' | 'gateway'> {
  const { sshdArgv, sshPort, gatewayArgv, listenTimeoutMs, system: owner } = settings
  const common = { owner, logDir: paths.logDir, clock, log }
  return {
    sshd: createDaemon({
      ...common,
      name: 'sshd',
      record: paths.sshdRecord,
      runDir: paths.sshdRunDir,
      argv: sshdArgv,
      listen: { port: sshPort, timeoutMs: listenTimeoutMs },
    }),
    gateway: createDaemon({
      ...common,
      name: 'gateway',
      record: paths.gatewayRecord,
      runDir: null,
      argv: gatewayArgv,
      listen: 'later',
    }),
  }
}

const tpmCommandTimeoutMs = 5_000
/** A receipt without a TPM's word is worth more than one that comes too late. */
const tpmEvidenceTimeoutMs = 8_000

type TpmParts = { paths: GuestPaths; svsm: Promise<SvsmService | null>; clock: Clock; log: Logger }

/** The kernel has its driver built in, so that the device is there before init is, or never. */
function guestTpm({ paths, svsm, clock, log }: TpmParts): Tpm {
  svsm.catch(error => log.error('the SVSM does not answer', { reason: messageOf(error) }))
  const device = openTpmDevice(paths.tpm, { timeoutMs: tpmCommandTimeoutMs })
  return createTpm({ device, measured: measuredIn(paths), svsm, clock, log })
}

async function tpmBytes(tpm: Tpm, { nonce, log }: { nonce: Uint8Array; log: Logger }): Promise<Uint8Array | null> {
  const late = Bun.sleep(tpmEvidenceTimeoutMs).then(() => ({ kind: 'failed', reason: 'it takes too long' }) as const)
  const answer = await Promise.race([tpm.evidence(nonce), late])
  if (answer.kind === 'failed') log.warn('evidence without the TPM', { reason: answer.reason })
  return answer.kind === 'evidence' ? answer.bytes : null
}

export type ServeDeps = {
  readonly channel: Channel
  /** Without these there is nothing to serve: their failure ends this too, and init starts the agent again. */
  readonly needed: Promise<unknown>
  /** What answers the host: the agent of an instance, or the builder of a build VM. */
  readonly agent: {
    handle(line: ReceivedLine): Promise<{ response: BuilderResponse; next: 'go_on' | 'power_off' } | null>
  }
  readonly powerOff: () => Promise<void>
}

export async function serveChannel({ channel, needed, agent, powerOff }: ServeDeps): Promise<void> {
  const failed = Promise.withResolvers<never>()
  const serveLine = async (line: ReceivedLine) => {
    const handled = await agent.handle(line)
    if (handled === null) return
    await channel.send(encodeResponse(handled.response))
    if (handled.next === 'power_off') await powerOff()
  }
  const received = channel.receive(line => void serveLine(line).catch(failed.reject), new AbortController().signal)
  await Promise.race([failed.promise, Promise.all([received, needed])])
}

const ImageFile = Type.Object({ name: Type.String({ minLength: 1, maxLength: 64 }) }, { additionalProperties: false })

/** Of the measured root. Fault internal: an image without a name cannot be attested. */
export function imageNameIn({ imageFile }: Pick<GuestPaths, 'imageFile'>): string {
  const image = jsonOf(readTextOrNull(imageFile) ?? 'null')
  if (!Check(ImageFile, image)) throw new Fault('internal', `read ${imageFile}: no image name`)
  return image.name
}

/** Straight to the console, which init made standard output: a stream would have to be set up first. One that cannot be written to must not stop the agent. */
function showStage(stage: string): void {
  try {
    fs.writeSync(1, `strongroom: ${stage}\n`)
  } catch {
    // The log has it too.
  }
}
