// Puts together the host's side of a gateway in its own VM. Effects: reads files; the rest begins with `start`.

import { sha256 } from '../attest/hash.ts'
import { present } from '../base/assert.ts'
import { fromBase64Url, toHex, utf8 } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import type { Collector } from '../base/prometheus.ts'
import type { Runtime } from '../base/runtime.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import type { Config } from '../config/schema.ts'
import type { LogFact } from '../contract/http/log-entry.ts'
import { gatewayVmPort } from '../contract/vm/enclave.ts'
import { Addresses } from '../enclave-host/addresses.ts'
import { ControlSource } from '../enclave-host/control.ts'
import { GatewayVmSupervisor, type WantedGatewayVm } from '../enclave-host/gateway-vm-supervisor.ts'
import { unnamedGatewayVms } from '../enclave-host/leaks.ts'
import { GatewayVmSession } from '../enclave-host/session.ts'
import type { Certify, GatewayVmEngine } from '../enclave-host/types.ts'
import {
  isAttestable,
  type UnverifiedGatewayVm,
  type VerifiedGatewayVm,
  verifyGatewayVm,
} from '../enclave-host/verify.ts'
import type { OperatorKey } from '../host/operator-key.ts'
import { createHostSums } from '../inference/metering/host-sums.ts'
import type { Metering } from '../inference/metering/ledger.ts'
import { runLedgerRetention } from '../inference/metering/retention.ts'
import { usageRecordOf, VmUsageLedger } from '../inference/metering/vm-usage-ledger.ts'
import { createClusterMetrics } from '../inference/metrics/cluster.ts'
import type { TraceExporter } from '../inference/traces/exporter.ts'
import type { LedgerDb, Store } from '../store/db.ts'
import { listGatewayVms, moveGatewayVm } from '../store/ledger/gateway-vm.query.ts'
import type { Capacity } from '../vm/admission.plan.ts'
import type { HostTrust } from '../vm/evidence/launch-policy.plan.ts'
import { launchedVm, ledgerHex } from '../vm/evidence/report.driver.ts'
import { expectedMeasurement } from '../vm/launch/expected.plan.ts'
import { gatewayVmImage, loadGatewayVmImage } from '../vm/launch/image.driver.ts'
import { imageDigest } from '../vm/launch/image-digest.driver.ts'
import type { Engine } from './engine.ts'
import type { DirectoryLink } from './fleet/directory.ts'
import type { FleetShares } from './fleet/shares.ts'
import type { GatewayVmWorkloads } from './gateway-vm/workloads.ts'
import type { Publish } from './log/transparency.ts'
import { operatorKeyWords } from './pool.ts'
import { composeTraces } from './traces.ts'

export type GatewayVmParts = Runtime & {
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly engine: Engine
  readonly capacity: Capacity
  readonly operatorKey: Pick<OperatorKey, 'digest'>
  readonly metering: Metering
  readonly certificates: {
    readonly certify: Certify
    readonly stamp: () => string
    readonly onChange: (listener: () => void) => void
  }
  readonly trust: () => Promise<HostTrust>
  readonly clockGuard: ClockGuard
  readonly publish: Publish
  /** Null if the gateway has no VM. */
  readonly workloads: GatewayVmWorkloads | null
  /** Null, or left out: this host is in no fleet. */
  readonly shares?: FleetShares | null
  readonly link?: Pick<DirectoryLink, 'isShutOut'>
}

export type ComposedGatewayVm = {
  readonly supervisor: GatewayVmSupervisor
  readonly traces: TraceExporter | null
  readonly collectors: readonly Collector[]
  readonly start: () => void
  readonly stop: () => Promise<void>
}

type PriceConfig = Config['inference']['prices'][number]

/** Nothing of a cache's price where there is none: VMs of earlier releases take it then. */
function controlPrice({ cached_prompt_usd_per_million: cached, ...price }: PriceConfig) {
  return cached === '' ? price : { ...price, cached_prompt_usd_per_million: cached }
}

