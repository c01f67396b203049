// Judges the facts about the host. Pure.

import { isoOrNull } from '../../base/clock.ts'
import { HOST_LISTENERS, type HostName, serviceAddresses } from '../../config/listen.ts'
import type { Config, Platform } from '../../config/schema.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'
import type { FoundProblem } from '../../contract/admin/problems.ts'
import type { CollateralProblem, KeptCollateral } from '../../host/kds/kept.ts'
import type { VfioDevice } from '../../host/vfio.ts'
import { acmeText } from '../../operator/problems/certificates.plan.ts'
import { parseQemuVersion } from '../../vm/gpu/gpu.plan.ts'
import { type BuildFacts, buildChecks } from './builds.plan.ts'
import { type CanaryFacts, canaryCheck } from './canary.plan.ts'
import { type Check, fail, fromOutcome, type ImageFacts, imageChecks, type Outcome, pass, skip, warn } from './check.ts'
import { type DatabaseFacts, databaseCheck } from './database.plan.ts'
import { type DelegationFacts, delegationCheck } from './delegation.plan.ts'
import { type FleetFacts, fleetChecks } from './fleet/fleet.plan.ts'
import { attestedChecks, type GatewayFacts, gatewayChecks, gpuChecks } from './gateway.plan.ts'
import { logCheck } from './log.plan.ts'
import { type MachineFacts, machineChecks } from './machine/machine.plan.ts'
import { firmwareCheck, type SnpHostFacts, snpChecks } from './machine/snp.plan.ts'
import { type NetworkFacts, networkChecks } from './network.plan.ts'
import { problemCheck, withProblems } from './problems.plan.ts'
import { type ProxyFacts, proxyChecks } from './proxy.plan.ts'

/** A device that QEMU opens. */
export type DeviceFacts = {
  /** Result of opening it for reading and writing as the identity that VMs get. */
  readonly outcome: Outcome
  readonly group: string
  readonly mode: number
}

export type HostFacts = ImageFacts & {
  readonly configFile: string | null
  readonly config: Config
  readonly isRoot: boolean
  readonly detected: { readonly platform: Platform; readonly reasons: readonly string[] }
  readonly snp: Outcome
  /** /dev/kvm and /dev/sev; null without it. Outcomes count only as root, who can take a VM's identity. */
  readonly kvmDevice: DeviceFacts | null
  readonly sevDevice: DeviceFacts | null
  /** First line of `--version`. */
  readonly qemu: Outcome
  /** The object types that QEMU has, one on each line. */
  readonly qemuObjects: Outcome
  /** First line of `--version`. */
  readonly swtpm: Outcome
  /** The program that `vm.swtpm` names; null if there is none. */
  readonly swtpmPath: string | null
  /** AppArmor's profiles with their modes (apparmorfs); empty without AppArmor, or if they may not be read. */
  readonly appArmorProfiles: string
  /** Null when not run as root, which nft needs. */
  readonly nft: Outcome | null
  readonly ip: Outcome
  readonly conntrack: boolean
  /** Programs without which no VM starts and no schema is checked; those that are missing. */
  readonly missingTools: readonly string[]
  readonly tunDevice: boolean
  /** IPv4 address of the default route's interface; null when there is none, or several. */
  readonly routeAddress: string | null
  /** Collateral stored for SNP reports; null if there is none, or before the first start. */
  readonly collateral: { readonly kept: KeptCollateral; readonly problem: CollateralProblem | null } | null
  readonly nowMs: number
  readonly snpHost: SnpHostFacts
  readonly canary: CanaryFacts
  readonly network: NetworkFacts
  readonly machine: MachineFacts
  readonly delegation: DelegationFacts
  /** Null if there is no proxy. */
  readonly proxy: ProxyFacts | null
  /** Null if this host is in no fleet. */
  readonly fleet: FleetFacts | null
  /** Differences between ledger and host, as the daemon reports them; null if no daemon answers. */
  readonly leaks:
    | { readonly ok: true; readonly kinds: readonly string[] }
    | { readonly ok: false; readonly text: string }
    | null
  /** Service B. */
  readonly gateway: GatewayFacts
  /** The devices that inference.worker.gpu names. */
  readonly gpus: readonly VfioDevice[]
  /** Service C; null when it is off. */
  readonly builds: BuildFacts | null
  readonly stateDir: string
  /** Null when the directory does not exist yet. */
  readonly stateDirFreeBytes: number | null
  /** Size of the snapshots of instances. */
  readonly snapshotBytes: number
  readonly stateDirWritable: boolean
  /** Judged as the daemon judges it; null if there is room. */
  readonly diskProblem: FoundProblem | null
  readonly database: DatabaseFacts
  /** The newest schema that this executable supports. */
  readonly schemaNewest: number
  readonly systemd: boolean
  readonly daemon: Outcome
  readonly daemonPid: number | null
  /** The problems that the daemon lists; null if it does not answer. */
  readonly problems: AdminStatus['problems'] | null
  /** Value reported by the daemon; null if none answers. */
  readonly certificates: AdminStatus['tls']['certificates'] | null
  /** The same for names by ACME; null if that is off too. */
  readonly acme: AdminStatus['tls']['acme']
  /** Null if the daemon does not answer, or cannot read its database. */
  readonly log: AdminStatus['log']
  /** Null if the daemon does not answer. */
  readonly attestedUpstreams: AdminStatus['gateway']['attested_upstreams'] | null
}

