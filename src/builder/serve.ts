// Role `builder`: puts the parts of a build VM together and serves the channel until the device fails. Effects: everything the parts do.

import * as fs from 'node:fs'
import type { Tool } from '../attest/provenance/record.ts'
import { makeReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import { type Clock, systemClock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { systemRandom } from '../base/ids.ts'
import { createLogger } from '../base/log.ts'
import { exchangeSerial } from '../contract/vm/build-agent.ts'
import type { BuildOrder } from '../contract/vm/build-order.ts'
import { createChannel } from '../guest/channel.ts'
import { findDisk } from '../guest/disk.ts'
import { createBoxKey } from '../guest/identity.ts'
import { openLogFile } from '../guest/log-file.ts'
import { createNetworking } from '../guest/network.ts'
import { type GuestPaths, guestPaths } from '../guest/paths.ts'
import { findReportDevice } from '../guest/report/find.ts'
import { type GuestSettings, guestSettings, imageNameIn, serveChannel } from '../guest/serve.ts'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { nativeKeys } from '../linux/native-keys.ts'
import { Attester } from './attester.ts'
import { Builder } from './builder.ts'
import { sha256Of } from './cargo/cargo.ts'
import { type CgroupSite, endLeftCgroups } from './confined/cgroup.ts'
import { systemDirs } from './confined/root.plan.ts'
import type { Job } from './job.ts'
import { takeNetworkDown } from './network.ts'
import type { Phase, Tools } from './phase.ts'

/** What the builder runs on; tests give it a directory of their own. */
export type BuilderSettings = Pick<
  GuestSettings,
  | 'root'
  | 'system'
  | 'interfaceWaitMs'
  | 'devicesWaitMs'
  | 'configFiles'
  | 'showStage'
  | 'openPort'
  | 'run'
  | 'powerOff'
> & {
  /** The encrypted disk that init has mounted. */
  readonly scratch: string
  readonly cgroups: CgroupSite
  readonly tools: Tools
  /** Null: found by its serial. */
  readonly exchange: string | null
  readonly exchangeWaitMs: number
  readonly takeNetworkDown: (interfaces: string) => Promise<void>
}

/** Inside the VM: guest-image/recipes/builder has the other half of these. */
export const builderSettings: BuilderSettings = {
  ...guestSettings,
  scratch: '/var/lib/strongroom/scratch',
  cgroups: { root: '/sys/fs/cgroup', needed: ['memory', 'pids', 'cpu'] },
  tools: {
    path: '/usr/bin',
    binds: systemDirs.map(dir => ({ from: dir, to: dir, writable: false })),
    fileOf: name => `/usr/bin/${name}`,
  },
  exchange: null,
  exchangeWaitMs: 20_000,
  takeNetworkDown: interfaces => takeNetworkDown(interfaces, guestSettings.run),
}

/** Rejects when the builder must be started again: no port, a failing device. A build does not survive that: it is in this process alone. */
export async function serveBuilder(version: string, settings: BuilderSettings): Promise<never> {
  const clock = systemClock
  process.umask(0o022)
  const { system: owner, showStage } = settings
  const paths = guestPaths(settings.root)
  fs.mkdirSync(paths.runDir, { recursive: true, mode: 0o755 })
  const { write: sink } = openLogFile(paths.logDir, 'agent', owner)
  const log = createLogger({ level: 'info', sink, nowMs: clock.nowMs, name: 'builder' })
  log.info('builder started', { version })
  showStage(`builder started, version ${version}`)

  const portOpen = settings.openPort(paths, clock)
  // Of a builder before this one: whoever orders a build now is to find the VM as it was at boot.
  await endLeftCgroups(settings.cgroups, clock)
  const device = findReportDevice({ paths, files: settings.configFiles, clock, devicesWaitMs: settings.devicesWaitMs })
  device.catch(() => {}) // reported where it is awaited
  const keys = makeReceiptKeys(systemRandom, nativeKeys)
  const image = { name: imageNameIn(paths), rootHash: rootHashIn(`${settings.root}/proc/cmdline`) }
  const guest: Promise<Tool> = sha256Of(process.execPath).then(sha256 => ({ version, sha256 }))
  guest.catch(() => {}) // reported where it is awaited

  const port = await portOpen
  const builder = new Builder({
    version,
    keys,
    guest,
    image,
    log,
    record: {
      read: () => readTextOrNull(`${paths.runDir}/build`),
      write: jobId => writeFileAtomic(`${paths.runDir}/build`, jobId, { mode: 0o600, owner }),
    },
    identity: { bootId: bootIdIn(paths), boxKey: createBoxKey().boxKey },
    networking: createNetworking({ ...settings, paths, owner, clock }),
    attester: new Attester({ keys, device, imageName: image.name, nowMs: clock.nowMs }),
    takeNetworkDown: () => settings.takeNetworkDown(paths.interfaces),
    device: async () =>
      settings.exchange ??
      (await findDisk({ root: settings.root, serial: exchangeSerial, clock, waitMs: settings.exchangeWaitMs })),
    phaseOf: (order, job) => newPhase({ settings, paths, clock, order, job }),
  })
  log.info('builder ready')
  showStage('builder ready')
  await serveChannel({
    channel: createChannel({ ...port, clock }),
    needed: device,
    agent: { handle: line => builder.handle(line) },
    powerOff: () => settings.powerOff({ clock, log }),
  })
  throw new Error('invariant broken: the channel ended without an error')
}

type PhaseDeps = {
  readonly settings: BuilderSettings
  readonly paths: GuestPaths
  readonly clock: Clock
  readonly order: BuildOrder
  readonly job: Job
}

/** What an earlier process of this VM left on the disk is removed with it: this one knows nothing of it. */
function newPhase({ settings, paths, clock, order, job }: PhaseDeps): Phase {
  const workDir = `${settings.scratch}/build`
  fs.rmSync(workDir, { recursive: true, force: true })
  // Passable, not readable: programs of a build reach what is theirs by its full path.
  fs.mkdirSync(workDir, { mode: 0o711 })
  const caBundle = `${workDir}/ca.pem`
  fs.writeFileSync(caBundle, `${readTextOrNull(paths.caBundle) ?? ''}\n${order.fetch?.ca ?? ''}`, { mode: 0o644 })
  return {
    site: { cgroups: settings.cgroups, scratch: settings.scratch, clock },
    job,
    order,
    workDir,
    caBundle,
    tools: settings.tools,
  }
}

/** Of the kernel's command line, which is measured. */
function rootHashIn(path: string): string | null {
  return /(?:^| )strongroom\.root_hash=([0-9a-f]{64})(?: |$)/.exec(readTextOrNull(path)?.trim() ?? '')?.[1] ?? null
}

function bootIdIn({ bootId }: Pick<GuestPaths, 'bootId'>): string {
  const id = readTextOrNull(bootId)?.trim()
  if (id === undefined) throw new Fault('internal', `read ${bootId}: not there`)
  return id
}
