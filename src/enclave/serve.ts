// Role `serve`: answers the host on the agent channel. It greets, takes addresses and powers off; the gateway is not composed here yet.
// Effects: everything the parts do.

import * as fs from 'node:fs'
import { systemClock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { createLogger, redact } from '../base/log.ts'
import { type AgentRequest, type AgentResponse, agentProtocol } from '../contract/agent.ts'
import { createChannel } from '../guest/channel.ts'
import { createBoxKey } from '../guest/identity.ts'
import { openLogFile } from '../guest/log-file.ts'
import { createNetworking } from '../guest/network.ts'
import { findReportDevice } from '../guest/report/find.ts'
import { type GuestSettings, guestSettings, serveChannel } from '../guest/serve.ts'
import { ok, parseRequest, type ReceivedLine, type Refusal, refuse } from '../guest/wire.codec.ts'
import { readTextOrNull } from '../linux/files.ts'
import { enclavePaths } from './paths.ts'
import { powerOff } from './power.ts'
import { showStage } from './stage.ts'

/** What it runs on; tests give it a directory of their own. */
export type EnclaveSettings = Pick<
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
>

/** Inside the VM: guest-image/common/initrd/enclave has the other half of these. */
export const enclaveSettings: EnclaveSettings = { ...guestSettings, showStage, powerOff }

/** Rejects when it must be started again: no port, a failing device. */
export async function serveEnclave(version: string, settings: EnclaveSettings): Promise<never> {
  const clock = systemClock
  process.umask(0o022)
  const { system: owner, showStage } = settings
  const paths = enclavePaths(settings.root)
  fs.mkdirSync(paths.runDir, { recursive: true, mode: 0o755 })
  const { write: sink } = openLogFile(paths.logDir, 'enclave', owner)
  const log = createLogger({ level: 'info', sink, nowMs: clock.nowMs, name: 'enclave' })
  log.info('gateway started', { version })
  showStage(`gateway started, version ${version}`)

  const portOpen = settings.openPort(paths, clock)
  const device = findReportDevice({ paths, files: settings.configFiles, clock, devicesWaitMs: settings.devicesWaitMs })
  device.catch(() => {}) // reported where it is awaited
  const bootId = readTextOrNull(paths.bootId)?.trim()
  if (bootId === undefined) throw new Fault('internal', `read ${paths.bootId}: not there`)
  const identity = { version, bootId, boxKey: createBoxKey().boxKey }
  const networking = createNetworking({ ...settings, paths, owner, clock })

  const answer = async (request: AgentRequest): Promise<Outcome> => {
    switch (request.op) {
      case 'hello': {
        const platform = (await device) === null ? 'none' : 'snp'
        return { ok: true, hello: { protocol: agentProtocol, ...identity, sshHostKey: null, claimId: null, platform } }
      }
      case 'network':
        return networking.apply(request.network, { claimed: false })
      case 'shutdown':
        return ok
      case 'claim':
      case 'evidence':
      case 'receipt':
        return refuse('bad_request', `${request.op}: this VM is the gateway; nobody claims it`)
    }
  }
  const handle = async (line: ReceivedLine) => {
    const parsed = line.kind === 'line' ? parseRequest(line.text) : null
    if (parsed === null) {
      log.warn('line dropped', { reason: line.kind === 'dropped' ? line.reason : 'no_request' })
      return null
    }
    if (parsed.kind === 'refused') {
      return { response: { id: parsed.id, ...refuse('bad_request', parsed.message) }, next: 'go_on' } as const
    }
    const { id, op } = parsed.request
    const outcome = await answer(parsed.request).catch(error => refuse('failed', redact(messageOf(error))))
    return { response: { id, ...outcome }, next: op === 'shutdown' && outcome.ok ? 'power_off' : 'go_on' } as const
  }

  const port = await portOpen
  log.info('gateway ready')
  showStage('gateway ready')
  await serveChannel({
    channel: createChannel({ ...port, clock }),
    needed: device,
    agent: { handle },
    powerOff: () => settings.powerOff({ clock, log }),
  })
  throw new Error('invariant broken: the channel ended without an error')
}

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never
type Outcome = WithoutId<Extract<AgentResponse, { ok: true }>> | Refusal