/** In the order in which an operator would fix them: what doctor looks at itself, and the daemon's list of problems. */
export function judge(facts: HostFacts): Check[] {
  return withProblems(ownChecks(facts), facts.problems)
}

function ownChecks(facts: HostFacts): Check[] {
  const { config, snpHost, network, machine } = facts
  const platform = config.platform === 'auto' ? facts.detected.platform : config.platform
  return [
    pass('configuration', facts.configFile ?? 'no file, all defaults'),
    platformCheck(facts, platform),
    kvmCheck(facts, platform),
    sevCheck(facts, platform),
    ...snpChecks(snpHost, config, platform),
    canaryCheck(facts.canary, platform),
    qemuCheck(facts, platform),
    tpmCheck(facts, platform),
    firmwareCheck(snpHost, platform),
    nftCheck(facts),
    ...networkChecks(network, config, facts.daemonPid),
    fromOutcome('ip', facts.ip, 'install iproute2'),
    facts.conntrack
      ? pass('conntrack', 'installed')
      : fail(
          'conntrack',
          'the command conntrack is missing',
          'install conntrack; without it the daemon does not start',
        ),
    facts.missingTools.length === 0
      ? pass('jail', 'prlimit, choom, setpriv, bwrap')
      : fail('jail', `not installed: ${facts.missingTools.join(', ')}`, 'install util-linux and bubblewrap'),
    facts.tunDevice
      ? pass('tun', '/dev/net/tun')
      : fail('tun', '/dev/net/tun does not exist', 'load the tun module: modprobe tun'),
    ...proxyChecks(facts.proxy),
    hostNamesCheck(facts),
    delegationCheck(facts.delegation, config, addressList(serviceAddresses(config, facts.routeAddress).ns)),
    ...imageChecks(facts, '', {
      image: 'build or copy the guest image again, or correct vm.image_dir in the configuration',
      measurement: MEASUREMENT_REMEDY,
    }),
    collateralCheck(facts, platform),
    ...gatewayChecks(facts.gateway, facts.config),
    ...gpuChecks(facts.gpus, platform, facts.qemu),
    ...attestedChecks(facts.attestedUpstreams),
    ...buildChecks(facts.builds, facts.config),
    certificatesCheck(facts),
    ...acmeChecks(facts),
    logCheck(facts.log),
    stateDirCheck(facts),
    databaseCheck(facts.database, facts.schemaNewest),
    ...(facts.fleet === null ? [] : fleetChecks(facts.fleet)),
    ...machineChecks(machine, config, facts),
    facts.systemd
      ? pass('systemd', 'VMs run in scopes of their own')
      : skip('systemd', 'systemd does not run here; VMs run in sessions of their own'),
    ledgerCheck(facts),
    daemonCheck(facts),
  ]
}