/** Composes the gateway in VMs. Throws Fault config.file for the files of traces. */
export function composeGatewayVm(parts: GatewayVmParts): ComposedGatewayVm {
  const { config, store, metering, shares = null, clock, random } = parts
  const log = parts.log.unit('inference')
  const workloads = present(parts.workloads, 'a gateway in a VM has a workload')
  const { upstreams, controlKey, models } = workloads
  const traces = composeTraces({ config, upstreams, clock, random, log })
  const control = new ControlSource({
    db: store.directory.db,
    key: controlKey,
    prices: config.inference.prices.map(controlPrice),
    upstreamKeys: Object.fromEntries(
      upstreams.flatMap(upstream => (upstream.key === null ? [] : [[upstream.name, upstream.key]])),
    ),
    isShared: shares !== null,
    clock,
  })
  const addresses = new Addresses({
    urls: upstreams.map(upstream => upstream.url),
    own: config.network.gateway_v4,
    clock,
    log,
  })
  const usageLedger = new VmUsageLedger({
    ledger: store.ledger.db,
    write: rows => metering.book(rows.map(usageRecordOf)),
    log,
  })
  const engine = gatewayVmEngine(parts)
  const statusOf = (vmId: string) =>
    supervisor.view().gatewayVms.find(gatewayVm => gatewayVm.vmId === vmId)?.status ?? null
  const usageReporter = createHostSums({ ...store, statusOf, shares: metering.shares })
  const shared = { engine, control, addresses, usageLedger, usageReporter, shares: shares?.ofVms ?? null, clock, log }
  const { certificates } = parts
  const certifying = { certify: certificates.certify, certificatesStamp: certificates.stamp }
  const wanted = () => wantedGatewayVm(parts, workloads)
  const supervisor = new GatewayVmSupervisor({
    store: store.ledger,
    hostId: store.hostId,
    engine,
    wanted,
    addresses,
    clock,
    guard: parts.clockGuard,
    isShutOut: () => parts.link?.isShutOut() === true,
    random,
    log,
    patienceMs,
    // The worker may be started again once, and its golden answer takes as long as its start.
    startMs: config.vm.boot_timeout_ms + 4 * config.inference.worker.start_timeout_ms + verifyMs,
    drainMs: config.inference.drain_s * 1000,
    newSession: (vmId, onChange) => new GatewayVmSession({ ...shared, ...certifying, vmId, spans: traces, onChange }),
    verify: (vmId, claimed) => verifyServing(parts, { engine, log }, vmId, claimed),
    beforeServing: (vmId, { receiptKey }) => parts.publish(gatewayVmStart(store.ledger.db, vmId, receiptKey)),
  })
  metering.shares?.followVm(scope => supervisor.lowerBudget(scope))
  control.onChange(() => void supervisor.pushControl())
  certificates.onChange(() => supervisor.pushCertificates())
  const stopping = new AbortController()
  let running: Promise<unknown> = Promise.resolve()
  return {
    supervisor,
    traces,
    collectors: [
      { workload: 'metrics-collector', render: () => supervisor.session()?.metrics ?? '' },
      createClusterMetrics({ store, capacity: parts.capacity }),
      ...(traces === null ? [] : [traces.collector()]),
    ],
    start: () => {
      const { signal } = stopping
      traces?.start()
      supervisor.start()
      const retentionDays = config.inference.usage_retention_days
      running = Promise.all([
        models.prepare(signal),
        control.watch(signal),
        addresses.watch(signal),
        runLedgerRetention({ store: store.directory, clock, guard: parts.clockGuard, log, retentionDays }, signal),
      ])
    },
    stop: async () => {
      stopping.abort()
      await supervisor.stop()
      await Promise.all([running, traces?.stop()])
    },
  }
}

/** Launch of a gateway VM by today's configuration, image, model and allowlist. Faults image.invalid, config.file. */
function wantedGatewayVm(
  { config, engine, operatorKey }: GatewayVmParts,
  { models, textFor }: GatewayVmWorkloads,
): WantedGatewayVm {
  const imageDir = config.inference.worker.image_dir
  const { manifest } = loadGatewayVmImage(imageDir)
  const current = models.current()
  const workload = textFor(manifest)
  const { vcpus, memory_mib: memoryMib } = config.inference
  const { vcpu_type: vcpuType, snp_boot: boot } = config.vm
  // Refused here, before a VM is defined that could not be launched.
  expectedMeasurement(manifest, { vehicle: boot, vcpuType, vcpus })
  const addresses = config.inference.worker.gpu
  if (addresses.length > 0 && engine.platform !== 'snp') throw noGpusOn(engine.platform)
  const size = [`${vcpus} vCPUs`, `${memoryMib} MiB`, vcpuType, boot, engine.platform, ...addresses]
  const shape = [...size, imageDigest(imageDir), operatorKeyWords(operatorKey.digest), workload].join('\n')
  const modelDisk = current === null ? {} : { modelDisk: current.disk }
  const ofGpus = addresses.length === 0 ? {} : { gpus: addresses }
  return {
    spec: { image: gatewayVmImage, vcpus, memoryMib, network: 'gateway', workload, ...modelDisk, ...ofGpus },
    shape: new Bun.CryptoHasher('sha256').update(shape).digest('hex'),
  }
}

