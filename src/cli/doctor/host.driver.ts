// Collects the facts about the host for `strongroom doctor`. Effects: reads files, runs a few commands that change
// nothing.

import { accessSync, constants, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'
import type { LoadedConfig } from '../../config/load.ts'
import type { Config, Platform } from '../../config/schema.ts'
import { AdminLeaks, AdminStatus } from '../../contract/admin/admin.ts'
import { collateralProblem, kdsDirName, keptCollateral } from '../../host/kds/kept.ts'
import { hasConntrack } from '../../host/network/conntrack.ts'
import { defaultRouteAddress } from '../../host/network/default-route.ts'
import { detectPlatform, hostProduct, snpFacts } from '../../host/platform.ts'
import { snapshotsDirectory } from '../../host/state-files.ts'
import { readVfioDevice } from '../../host/vfio.ts'
import { plainEnv, run } from '../../linux/command.ts'
import { diskSpace } from '../../linux/files/disk-space.ts'
import { systemResolvers } from '../../linux/net/dns-ask.ts'
import { diskProblems } from '../../operator/problems/disk.ts'
import { MIGRATIONS, schemaVersionOf } from '../../store/db.ts'
import { loadImage } from '../../vm/launch/image.driver.ts'
import { createJailFiles } from '../../vm/launch/jail-files.driver.ts'
import type { AdminClient } from '../daemon-client.ts'
import { collectBuildFacts } from './builds.driver.ts'
import { bootCanary } from './canary.driver.ts'
import type { CanaryFacts } from './canary.plan.ts'
import { type Outcome, outcomeOf } from './check.ts'
import { collectDatabaseFacts } from './database.driver.ts'
import { collectDelegationFacts } from './delegation.driver.ts'
import { collectFleetFacts } from './fleet/fleet.driver.ts'
import { collectGatewayFacts } from './gateway.driver.ts'
import type { HostFacts } from './host.plan.ts'
import { checkImage, checkMeasurement } from './image-check.driver.ts'
import { collectMachineFacts } from './machine/machine.driver.ts'
import { collectSnpFacts } from './machine/snp.driver.ts'
import { collectNetworkFacts } from './network.driver.ts'
import { collectProxyFacts } from './proxy.driver.ts'
import { collectDeviceFacts, groupsOfVms } from './vm-identity.driver.ts'

const commandTimeoutMs = 10_000
export const leaksTimeoutMs = 60_000
const canaryTimeoutMs = 5_000
const canaryMemoryMib = 64
const outputBytesMax = 262_144

export async function collectHostFacts(deps: {
  readonly loaded: LoadedConfig
  readonly stateDir: string
  readonly client: AdminClient
  /** Called before slow steps. */
  readonly progress: (text: string) => Promise<void>
  /** Boot a VM to show that VMs run. */
  readonly canary: boolean
}): Promise<HostFacts> {
  const { loaded, stateDir, progress } = deps
  const { config } = loaded
  const { vm } = config
  const isRoot = process.getuid?.() === 0
  const first = {
    uid: vm.uid_min,
    vcpus: vm.vcpus,
    memoryMib: vm.memory_mib,
    diskGib: vm.scratch_gib,
    devices: 0,
    systemd: true,
  }
  const detected = detectPlatform()
  const platform = config.platform === 'auto' ? detected.platform : config.platform
  const [kvmDevice, sevDevice, qemu, qemuObjects, swtpm, nft, ip, status] = await Promise.all([
    collectDeviceFacts('/dev/kvm', { ...first, platform: 'kvm', groups: groupsOfVms('kvm') }),
    collectDeviceFacts('/dev/sev', { ...first, platform: 'snp', groups: groupsOfVms('snp') }),
    firstLine([vm.qemu, '--version']),
    command([vm.qemu, '-machine', 'none', '-object', 'help']),
    firstLine([vm.swtpm, '--version']),
    isRoot
      ? command(['nft', 'list', 'tables']).then(outcome => (outcome.ok ? firstLine(['nft', '--version']) : outcome))
      : null,
    firstLine(['ip', '-Version']),
    deps.client.request({ path: '/status', response: AdminStatus }).catch(messageOf),
  ])
  const daemonPid = typeof status === 'string' ? null : status.pid
  await progress('reading the images, to check them against the digests of their manifests …')
  const image = await outcomeOf(() => checkImage(vm.image_dir, loadImage))
  const measurement = image.ok ? await outcomeOf(() => checkMeasurement(vm)) : null
  const nowMs = Date.now()
  return {
    configFile: loaded.file,
    config,
    isRoot,
    detected,
    snp: await outcomeOf(() => {
      const { cbitpos, asidCount } = snpFacts()
      return `C-bit ${cbitpos}, ${asidCount} ASIDs`
    }),
    kvmDevice,
    sevDevice,
    qemu,
    qemuObjects,
    swtpm,
    swtpmPath: Bun.which(vm.swtpm, { PATH: plainEnv.PATH }),
    appArmorProfiles: resultOr(() => readFileSync('/sys/kernel/security/apparmor/profiles', 'utf8'), ''),
    nft,
    ip,
    conntrack: hasConntrack(),
    missingTools: hostTools.filter(tool => Bun.which(tool, { PATH: plainEnv.PATH }) === null),
    tunDevice: existsSync('/dev/net/tun'),
    routeAddress: defaultRouteAddress(),
    image,
    measurement,
    collateral: collateralIn(`${stateDir}/${kdsDirName}`, nowMs),
    nowMs,
    gateway: await collectGatewayFacts(config, deps),
    gpus: config.inference.worker.gpu.map(address => readVfioDevice(address)),
    builds: await collectBuildFacts(config, stateDir),
    snpHost: collectSnpFacts(vm),
    canary: await canaryFacts({ vm, platform, isRoot, isWanted: deps.canary, progress }),
    network: await collectNetworkFacts(config, { isRoot }),
    machine: collectMachineFacts({
      config,
      platform,
      stateDir,
      daemonPid,
    }),
    fleet: await collectFleetFacts(config, stateDir),
    proxy: await collectProxyFacts(config, platform),
    delegation: await collectDelegationFacts({ domain: config.domain, resolvers: systemResolvers() }),
    leaks: daemonPid === null ? null : await leaksOf(deps.client),
    stateDir,
    stateDirFreeBytes: existsSync(stateDir) ? diskSpace(stateDir).freeBytes : null,
    snapshotBytes: bytesBelow(join(stateDir, snapshotsDirectory)),
    stateDirWritable: isWritable(stateDir),
    diskProblem: existsSync(stateDir) ? (diskProblems(stateDir)[0] ?? null) : null,
    database: collectDatabaseFacts(stateDir, { isRoot }),
    schemaNewest: schemaVersionOf(MIGRATIONS),
    systemd: existsSync('/run/systemd/system'),
    daemon:
      typeof status === 'string'
        ? { ok: false, text: status }
        : { ok: true, text: `version ${status.version}, pid ${status.pid}, platform ${status.platform}` },
    daemonPid,
    problems: typeof status === 'string' ? null : status.problems,
    certificates: typeof status === 'string' ? null : status.tls.certificates,
    acme: typeof status === 'string' ? null : status.tls.acme,
    log: typeof status === 'string' ? null : status.log,
    attestedUpstreams: typeof status === 'string' ? null : status.gateway.attested_upstreams,
  }
}

async function canaryFacts({
  vm,
  platform,
  isRoot,
  isWanted,
  progress,
}: {
  readonly vm: Config['vm']
  readonly platform: Platform
  readonly isRoot: boolean
  readonly isWanted: boolean
  readonly progress: (text: string) => Promise<void>
}): Promise<CanaryFacts> {
  if (!isWanted) return { kind: 'none', reason: 'left out by --no-canary' }
  if (!isRoot) return { kind: 'none', reason: 'needs root' }
  await progress('booting a canary, to see whether guests run …')
  // The highest: the daemon draws from the whole range and hardly ever ends this one while the canary has it.
  const confinement = { uid: vm.uid_max, groups: groupsOfVms(platform), platform, systemd: true } as const
  return await bootCanary({
    qemu: vm.qemu,
    platform,
    timeoutMs: canaryTimeoutMs,
    jailFiles: createJailFiles(),
    vm: { ...confinement, vcpus: 1, memoryMib: canaryMemoryMib, diskGib: 0, devices: 0 },
  })
}

async function leaksOf(client: AdminClient): Promise<HostFacts['leaks']> {
  try {
    const { leaks } = await client.request({ path: '/leaks', response: AdminLeaks, timeoutMs: leaksTimeoutMs })
    return { ok: true, kinds: leaks.map(({ kind, detail }) => `${kind} ${detail}`) }
  } catch (error) {
    return { ok: false, text: messageOf(error) }
  }
}

/** Null before the first start, and for unknown processors. */
function collateralIn(directory: string, nowMs: number): HostFacts['collateral'] {
  const product = hostProduct()
  if (product === null || !existsSync(directory)) return null
  const kept = keptCollateral(directory, product)
  return { kept, problem: collateralProblem(kept, nowMs) }
}

function command(argv: readonly string[]): Promise<Outcome> {
  return outcomeOf(async () => (await run(argv, { timeoutMs: commandTimeoutMs, outputBytesMax })).stdout)
}

async function firstLine(argv: readonly string[]): Promise<Outcome> {
  const outcome = await command(argv)
  return { ...outcome, text: outcome.text.split('\n')[0] ?? '' }
}

function isWritable(path: string): boolean {
  return resultOr(() => {
    accessSync(path, constants.W_OK)
    return true
  }, false)
}

const hostTools = ['prlimit', 'choom', 'setpriv', 'bwrap'] as const

/** The size of all files two levels below a directory. 0 if it does not exist, or cannot be read. */
function bytesBelow(directory: string): number {
  const namesIn = (path: string) => resultOr(() => readdirSync(path), [])
  const files = namesIn(directory).flatMap(name =>
    namesIn(join(directory, name)).map(file => join(directory, name, file)),
  )
  return files.reduce((sum, path) => sum + (statSync(path, { throwIfNoEntry: false })?.size ?? 0), 0)
}
