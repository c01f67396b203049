// Puts the VM engine together from configuration. Effects: reads host facts; everything else begins with `start`.

import { Fault, messageOf } from '../base/fault.ts'
import { linkNames } from '../base/link-names.ts'
import type { Runtime } from '../base/runtime.ts'
import { version } from '../base/version.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import { shareOf } from '../base/work/fair-slots.ts'
import { egressSource, parseEgressEntry } from '../config/egress.ts'
import { egressSourceV6, parseEgressEntryV6 } from '../config/egress-v6.ts'
import { guestDnsPort, guestGateway, listenAddress, listenV4 } from '../config/listen.ts'
import type { Config, Platform } from '../config/schema.ts'
import { egressLimitBytes } from '../contract/http/instance.ts'
import { guestGatewayName } from '../contract/vm/agent.ts'
import { publicTlsPort } from '../contract/vm/orders/published.ts'
import { settingsNote } from '../host/changed-settings.ts'
import { requireConntrack } from '../host/network/conntrack.ts'
import { hereNetns } from '../host/network/netns.ts'
import { createNft, type Nft } from '../host/network/nft.ts'
import { NftWatch } from '../host/network/nft-watch.ts'
import { ownAddresses, ownNetworks } from '../host/network/own-networks.ts'
import { probeSsh } from '../host/network/ssh-probe.ts'
import { tapMac } from '../host/network/tap.ts'
import { createVmNamespace, type VmNamespace } from '../host/network/vm-namespace.ts'
import type { OperatorKey } from '../host/operator-key.ts'
import { processUsage } from '../host/process-usage.ts'
import type { SimulatedHost } from '../host/simulated-host.ts'
import {
  checkUidRange,
  enableForwarding,
  enableForwardingV6,
  groupsOfDevices,
  hostBootId,
  isHostStopping,
} from '../host/system.ts'
import { ensureDir } from '../linux/files.ts'
import type { LedgerDb, Store } from '../store/db.ts'
import { readMeta, swapMeta } from '../store/ledger/meta.query.ts'
import { restoredBoot } from '../store/restored.ts'
import type { ChangeGate } from '../upgrade/gate.ts'
import type { Capacity } from '../vm/admission.plan.ts'
import type { Pools } from '../vm/capacity.query.ts'
import type { HostLoss, VmSpec } from '../vm/engine.ts'
import { gpuTaker } from '../vm/gpu/gpu.driver.ts'
import { freeDiskGib } from '../vm/launch/disk.driver.ts'
import { expectedMeasurement } from '../vm/launch/expected.plan.ts'
import {
  builderImage,
  gatewayVmImage,
  type Image,
  loadBuilderImage,
  loadGatewayVmImage,
  loadImage,
} from '../vm/launch/image.driver.ts'
import { ImageSummaries } from '../vm/launch/image-summary.driver.ts'
import { createJailFiles } from '../vm/launch/jail-files.driver.ts'
import { Launcher, type LauncherDeps } from '../vm/launch/launcher.driver.ts'
import {
  bootOf,
  capacityOf,
  choosePlatform,
  hostPlatform,
  rememberPlatform,
  type TpmChoice,
  tpmChoice,
} from '../vm/launch/platform.driver.ts'
import { readAhead } from '../vm/launch/read-ahead.driver.ts'
import { UnpackedKernels } from '../vm/launch/unpacked-kernel.driver.ts'
import { VmReconciler, type VmReconcilerDeps } from '../vm/machine/reconciler.ts'
import { UsageHistory } from '../vm/machine/usage-history.ts'
import { VmDriver } from '../vm/machine/vm.driver.ts'
import type { EgressPlan } from '../vm/network/egress.plan.ts'
import type { EgressPlanV6 } from '../vm/network/egress-v6.plan.ts'
import type { GuestNetwork } from '../vm/network/guest-network.plan.ts'
import { VmNetwork, type VmNetworkDeps } from '../vm/network/network.driver.ts'
import { formerNetworkNames, keepNetworkNames, type NetworkNames } from '../vm/network/network-names.query.ts'
import type { GatewayListen } from '../vm/network/nft.plan.ts'
import { removeFormer, takeOver } from '../vm/network/takeover.driver.ts'
import type { CollateralService } from './collateral.ts'
import type { Starter } from './starter/client.ts'