/** The driver of VMs refuses it as well; here nothing is started first, and the operator reads why. */
function noGpusOn(platform: string): Fault {
  const message = `inference.worker.gpu needs platform snp, and this host runs VMs on ${platform}: no report would vouch for a GPU there`
  return new Fault('host.unsupported', message, { param: 'inference.worker.gpu' })
}

/** The verified facts about it; its own statement where nothing can be verified. Fault attest.unavailable. */
async function verifyServing(
  { trust, clock, random }: GatewayVmParts,
  { engine, log }: { readonly engine: GatewayVmEngine; readonly log: Logger },
  vmId: string,
  claimed: UnverifiedGatewayVm,
): Promise<VerifiedGatewayVm> {
  const launch = engine.launch(vmId)
  if (!isAttestable(launch.workload ?? '')) {
    log.warn('the gateway serves without attestation: there is no built-in worker, of which a receipt would have to be')
    return claimed
  }
  const url = `https://${engine.view(vmId)?.address}:${gatewayVmPort}`
  return verifyGatewayVm({ trust, clock, random }, { url, launch })
}

/** The start of a gateway VM as the transparency log has it. */
function gatewayVmStart(db: LedgerDb, vmId: string, receiptKey: string): LogFact {
  const { measurement, hostData, operatorKey } = launchedVm(db, vmId).launch
  const key = toHex(sha256(fromBase64Url(receiptKey) ?? utf8(receiptKey)))
  return { kind: 'gateway-start', measurement, workload: hostData, operator_key: operatorKey, receipt_key: key }
}

/** If the gateway does not run in a VM, those of an earlier daemon have no use. */
export function dismissGatewayVms({
  store,
  engine,
  clock,
  log,
}: Pick<GatewayVmParts, 'store' | 'engine' | 'clock' | 'log'>): void {
  const nowMs = clock.nowMs()
  for (const { vmId, state } of listGatewayVms(store.ledger.db, store.hostId)) {
    log.unit('inference').warn('a gateway VM is dismissed: inference.placement is not "vm"', { vm: vmId })
    moveGatewayVm(store.ledger.db, { vmId, from: [state], to: 'gone', reason: 'the gateway has no VM any more', nowMs })
  }
  for (const { id } of unnamedGatewayVms(store.ledger.db, store.hostId)) engine.reconciler.dismiss(id)
}

function gatewayVmEngine({ engine, store }: GatewayVmParts): GatewayVmEngine {
  const { reconciler, network } = engine
  const { gatewayVms } = reconciler
  return {
    define: (vmId, spec) => reconciler.define(vmId, spec),
    dismiss: vmId => reconciler.dismiss(vmId),
    view: vmId => reconciler.view(vmId),
    onChange: listener => reconciler.onChange(listener),
    open: vmId => reconciler.open(vmId),
    workload: (...args) => gatewayVms.workload(...args),
    control: (...args) => gatewayVms.control(...args),
    tell: (...args) => gatewayVms.tell(...args),
    next: (...args) => gatewayVms.next(...args),
    report: (...args) => gatewayVms.report(...args),
    spans: (...args) => gatewayVms.spans(...args),
    lower: (...args) => gatewayVms.lower(...args),
    completeEvidence: (...args) => gatewayVms.completeEvidence(...args),
    launch: vmId => {
      const { launch } = launchedVm(store.ledger.db, vmId)
      return { document: launch.document, workload: launch.workload, operatorKey: ledgerHex(launch.operatorKey) }
    },
    route: ({ serving, upstreams }) => network.setGatewayVm({ serving, port: gatewayVmPort, upstreams }),
  }
}

/** For the worker's second and third start. */
const patienceMs = 60_000
/** Time for certificates, evidence and the queue at AMD's service. */
const verifyMs = 300_000