/** Before the first start there is no database, and nothing is wrong. */
function daemonCheck({ daemon, database }: HostFacts): Check {
  if (daemon.ok) return pass('daemon', daemon.text)
  if (database.kind === 'none') return skip('daemon', daemon.text)
  return warn('daemon', daemon.text, DAEMON_REMEDY)
}

const DAEMON_REMEDY =
  '`systemctl status strongroom` and `journalctl --unit=strongroom` have the reason; `strongroom help 3am`, "The service does not start"'

const MEASUREMENT_REMEDY =
  'set vm.vcpu_type and vm.vcpus to a shape that the image has a launch digest for; leave vm.firmware empty'
export const qemuMinimum = [7, 2] as const
export const qemuMinimumSnp = [9, 1] as const

function platformCheck({ config, detected }: HostFacts, platform: Platform): Check {
  const detail = `${platform} (${detected.reasons.join('; ')})`
  if (RANK[platform] > RANK[detected.platform]) {
    return fail(
      'platform',
      `${platform} is configured, but this host has ${detected.platform}: ${detail}`,
      PLATFORM_REMEDY,
    )
  }
  return pass('platform', config.platform === 'auto' ? detail : `${detail}, pinned by the configuration`)
}

const RANK: Record<Platform, number> = { tcg: 0, kvm: 1, snp: 2 }
const PLATFORM_REMEDY = 'set platform to "auto", or enable SVM and SEV-SNP in the BIOS setup and in the kvm_amd module'

function kvmCheck(facts: HostFacts, platform: Platform): Check {
  if (platform === 'tcg') return skip('kvm', 'the platform is tcg: software emulation, slow')
  return deviceCheck('kvm', '/dev/kvm', facts.kvmDevice, facts) ?? pass('kvm', '/dev/kvm, which VMs can open')
}

function sevCheck(facts: HostFacts, platform: Platform): Check {
  if (platform !== 'snp') return skip('sev-snp', 'not an SNP host: all evidence is SIMULATED')
  if (!facts.snp.ok) return fail('sev-snp', facts.snp.text, SNP_REMEDY)
  return deviceCheck('sev-snp', '/dev/sev', facts.sevDevice, facts) ?? pass('sev-snp', facts.snp.text)
}

const SNP_REMEDY = 'load the cpuid module (modprobe cpuid); set sev_snp=1 for kvm_amd; enable SEV-SNP in the BIOS setup'

/** Null when VMs can open it. */
function deviceCheck(name: string, path: string, device: DeviceFacts | null, facts: HostFacts): Check | null {
  const { uid_min: uid } = facts.config.vm
  if (device === null) return fail(name, `${path} does not exist`, moduleRemedy(path))
  if (!facts.isRoot) return skip(name, 'needs root')
  const { outcome, group, mode } = device
  if (outcome.ok) return null
  const detail = `VMs cannot open ${path} (as uid ${uid}): ${outcome.text}; it has group ${group}, mode ${mode.toString(8)}`
  return fail(name, detail, outcome.text === 'Permission denied' ? accessRemedy(path) : moduleRemedy(path))
}

function moduleRemedy(path: string): string {
  return `enable virtualization in the BIOS setup; load the module that makes ${path}: modprobe kvm_amd (kvm_intel on Intel)`
}

