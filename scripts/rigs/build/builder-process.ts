// The builder as a process of its own: `bun builder-process.ts SETTINGS`, with SETTINGS as JSON. Effects.

import { serveBuilder } from '../../../src/builder/serve.ts'
import { run } from '../../../src/linux/command.ts'
import { openGuestEnd, type PortPaths } from '../guest/agent-port.ts'
import { createTsmKernel } from '../guest/tsm-kernel.ts'

export type BuilderProcessSettings = {
  readonly root: string
  readonly scratch: string
  readonly exchange: string
  readonly port: PortPaths
  readonly cgroupRoot: string
  /** With a report device (tsm-kernel.ts), or without. */
  readonly device: boolean
  readonly tools: {
    readonly path: string
    readonly binds: { from: string; to: string }[]
    /** Paths of programs that are not below /usr/bin. */
    readonly files: Readonly<Record<string, string>>
    readonly goLibrary: { from: string; to: string } | null
  }
}

if (import.meta.main) {
  const settings: BuilderProcessSettings = JSON.parse(process.argv[2] ?? '')
  const { port, device, tools } = settings
  await serveBuilder('0.0.0-test', {
    ...settings,
    system: { uid: 0, gid: 0 },
    interfaceWaitMs: 0,
    devicesWaitMs: 0,
    exchangeWaitMs: 0,
    configFiles: createTsmKernel({ provider: device ? 'sev_guest' : null }),
    showStage: stage => process.stdout.write(`${stage}\n`),
    openPort: async () => openGuestEnd(port),
    run,
    // The real one would signal PID 1 of the machine that tests.
    powerOff: async () => process.exit(0),
    // Controllers may belong to the machine's older hierarchy: then its programs have rlimits alone.
    cgroups: { root: settings.cgroupRoot, needed: [] },
    tools: {
      path: tools.path,
      binds: tools.binds.map(bind => ({ ...bind, writable: false })),
      fileOf: name => tools.files[name] ?? `/usr/bin/${name}`,
      goLibrary: tools.goLibrary,
      records: null,
    },
    // The machine's own network stays; a program of a build has none of it.
    takeNetworkDown: async () => {},
  })
}
