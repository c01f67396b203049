// The agent as a separate process over a sandbox: `bun agent-program.ts SETTINGS`, with SETTINGS as JSON. Effects.

import { openGuestEnd, type PortPaths } from '../../../scripts/rigs/guest/agent-port.ts'
import { createTsmKernel } from '../../../scripts/rigs/guest/tsm-kernel.ts'
import { type GuestSettings, serveAgent } from '../../../src/guest/serve.ts'
import { run } from '../../../src/linux/command.ts'

export type AgentProcessSettings = Pick<GuestSettings, 'root' | 'system' | 'login' | 'sshdArgv' | 'gatewayArgv'> & {
  readonly port: PortPaths
  /** With a report device (tsm-kernel.ts), or without. */
  readonly device: boolean
}

if (import.meta.main) {
  const { port, device, ...settings }: AgentProcessSettings = JSON.parse(process.argv[2] ?? '')
  await serveAgent('0.0.0-test', {
    ...settings,
    keygenArgv: ['ssh-keygen'],
    snapshotArgv: ['/usr/lib/strongroom/snapshot'],
    hostKeyWaitMs: 0,
    interfaceWaitMs: 0,
    devicesWaitMs: 0,
    configFiles: createTsmKernel({ provider: device ? 'sev_guest' : null }),
    showStage: stage => process.stdout.write(`${stage}\n`),
    brokerArgv: ['/bin/false'],
    brokerGid: settings.system.gid,
    reachProgram: '/bin/true',
    publishedArgv: ['/bin/false'],
    publishedGid: settings.system.gid,
    openPort: async () => openGuestEnd(port),
    run,
    // The real one would signal PID 1 of the machine that tests.
    powerOff: async () => process.exit(0),
  })
}