export type EngineDeps = Runtime & {
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly clockGuard: ClockGuard
  /** Closed on trial: a former executable may return whose table marks no packets. */
  readonly gate: Pick<ChangeGate, 'isOpen'>
  readonly operatorKey: OperatorKey
  readonly simulatedPlatform: () => Promise<SimulatedHost>
  /** Image of the gateway's VM; null if the gateway runs in this process. */
  readonly gatewayVmImageDir: string | null
  readonly starter: Pick<Starter, 'startJailed'>
  readonly beforeLaunch: LauncherDeps['beforeLaunch']
  /** Collateral that verifies this host's reports, once the platform is known. */
  readonly collateral: (platform: Platform) => CollateralService | null
}

export type Engine = {
  readonly reconciler: VmReconciler
  /** Returns when each VM was paused for lack of disk space; one that ended since may be among them. */
  readonly pausedVms: () => ReadonlyMap<string, number>
  readonly network: VmNetwork
  readonly usage: UsageHistory
  readonly namespace: VmNamespace
  /** Makes the namespace of VMs, and takes over VMs of earlier releases. Faults: host.*. */
  readonly openNetwork: () => Promise<void>
  /** Makes the first launch after the start as quick as the next. Never rejects. */
  readonly readAhead: (vm: Pick<VmSpec, 'image' | 'vcpus' | 'memoryMib'>) => Promise<void>
  /** Keeps the firewall as it is to be until the signal is aborted. Never rejects. */
  readonly watchNetwork: (signal: AbortSignal) => Promise<void>
  readonly nft: Nft
  readonly platform: Platform
  /** Kind of TPM of a VM that starts now. */
  readonly tpm: () => TpmChoice['kind']
  readonly capacity: Capacity
  readonly diskGibMax: VmReconcilerDeps['diskGibMax']
  /** Null if there is none; see appliance/collateral.ts. */
  readonly collateral: CollateralService | null
  /** Summaries of images that VMs were launched from. */
  readonly images: ImageSummaries
}

/** Looked up for each VM that starts. */
function tpmOf(platform: Platform, { config, log }: Pick<EngineDeps, 'config' | 'log'>): () => TpmChoice {
  const choice = () => tpmChoice(platform, config.vm)
  if (choice().kind === 'missing')
    log.warn('VMs get no TPM: install swtpm, or set vm.tpm = "off"', { swtpm: config.vm.swtpm })
  return choice
}

function programOf(choice: TpmChoice): string | null {
  return choice.kind === 'swtpm' ? choice.program : null
}

/**
 * Composes the engine. Faults: host.unsupported, image.invalid (a firmware that would boot anything), config.invalid
 * (formerNetworkNames).
 */
