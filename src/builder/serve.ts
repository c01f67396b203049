// Role `builder`: creates the builder, then serves the channel until the device fails. Effects: those of its parts.

import * as fs from 'node:fs'
import type { Tool } from '../attest/provenance/record.ts'
import { makeReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import type { Clock } from '../base/clock.ts'
import { systemRandom } from '../base/ids.ts'
import { exchangeSerial } from '../contract/vm/build-agent.ts'
import type { BuildOrder } from '../contract/vm/build-order.ts'
import { bootIdIn } from '../guest/boot-id.ts'
import { findDisk } from '../guest/disk.ts'
import { createBoxKey } from '../guest/keys/box-key.ts'
import { type GuestPaths, guestPaths } from '../guest/paths.ts'
import { imageNameIn, type ProgramSettings, programSettings, rootHashIn, startProgram } from '../guest/program.ts'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { nativeKeys } from '../linux/native-keys.ts'
import { Attester } from './attester.ts'
import { Builder } from './builder.ts'
import { type CgroupSite, endLeftCgroups } from './confined/cgroup.ts'
import { systemDirs } from './confined/root.plan.ts'
import { sha256Of } from './digest.ts'
import { goLibraryDir } from './go/library.ts'
import type { Job } from './job.ts'
import { takeNetworkDown } from './network.ts'
import type { Phase, Tools } from './phase.ts'
import { recordsDir } from './recorded-tools.ts'

export type BuilderSettings = ProgramSettings & {
  /** The encrypted disk, mounted by init. */
  readonly scratch: string
  readonly cgroups: CgroupSite
  readonly tools: Tools
  /** Path of the exchange disk; null to find it by its serial. */
  readonly exchange: string | null
  readonly exchangeWaitMs: number
  readonly takeNetworkDown: (interfaces: string) => Promise<void>
}

/** Settings inside the VM, matching guest-image/recipes/builder. */
export const builderSettings: BuilderSettings = {
  ...programSettings,
  scratch: '/var/lib/strongroom/scratch',
  cgroups: { root: '/sys/fs/cgroup', needed: ['memory', 'pids', 'cpu'] },
  tools: {
    path: '/usr/bin',
    binds: systemDirs.map(dir => ({ from: dir, to: dir, writable: false })),
    fileOf: name => `/usr/bin/${name}`,
    goLibrary: { from: goLibraryDir, to: goLibraryDir },
    records: recordsDir,
  },
  exchange: null,
  exchangeWaitMs: 20_000,
  takeNetworkDown: interfaces => takeNetworkDown(interfaces, programSettings.run),
}

/**
 * Serves the builder. Rejects if init must restart it: no port, a failing device. The build is lost with the process.
 */
export async function serveBuilder(version: string, settings: BuilderSettings): Promise<never> {
  const { system: owner } = settings
  const paths = guestPaths(settings.root)
  const program = startProgram(settings, { name: 'builder', version, paths, unit: 'builder', sink: null })
  const { clock, log, device, networking } = program

  // Remove cgroups of an earlier builder: the next order must find the VM in its state after boot.
  await endLeftCgroups(settings.cgroups, clock)
  const keys = makeReceiptKeys(systemRandom, nativeKeys)
  const image = { name: imageNameIn(paths), rootHash: rootHashIn(paths) }
  const guest: Promise<Tool> = sha256Of(process.execPath).then(sha256 => ({ version, sha256 }))
  guest.catch(() => {}) // reported where it is awaited

  const channel = await program.channel
  const builder = new Builder({
    version,
    keys,
    guest,
    image,
    networking,
    log,
    record: {
      read: () => readTextOrNull(`${paths.runDir}/build`),
      write: jobId => writeFileAtomic(`${paths.runDir}/build`, jobId, { mode: 0o600, owner }),
    },
    identity: { bootId: bootIdIn(paths), boxKey: createBoxKey().boxKey },
    attester: new Attester({ keys, device, imageName: image.name, nowMs: clock.nowMs }),
    takeNetworkDown: () => settings.takeNetworkDown(paths.interfaces),
    device: async () =>
      settings.exchange ??
      (await findDisk({ root: settings.root, serial: exchangeSerial, clock, waitMs: settings.exchangeWaitMs })),
    phaseOf: (order, job) => newPhase({ settings, paths, clock, order, job }),
  })
  program.ready()
  return await program.serve(channel, { needed: device, handle: builder.handle })
}

type PhaseDeps = {
  readonly settings: BuilderSettings
  readonly paths: GuestPaths
  readonly clock: Clock
  readonly order: BuildOrder
  readonly job: Job
}

/** Creates the phase. Also removes the build directory of an earlier process of this VM. */
function newPhase({ settings, paths, clock, order, job }: PhaseDeps): Phase {
  const workDir = `${settings.scratch}/build`
  fs.rmSync(workDir, { recursive: true, force: true })
  // Searchable but not readable: programs of a build access their files by full path.
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