/** Everybody in the group root could do more than open this device, so it is given to a group of its own. */
function accessRemedy(path: string): string {
  const kernelName = path.slice('/dev/'.length)
  const rule = `KERNEL=="${kernelName}", GROUP="kvm", MODE="0660"`
  const apply = `udevadm control --reload; udevadm trigger --name-match=${kernelName}`
  return `write ${rule} to /etc/udev/rules.d/60-strongroom.rules; run ${apply}; QEMU gets the group by itself`
}

function qemuCheck({ qemu, qemuObjects, config }: HostFacts, platform: Platform): Check {
  if (!qemu.ok) return fail('qemu', qemu.text, `install QEMU, or correct vm.qemu (${config.vm.qemu})`)
  const version = parseQemuVersion(qemu.text)
  const minimum = platform === 'snp' ? qemuMinimumSnp : qemuMinimum
  if (version === null) return fail('qemu', `no version in ${JSON.stringify(qemu.text)}`, 'install QEMU')
  const [major, minor] = version
  if (major < minimum[0] || (major === minimum[0] && minor < minimum[1])) {
    return fail(
      'qemu',
      `version ${major}.${minor}; ${platform} needs ${minimum.join('.')} or later`,
      'install a later QEMU',
    )
  }
  const needed = config.vm.snp_boot === 'igvm' ? ['sev-snp-guest', 'igvm-cfg'] : ['sev-snp-guest']
  const missing = needed.filter(name => !qemuObjects.ok || !qemuObjects.text.split(/\s+/).includes(name))
  if (platform === 'snp' && missing.length > 0) {
    return fail(
      'qemu',
      `version ${major}.${minor} was built without ${missing.join(', ')}`,
      'install a QEMU that has it',
    )
  }
  return pass('qemu', `version ${major}.${minor}`)
}

/** Matches the name in Ubuntu's package, and the one that AppArmor gives by default. */
const swtpmProfile = /^(?:swtpm|\/usr\/bin\/swtpm) \((?:enforce|kill)\)$/m

function tpmCheck({ swtpm, swtpmPath, appArmorProfiles, config }: HostFacts, platform: Platform): Check {
  if (platform === 'snp') return pass('tpm', 'swtpm is not needed: on snp a VM has the TPM of its SVSM, or none')
  if (config.vm.tpm === 'off') return skip('tpm', 'vm.tpm is "off": VMs get no TPM')
  if (swtpmPath === '/usr/bin/swtpm' && swtpmProfile.test(appArmorProfiles)) {
    const detail = `AppArmor's profile of ${swtpmPath} is enforced: it allows files of libvirt and /var/lib/swtpm, so VMs get no TPM`
    const remedy =
      'run `ln -s /etc/apparmor.d/usr.bin.swtpm /etc/apparmor.d/disable/; apparmor_parser -R /etc/apparmor.d/usr.bin.swtpm` (each VM\'s swtpm has a jail of its own), or set vm.tpm to "off"'
    return warn('tpm', detail, remedy)
  }
  if (swtpm.ok) return pass('tpm', `${swtpm.text}; it is the host's, so its evidence has vtpm:host-untrusted`)
  return warn(
    'tpm',
    `VMs get no TPM: ${swtpm.text}`,
    `install swtpm, or correct vm.swtpm (${config.vm.swtpm}), or set vm.tpm to "off"`,
  )
}

function nftCheck({ nft }: HostFacts): Check {
  if (nft === null) return skip('nft', 'needs root')
  return fromOutcome('nft', nft, 'install nftables and run as root; the kernel needs nf_tables')
}

function hostNamesCheck({ config, routeAddress }: HostFacts): Check {
  if (config.listen.dns === '') return skip('host names', 'listen.dns is off: another server has to name this host')
  const addresses = serviceAddresses(config, routeAddress)
  const names = (Object.keys(addresses) as HostName[]).filter(name => config.listen[HOST_LISTENERS[name]] !== '')
  const missing = names.filter(name => addresses[name] === null)
  return missing.length === 0
    ? pass(
        'host names',
        names.map(name => `${name}.${config.domain} is ${addressList(addresses[name]).join(' and ')}`).join(', '),
      )
    : fail(
        'host names',
        `no address for ${missing.map(name => `${name}.${config.domain}`).join(', ')}`,
        'set network.public_v4 to the IPv4 address at which clients reach this host; without IPv4, let its services listen on "[::]" and set network.public_v6',
      )
}