export function composeEngine({ config, stateDir, store, clock, random, log, gate, ...deps }: EngineDeps): Engine {
  requireConntrack()
  const choice = choosePlatform(config.platform)
  const { platform, reasons } = choice
  const { kind } = rememberPlatform(store.ledger.db, { ...choice, isPinned: config.platform !== 'auto' })
  log.info('platform chosen', { platform, reasons })
  if (kind === 'below_snp')
    log.warn('this host has run VMs on snp; new ones run without it, as configured', { platform })
  const capacity = capacityOf(config, platform)
  ensureDir(`${stateDir}/vms`, { mode: 0o700 })
  forwardPackets(config, stateDir)
  const { operatorKey, simulatedPlatform: simulated, gatewayVmImageDir, beforeLaunch } = deps
  const { db } = store.ledger
  const hostLoss = hostLossOf(db)
  const former = formerNetworkNames(db, { ...config.network, hostRestarted: hostLoss !== null })
  const firewall = composeNetwork({ config, store, clock, log, gate, former, gatewayInVm: gatewayVmImageDir !== null })
  const { vcpu_type: vcpuType } = config.vm
  const boot = bootOf(platform, config.vm)
  const measuring = { vcpuType, boot, igvmDirectory: `${stateDir}/igvm` }
  const launcher = new Launcher({ db, clock, operatorKey, beforeLaunch, ...measuring })
  warnUnmeasured(config, { gatewayVmImageDir, log })
  const images = imageSummaries({ stateDir, operatorKey, clock, log })
  const tpm = tpmOf(platform, { config, log })
  const image = (name: string) => imageNamed(name, { config, gatewayVmImageDir, images })
  const kernels = platform === 'tcg' ? new UnpackedKernels(stateDir) : null
  const driver = new VmDriver({
    db,
    clock,
    random,
    log: log.unit('vm'),
    network: firewall.network,
    stateDir,
    qemu: config.vm.qemu,
    swtpm: () => programOf(tpm()),
    jailFiles: createJailFiles(),
    start: deps.starter.startJailed,
    uids: checkUidRange({ min: config.vm.uid_min, max: config.vm.uid_max }),
    groups: groupsOfDevices(platform),
    platform: hostPlatform(platform, config.vm),
    launcher,
    kernels,
    takeGpus: gpuTaker(),
    image,
    scratchLimits: { mibPerS: config.vm.scratch_mib_per_s_max, iops: config.vm.scratch_iops_max },
    namespace: firewall.namespace,
    nextHop: config.network.gateway_v4,
    nextHopV6: config.network.gateway_v6,
    mtuBytes: config.network.mtu_bytes,
    tapPrefix: config.network.tap_prefix,
    consoleBytesMax: config.vm.console_bytes_max,
    stopGraceMs: config.vm.stop_grace_ms,
  })
  const collateral = deps.collateral(platform)
  swapMeta(db, bootName, hostBootId())
  /** No share: all disks have one size, and the VMs of an organization are limited. */
  const diskGibMax = () => config.capacity.scratch_gib || freeDiskGib(stateDir)
  const reconciler = new VmReconciler({
    ledger: store.ledger,
    hostId: store.hostId,
    driver,
    clock,
    guard: deps.clockGuard,
    log: log.unit('vm'),
    capacity,
    pools: poolsOf(config),
    addressRestMs: config.network.address_rest_s * 1000,
    guestNetwork: guestNetwork(config.network),
    diskGibMax,
    bootTimeoutMs: config.vm.boot_timeout_ms,
    capacityWaitMs: config.capacity.wait_ms,
    platform,
    evidence: { collateral: collateral?.forReport ?? null, simulated },
    isHostStopping,
    probeSsh,
    hostLoss,
  })
  return {
    ...firewall,
    reconciler,
    pausedVms: () => driver.pausedVms(),
    usage: new UsageHistory({ db, usage: processUsage }),
    readAhead: vm => readAhead({ image, launcher, kernels, log: log.unit('vm') }, vm),
    platform,
    tpm: () => tpm().kind,
    capacity,
    diskGibMax,
    collateral,
    images,
  }
}

function forwardPackets({ network }: Config, stateDir: string): void {
  enableForwarding(settingsNote({ stateDir }))
  if (network.pool_v6 !== '') enableForwardingV6(settingsNote({ stateDir }))
}

const bootName = 'host_boot_id'

/** By the boot in which the records were last used. Null if VMs of theirs may still run. */
function hostLossOf(db: LedgerDb): HostLoss | null {
  const before = readMeta(db, bootName)
  if (before === null || before === hostBootId()) return null
  return before === restoredBoot ? 'host_restored' : 'host_restarted'
}

type NetworkParts = Pick<EngineDeps, 'config' | 'store' | 'clock' | 'log' | 'gate'> & {
  /** Names of before, under which nothing runs any more. */
  readonly former: NetworkNames | null
  readonly gatewayInVm: boolean
}

type Network = Pick<Engine, 'nft' | 'network' | 'namespace' | 'openNetwork' | 'watchNetwork'>

