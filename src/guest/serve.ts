// Role `agent`: constructs the agent and serves the channel until the device fails. Effects: everything its parts do.

import { makeReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import type { Clock } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import { systemRandom } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { orderLineBytesMax } from '../contract/vm/orders/order.ts'
import type { Owner } from '../linux/files.ts'
import { nativeKeys } from '../linux/native-keys.ts'
import { createAgent } from './agent.ts'
import { createClaiming } from './claim.ts'
import { createDaemon } from './daemon.ts'
import { createEgressNotice } from './egress/notice.ts'
import { createEvidence } from './evidence.ts'
import { createIdentity } from './identity.ts'
import { serveLines } from './line-server.ts'
import { gatherFacts } from './lockout/facts.ts'
import { serveLockout } from './lockout/socket.ts'
import { createIdle } from './orders/idle.ts'
import { createKeysHandler, loginKeys } from './orders/keys.ts'
import { createOrders } from './orders/orders.ts'
import { createPublishing } from './orders/publish.ts'
import { reachOrders } from './orders/reach.ts'
import { createRecipientsHandler } from './orders/recipients.ts'
import { type GuestPaths, guestPaths } from './paths.ts'
import { imageNameIn, type ProgramSettings, programSettings, startProgram } from './program.ts'
import { createReach } from './reach/reach.ts'
import { findSvsm } from './report/svsm.ts'
import { createSecretHandlers, statedSecrets } from './secrets/secrets.ts'
import { createSnapshots } from './snapshots/snapshot.ts'
import { openTpmDevice } from './tpm/device.ts'
import { measuredIn } from './tpm/measured.ts'
import { serveTpm } from './tpm/socket.ts'
import { createTpm, type SvsmService, type Tpm } from './tpm/tpm.ts'

export type GuestSettings = ProgramSettings & {
  readonly login: Owner
  readonly sshdArgv: readonly [string, ...string[]]
  readonly gatewayArgv: readonly [string, ...string[]]
  /** ssh-keygen as another user, without rights. */
  readonly keygenArgv: readonly [string, ...string[]]
  readonly brokerArgv: readonly [string, ...string[]]
  /** Group of the broker's user. */
  readonly brokerGid: number
  readonly reachProgram: string
  readonly publishedArgv: readonly [string, ...string[]]
  /** Group of the user of `publishedArgv`. */
  readonly publishedGid: number
  readonly snapshotArgv: readonly [string, ...string[]]
  readonly hostKeyWaitMs: number
}

export const guestSettings: GuestSettings = {
  ...programSettings,
  login: { uid: 1000, gid: 1000 },
  sshdArgv: ['/usr/lib/strongroom/sshd'],
  gatewayArgv: ['/usr/lib/strongroom/gateway'],
  keygenArgv: ['/usr/lib/strongroom/ssh-keygen'],
  brokerArgv: ['/usr/lib/strongroom/broker'],
  brokerGid: 901,
  reachProgram: '/usr/lib/strongroom/reach',
  publishedArgv: ['/usr/lib/strongroom/published'],
  publishedGid: 903,
  snapshotArgv: ['/usr/lib/strongroom/snapshot'],
  hostKeyWaitMs: 15_000,
}

/** Rejects when init must restart the agent: no port, no keys, a failing device, an sshd that cannot be started. */
export async function serveAgent(version: string, settings: GuestSettings): Promise<never> {
  const { system: owner, hostKeyWaitMs } = settings
  const paths = guestPaths(settings.root)
  const program = startProgram(settings, { name: 'agent', version, paths, unit: 'agent', sink: null })
  const { clock, log, device, networking } = program

  const identity = createIdentity({ paths, clock, hostKeyWaitMs })
  identity.catch(() => {}) // reported where it is awaited
  const svsm = device.then(found => (found === null ? null : findSvsm(paths.tsmReports, settings.configFiles)))
  const tpm = guestTpm({ paths, svsm, clock, log })
  const keys = makeReceiptKeys(systemRandom, nativeKeys)
  const { broker, published, ...daemons } = claimedDaemons({ settings, paths, clock, log })
  const reach = createReach({ ...settings, paths, broker, clock })
  const evidence = createEvidence({
    paths,
    owner,
    device,
    nowMs: clock.nowMs,
    keys,
    ordered: () => ({
      loginKeys: loginKeys(paths),
      egressPolicy: reach.policyText(),
      secrets: statedSecrets(reach.state()?.secrets ?? []),
      published: publishing.stated(),
    }),
    imageName: imageNameIn(paths),
    tpm: nonce => tpmBytes(tpm, { nonce, log }),
  })
  const claiming = createClaiming({
    ...settings,
    paths,
    log,
    random: systemRandom,
    platform: evidence.platform,
    reach,
    ...daemons,
  })

  const publishing = createPublishing({ ...settings, paths, daemon: published, claim: claiming.record })
  const idle = createIdle({ paths, owner })
  const egress = createEgressNotice({ paths, owner, log })
  const snapshots = createSnapshots({ paths, owner, argv: settings.snapshotArgv, run: settings.run, log })
  const counted = { egress, idle, snapshots, publishing }
  const channel = await program.channel
  await claiming.restore()
  await publishing.restore()
  program.ready()
  using _lockout = serveLockout({
    clock,
    log,
    path: paths.lockoutSocket,
    gather: () => gatherFacts({ root: settings.root, sshdProgram: '/usr/sbin/sshd', run: settings.run }),
  })
  using _orders = serveLines({
    path: paths.ordersSocket,
    what: 'orders socket',
    requestBytesMax: orderLineBytesMax,
    answer: createOrders({
      ...settings,
      ...{ paths, owner, clock, log },
      claim: claiming.record,
      decapsulate: keys.decapsulate,
      random: systemRandom,
      handlers: {
        keys: createKeysHandler({ paths, owner }),
        ...idle.handlers,
        ...reachOrders({ reach, paths, claim: claiming.record }),
        ...createSecretHandlers({ paths, owner, reach, claim: claiming.record }),
        publish: publishing.publish,
        snapshot_recipients: createRecipientsHandler(paths, owner),
      },
    }),
    log,
  })
  using _tpm = serveTpm({ path: paths.tpmSocket, tpm, log })
  // Beside the first requests: under software emulation the first claim and evidence would take three times as long.
  void identity
    .then(({ warmUp }) => {
      warmUp()
      return evidence.warmUp()
    })
    .catch(() => {})
  return await program.serve(channel, {
    needed: Promise.all([identity, device]),
    handle: createAgent({ version, identity, networking, claiming, evidence, ...counted, log }),
  })
}

type DaemonParts = { settings: GuestSettings; paths: GuestPaths; clock: Clock; log: Logger }

/** Programs that start after the claim. */
function claimedDaemons(parts: DaemonParts) {
  const { settings, paths, clock, log } = parts
  const { sshdArgv, gatewayArgv, brokerArgv, publishedArgv, system: owner } = settings
  const common = { owner, logDir: paths.logDir, runDir: null, clock, log }
  const { sshdRecord: record, sshdRunDir: runDir } = paths
  return {
    sshd: createDaemon({ ...common, name: 'sshd', record, runDir, argv: sshdArgv }),
    gateway: createDaemon({ ...common, name: 'gateway', record: paths.gatewayRecord, argv: gatewayArgv }),
    broker: createDaemon({ ...common, name: 'broker', record: paths.brokerRecord, argv: brokerArgv }),
    published: createDaemon({ ...common, name: 'published', record: paths.publishedRecord, argv: publishedArgv }),
  }
}

const tpmCommandTimeoutMs = 5_000
/** A receipt without TPM evidence is worth more than a late one. */
const tpmEvidenceTimeoutMs = 8_000

type TpmParts = { paths: GuestPaths; svsm: Promise<SvsmService | null>; clock: Clock; log: Logger }

/** The driver is built into the kernel, so the device exists before init or never. */
function guestTpm({ paths, svsm, clock, log }: TpmParts): Tpm {
  svsm.catch(error => log.error('the SVSM does not answer', { reason: messageOf(error) }))
  const device = openTpmDevice(paths.tpm, { timeoutMs: tpmCommandTimeoutMs })
  return createTpm({ device, measured: measuredIn(paths), svsm, clock, log })
}

async function tpmBytes(tpm: Tpm, { nonce, log }: { nonce: Uint8Array; log: Logger }): Promise<Uint8Array | null> {
  const late = Bun.sleep(tpmEvidenceTimeoutMs).then(() => ({ kind: 'failed', reason: 'it took too long' }) as const)
  const answer = await Promise.race([tpm.evidence(nonce), late])
  if (answer.kind === 'failed') log.warn('evidence without the TPM', { reason: answer.reason })
  return answer.kind === 'evidence' ? answer.bytes : null
}