/** Addresses of a name, IPv4 first. */
function addressList(pair: { readonly v4: string | null; readonly v6: string | null } | null): string[] {
  return [pair?.v4, pair?.v6].flatMap(address => address ?? [])
}

function collateralCheck({ collateral, nowMs }: HostFacts, platform: Platform): Check {
  const name = 'collateral'
  if (platform !== 'snp') return skip(name, 'not an SNP host: reports are SIMULATED')
  if (collateral === null) return skip(name, 'the first start fetches it')
  const { kept, problem } = collateral
  if (problem?.kind === 'bad') return fail(name, problem.text, problem.remedy)
  const { veks, chainFetchedAtMs, crlFetchedAtMs, crlNextUpdateMs } = kept
  const ages = `${veks.count} VEKs, the newest ${ageText(veks.fetchedAtMs, nowMs)}; chain ${ageText(chainFetchedAtMs, nowMs)}; CRL ${ageText(crlFetchedAtMs, nowMs)}, next update ${isoOrNull(crlNextUpdateMs)}`
  if (problem === null) return pass(name, ages)
  return warn(name, `${problem.text} (${ages})`, problem.remedy)
}

function certificatesCheck({ certificates }: HostFacts): Check {
  const name = 'certificates'
  if (certificates === null) return skip(name, 'the daemon does not answer')
  const all = certificates.map(({ name, expires_at }) => `${name.replace('_', ' ')} until ${expires_at}`)
  return pass(name, all.join(', '))
}

/** Empty without ACME. */
function acmeChecks({ acme }: HostFacts): Check[] {
  return (acme ?? []).map(row => pass(`acme ${row.name}`, acmeText(row)))
}

function ageText(atMs: number | null, nowMs: number): string {
  if (atMs === null) return 'none'
  const hours = Math.max(0, Math.floor((nowMs - atMs) / 3_600_000))
  return hours < 48 ? `${hours} h old` : `${Math.floor(hours / 24)} days old`
}

/** VMs that are being made or ended at the moment show up, too. */
function ledgerCheck({ leaks }: HostFacts): Check {
  const name = 'ledger'
  if (leaks === null) return skip(name, 'the daemon does not answer')
  if (!leaks.ok) return skip(name, leaks.text)
  if (leaks.kinds.length === 0) return pass(name, 'what is on this host is in the ledger, and the reverse')
  const kinds = [...Map.groupBy(leaks.kinds, kind => kind)].map(([kind, all]) => `${all.length} ${kind}`)
  const detail = `it and this host differ: ${kinds.join(', ')}`
  return warn(
    name,
    detail,
    'run strongroom doctor --leaks, which names each with its remedy; what is there twice in a row is a leak',
  )
}

function stateDirCheck(facts: HostFacts): Check {
  const { stateDir, stateDirFreeBytes, stateDirWritable, diskProblem, snapshotBytes } = facts
  const name = 'state directory'
  if (stateDirFreeBytes === null) return skip(name, `${stateDir} is made by the first start`)
  if (!stateDirWritable) return fail(name, `${stateDir} cannot be written`, 'run as root, or check --state-dir')
  const mib = (bytes: number) => `${Math.floor(bytes / 1_048_576)} MiB`
  const snapshots = snapshotBytes === 0 ? '' : `; snapshots of instances take ${mib(snapshotBytes)}`
  if (diskProblem !== null) return problemCheck(name, { ...diskProblem, detail: `${diskProblem.detail}${snapshots}` })
  return pass(name, `${stateDir}, ${mib(stateDirFreeBytes)} free${snapshots}`)
}