function composeNetwork({ config, store, clock, log, gate, former, gatewayInVm }: NetworkParts): Network {
  const { table, tap_prefix: tapPrefix, allow_names: allowNames, pool_v6, gateway_v6 } = config.network
  const ruleset = firewallSettings(config, { gatewayInVm })
  const namespace = createVmNamespace({
    name: table,
    tapPrefix,
    nextHop: ruleset.nextHop,
    nextHopV6: pool_v6 === '' ? null : gateway_v6,
    loopbackClients: hasLoopback(ruleset.gatewayListen),
    mtuBytes: ruleset.mtuBytes,
  })
  const inside = { table, log: log.unit('nft'), netns: namespace.netns }
  const here = { table, log: log.unit('nft'), netns: hereNetns }
  const watch = new NftWatch({ ...inside, clock })
  const hostWatch = new NftWatch({ ...here, clock })
  const nft = createNft({ ...inside, watch })
  const hostNft = createNft({ ...here, watch: hostWatch })
  const withV6 = ruleset.v6 !== null
  const network = new VmNetwork({
    ledger: store.ledger,
    nft,
    netns: namespace.netns,
    clock,
    log: log.unit('network'),
    egressLimitBytes,
    rescueLimitBytes: config.network.rescue_bytes,
    ruleset,
    host: { nft: hostNft, ruleset: hostTableSettings(config, { gatewayInVm }) },
    names: allowNames.length === 0 ? null : { entries: allowNames, port: guestDnsPort },
    closeRouting: () => (gate.isOpen() ? namespace.closeRouting() : Promise.resolve()),
    ownNetworks: () => ownNetworks({ withV6 }),
    ownAddresses: () => ownAddresses({ withV6 }),
  })
  return {
    nft,
    network,
    namespace,
    openNetwork: async () => {
      if (former !== null) await removeFormer(former, log.unit('network'))
      keepNetworkNames(store.ledger.db, { table, tapPrefix })
      await namespace.open()
      await takeOver({ ledger: store.ledger, namespace, nft: hostNft, tapPrefix, clock, log: log.unit('network') })
    },
    watchNetwork: async signal => {
      await Promise.all([
        network.watch(watch, signal),
        network.watchHost(hostWatch, { signal, onAddresses: namespace.keep }),
      ])
    },
  }
}

type SummaryDeps = Pick<EngineDeps, 'stateDir' | 'operatorKey' | 'clock' | 'log'>

function imageSummaries({ stateDir, log, ...deps }: SummaryDeps): ImageSummaries {
  return new ImageSummaries({ ...deps, directory: `${stateDir}/image-summaries`, version, log: log.unit('vm') })
}

/** Loads an image by its name. Throws Fault image.invalid. */
function imageNamed(
  name: string,
  {
    config,
    gatewayVmImageDir,
    images,
  }: Pick<EngineDeps, 'config' | 'gatewayVmImageDir'> & { readonly images: ImageSummaries },
): Image | Promise<Image> {
  if (name === builderImage) return images.verifyBuilder(config.builds.image_dir)
  if (name !== gatewayVmImage) return loadImage(config.vm.image_dir)
  if (gatewayVmImageDir === null) throw new Fault('image.invalid', 'this appliance runs its gateway in no VM')
  return loadGatewayVmImage(gatewayVmImageDir)
}

/**
 * The operator learns at the start that every launch would be refused, before the first VM fails. The image may be
 * installed later.
 */
function warnUnmeasured(
  { vm, builds, listen, inference }: Config,
  { gatewayVmImageDir, log }: Pick<EngineDeps, 'gatewayVmImageDir' | 'log'>,
): void {
  const check = (field: string, vcpus: number, load: () => Image) => {
    try {
      expectedMeasurement(load().manifest, { vehicle: vm.snp_boot, vcpuType: vm.vcpu_type, vcpus })
    } catch (error) {
      log.error('no VM can be started from the configured image', { field, reason: messageOf(error) })
    }
  }
  check('vm.image_dir', vm.vcpus, () => loadImage(vm.image_dir))
  if (gatewayVmImageDir !== null) {
    check('inference.worker.image_dir', inference.vcpus, () => loadGatewayVmImage(gatewayVmImageDir))
  }
  if (listen.builds !== '') check('builds.image_dir', builds.vcpus, () => loadBuilderImage(builds.image_dir))
}

/** An IPv4 /24 or IPv6 /48 may hold one in so many of all connections. */
const networkParts = 8

type Placement = { readonly gatewayInVm: boolean }

/** Settings of the firewall in the namespace of VMs. */
export function firewallSettings(config: Config, { gatewayInVm }: Placement): VmNetworkDeps['ruleset'] {
  const { listen, network } = config
  return {
    table: network.table,
    tapPrefix: network.tap_prefix,
    mtuBytes: network.mtu_bytes,
    pool: network.pool_v4 || null,
    v6: egressSettingsV6(network),
    egress: egressSettings(network),
    nextHop: network.gateway_v4,
    nextHopPorts: guestGateway(config, guestGatewayName).ports,
    services: serviceBounds(config),
    snapshotPort: config.snapshots.kept_per_instance === 0 ? null : config.snapshots.port,
    publicPort: config.tls.acme.published_per_week === 0 ? null : publicTlsPort,
    fetchPort: listen.builds === '' || config.builds.fetch_hosts.length === 0 ? null : config.builds.fetch_port,
    gatewayListen: gatewayInVm ? listenV4(listen.inference) : null,
  }
}

/** Settings of the table on this host itself. */
export function hostTableSettings(config: Config, { gatewayInVm }: Placement): VmNetworkDeps['host']['ruleset'] {
  const { listen, network, vm, tls, fleet } = config
  const others = [tls.acme.http_listen, fleet.peer_listen]
  const listening = [
    listen.instances,
    listen.inference,
    listen.builds,
    listen.console,
    listen.metrics,
    ...others,
  ].filter(text => text !== '')
  // Port 0 is for tests: the kernel chooses, and connections are not counted.
  const ports = [...new Set(listening.map(text => listenAddress(text).port))].filter(port => port !== 0)
  return {
    table: network.table,
    link: linkNames(network.tap_prefix).host,
    nextHop: network.gateway_v4,
    nextHopV6: network.pool_v6 === '' ? null : network.gateway_v6,
    source: egressSource(network.egress.source),
    sourceV6: network.pool_v6 === '' ? null : egressSourceV6(network.egress.source_v6),
    dropOthers: network.forward_others === 'drop',
    services: { ports, ...serviceBounds(config) },
    uids: { min: vm.uid_min, max: vm.uid_max },
    namesPort: network.allow_names.length === 0 ? null : guestDnsPort,
    gatewayListen: gatewayInVm ? listenV4(listen.inference) : null,
  }
}

function serviceBounds({ http }: Config): VmNetworkDeps['ruleset']['services'] {
  const { connections_per_address_max: perAddressMax, connections_max: allMax } = http
  return {
    perAddressMax,
    perNetworkMax: Math.max(perAddressMax, shareOf(allMax, networkParts)),
    allMax,
    newPerSecondMax: http.new_connections_per_s_max,
  }
}

function egressSettings({ egress, ...network }: Config['network']): EgressPlan {
  const texts = [...egress.allow, ...openResolvers(network).map(address => `${address}:53`)]
  return {
    allowed: texts.flatMap(text => parseEgressEntry(text) ?? []),
    newFlowsPerSecondMax: egress.new_flows_per_s_max,
    flowsMax: egress.flows_max,
  }
}

/**
 * Instances may reach the resolvers they are configured with, wherever these are. With a list of names they get none.
 */
function openResolvers({ resolvers, allow_names }: Pick<Config['network'], 'resolvers' | 'allow_names'>) {
  return allow_names.length === 0 ? resolvers : []
}

/** Null if instances have no IPv6. */
function egressSettingsV6({ egress, pool_v6: pool, gateway_v6, ...network }: Config['network']): EgressPlanV6 | null {
  if (pool === '') return null
  const texts = [...egress.allow, ...openResolvers(network).map(address => `[${address}]:53`)]
  return {
    pool,
    nextHop: gateway_v6,
    allowed: texts.flatMap(text => parseEgressEntryV6(text) ?? []),
  }
}

function guestNetwork({ gateway_v4, gateway_v6, mtu_bytes, ...network }: Config['network']): GuestNetwork {
  const resolvers = network.allow_names.length === 0 ? network.resolvers : [gateway_v4, gateway_v6]
  return { nextHop: gateway_v4, nextHopV6: gateway_v6, nextHopMac: tapMac, mtuBytes: mtu_bytes, resolvers }
}

export function poolsOf({ network }: Pick<Config, 'network'>): Pools {
  return { v4: network.pool_v4 || null, v6: network.pool_v6 || null }
}

function hasLoopback(listen: GatewayListen | null): boolean {
  return listen?.address === '0.0.0.0' || listen?.address?.startsWith('127.') === true
}
