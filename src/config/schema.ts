// Operator configuration: one TOML file. Every field has a default, so that an empty file works. Pure. Names here are
// the TOML keys, with the unit last. `allowed` describes what a pattern allows; error messages and the reference show
// it.

import { type Static, Type } from '@sinclair/typebox'
import { LOG_LEVELS } from '../base/log.ts'
import { AcmeConfig } from './acme.ts'
import { AlertsConfig } from './alerts/alerts.ts'
import { AllowNames } from './allow-names.ts'
import { BillingConfig } from './billing.ts'
import { BuildsConfig } from './builds.ts'
import { EgressConfig } from './egress.ts'
import {
  AddressPort,
  AddressPortOrOff,
  Count,
  Entry,
  ipv4Pattern,
  OneOf,
  Path,
  PathOrNone,
  poolV6Allowed,
  Section,
} from './fields.ts'
import { FleetConfig } from './fleet/fleet.ts'
import { InferenceConfig } from './inference.ts'
import { KdsConfig } from './kds.ts'
import { LogConfig } from './log/log.ts'
import { ProxyConfig } from './network/proxy.ts'
import { ConsoleConfig, MetricsConfig, OperatorConfig } from './operator.ts'
import { SnapshotsConfig } from './snapshots.ts'

const PLATFORMS = ['snp', 'kvm', 'tcg'] as const
export type Platform = (typeof PLATFORMS)[number]

export const ListenConfig = Section({
  instances: AddressPort('0.0.0.0:8441', 'HTTPS address of service A, the API for instances.'),
  inference: AddressPortOrOff(
    '0.0.0.0:8442',
    'HTTPS address of service B, the inference gateway. Instances reach it on `network.gateway_v4`, at this port.',
  ),
  builds: AddressPortOrOff('', 'HTTPS address of service C, attested builds, such as "0.0.0.0:8443".'),
  dns: AddressPortOrOff('0.0.0.0:53', 'Address of the authoritative DNS server for `domain`, UDP and TCP.'),
  console: AddressPortOrOff(
    '',
    'HTTPS address of the console for browsers, such as "127.0.0.1:8444", which a tunnel of SSH reaches.',
  ),
  metrics: AddressPortOrOff(
    '',
    'HTTPS address of the metrics for Prometheus, such as "0.0.0.0:8445". A scrape needs the token of `metrics.token_file`.',
  ),
})

const TlsConfig = Section({
  certificate_file: PathOrNone(
    'File with a PEM certificate chain to use instead of certificates of the local CA. Needs `key_file`. Read again when it changes. "" for none.',
  ),
  key_file: PathOrNone('File with the PEM private key of `certificate_file`.'),
  names: Type.Array(Type.String({ minLength: 1, maxLength: 253 }), {
    default: [],
    maxItems: 64,
    description: 'DNS names and IP addresses that certificates of the local CA hold besides the usual ones.',
  }),
  announced_names: Type.Array(Type.String({ minLength: 1, maxLength: 253 }), {
    default: [],
    maxItems: 64,
    description:
      'DNS names that this appliance will have, such as a new `domain`. The local CA permits them already, so that clients can take its new certificate before the change.',
  }),
  overlap_days: Count(
    [30, 0, 365],
    'After a change of `domain` certificates of the earlier names are served for so long, to clients that have the earlier certificate of the local CA.',
  ),
  validity_days: Count([90, 1, 397], 'How long a certificate of the local CA is valid.'),
  renew_before_days: Count(
    [30, 0, 396],
    'A certificate of the local CA is renewed when it is valid for fewer days than this.',
  ),
  acme: AcmeConfig,
})

const HttpConfig = Section({
  body_bytes_max: Count([65_536, 1024, 16_777_216], 'Largest request body that service A accepts.'),
  body_timeout_ms: Count([15_000, 100, 600_000], 'A request body must arrive within this time.'),
  json_depth_max: Count([16, 2, 128], 'How deep arrays and objects in a JSON body may be nested.'),
  idle_timeout_s: Count(
    [30, 1, 255],
    'A connection without traffic is closed after this time; of the gateway, one without a request under way.',
  ),
  /** Share: this limit is the share of one address. */
  connections_per_address_max: Count(
    [256, 1, 65_535],
    'How many connections one IPv4 address, or one IPv6 network of 64 bits, may have to the services; more are reset by the firewall.',
  ),
  /** Share: `connections_per_address_max` for an address or /64; an eighth for a /24 or /48. */
  connections_max: Count(
    [16_384, 1, 1_000_000],
    'How many connections all clients together may have to the services; one IPv4 /24 or IPv6 /48 an eighth of them.',
  ),
  /** Share: for one address or /64, eight times that for a /24 or /48 and for all newcomers. */
  new_connections_per_s_max: Count(
    [50, 1, 65_535],
    'How many connections one IPv4 address, or one IPv6 network of 64 bits, may begin each second, after a burst of `connections_per_address_max`; one IPv4 /24 or IPv6 /48 eight times as many. The firewall resets more, before they cost a TLS handshake.',
  ),
})

const NetworkConfig = Section({
  pool_v4: Type.String({
    default: '10.88.0.0/24',
    pattern: `^$|${ipv4Pattern}/(1[6-9]|2[0-9]|30)$`,
    allowed: '"" or an IPv4 network A.B.C.D/N, N from 16 to 30',
    description:
      'Network that instances get their addresses from, one each (/32). It must be routed to this host. "" for none, where there is a `pool_v6`: VMs that build, and those of the gateway, need this one.',
  }),
  pool_v6: Type.String({
    default: '',
    pattern: '^$|^[0-9a-f:]+/[0-9]{1,3}$',
    allowed: poolV6Allowed,
    description:
      'The same of IPv6: each instance gets one address (/128) of it, beside that of `pool_v4` if there is one. It must be routed to this host, which then forwards IPv6 (net.ipv6.conf.all.forwarding). With a prefix of 48 each instance is alone in a network of 64 bits, by which the gateway, where requests have no key, and much of the world count. "" for none: what instances send by IPv6 is dropped.',
  }),
  address_rest_s: Count([600, 0, 86_400], 'How long an address that an instance has given back is given to no other.'),
  gateway_v4: Type.String({
    default: '169.254.88.1',
    pattern: `${ipv4Pattern}$`,
    allowed: 'an IPv4 address',
    description: 'Address of this host as instances see it: their gateway, link-local, on every tap.',
  }),
  gateway_v6: Type.String({
    default: 'fd73:7472:6f6e:67::1',
    pattern: '^[0-9a-f:]{2,39}$',
    allowed: 'an IPv6 address in hexadecimal, not a link-local one',
    description: 'The same of IPv6, where there is a `pool_v6`. Instances alone know it.',
  }),
  public_v4: Type.String({
    default: '',
    pattern: `^$|${ipv4Pattern}$`,
    allowed: '"" or an IPv4 address',
    description:
      'Address at which clients reach this host: that of `ns.`, `instances.`, `inference.` and `builds.` in the DNS. "" for the address that each listens on, and where one listens on all, for the address of the default route. Set it behind a NAT, and where that interface has several addresses.',
  }),
  public_v6: Type.String({
    default: '',
    pattern: '^$|^[0-9a-f:]{2,39}$',
    allowed: '"" or an IPv6 address in hexadecimal',
    description:
      'The same of IPv6, for the names of services that listen on "[::]". "" for none: such a name has an IPv6 address only where its service listens on one.',
  }),
  resolvers: Type.Array(Type.String({ pattern: `${ipv4Pattern}$|^[0-9a-f:]{2,39}$`, allowed: 'an IP address' }), {
    default: ['9.9.9.9', '149.112.112.112'],
    maxItems: 3,
    description:
      'DNS resolvers that instances use, of a family that they have. With `allow_names` this host queries them instead.',
  }),
  allow_names: AllowNames,
  mtu_bytes: Count(
    [1500, 576, 9000],
    'MTU of the taps and of the network interfaces in instances; with a `pool_v6` 1280 or more.',
  ),
  table: Type.String({
    default: 'strongroom',
    pattern: '^[a-z][a-z0-9_]{0,30}$',
    allowed: '1 to 31 lowercase letters, digits and underscores, a letter first',
    description:
      'Name of the nftables tables (families inet and arp) that this appliance owns. Nothing else may use them: what others change in them is undone.',
  }),
  tap_prefix: Type.String({
    default: 'sr',
    pattern: '^[a-z]{1,4}$',
    allowed: '1 to 4 lowercase letters',
    description: 'Names of taps begin with this; 10 characters of the VM id follow.',
  }),
  sample_interval_ms: Count([5_000, 100, 600_000], 'How often egress counters are read.'),
  rescue_bytes: Count(
    [268_435_456, 0, 1_099_511_627_776],
    'How many bytes an instance may still send once its egress cap is spent, as answers within SSH connections from outside alone, so that its owner can rescue the work. They are not part of `egress_bytes`. 0 for none.',
  ),
  forward_others: OneOf(['leave', 'drop'], {
    default: 'leave',
    description:
      'This host forwards packets between its interfaces, because instances need that. What it forwards for others, with no instance at either end: "leave" leaves that to other rules of this host, "drop" drops it, which ends containers and VPNs that are routed here.',
  }),
  probe_peers: Type.Array(
    Type.String({
      pattern: `${ipv4Pattern}/([0-9]|[12][0-9]|3[0-2])$|^[0-9a-f:]{2,39}/[0-9]{1,3}$`,
      allowed: 'a network ADDRESS/N',
    }),
    {
      default: ['192.175.48.0/24', '2620:4f:8000::/48'],
      maxItems: 2,
      description:
        'Source networks of the test packets with which this host checks every 30 s that its own firewall lets instances through; at most one network of IPv4 and one of IPv6. No packet leaves this host. If your firewall admits SSH from certain networks only, such as an office, name one of those. [] for no check. The defaults are networks for unclaimed queries (RFC 7534).',
    },
  ),
  egress: EgressConfig,
  proxy: ProxyConfig,
})

const VmConfig = Section({
  image_dir: Path('/var/lib/strongroom/images/instance', 'Directory of the `instance` image, with its manifest.json.'),
  qemu: Path('/usr/bin/qemu-system-x86_64', 'The QEMU executable.'),
  tpm: OneOf(['auto', 'off'], {
    default: 'auto',
    description:
      'Whether a VM on kvm or tcg gets a TPM that this host emulates, where `swtpm` is installed. It proves nothing: it lets software that reads a TPM run on development machines. On snp a VM has the TPM of its SVSM, or none.',
  }),
  swtpm: Path('/usr/bin/swtpm', 'The swtpm executable.'),
  uid_min: Count(
    [70_000, 1, 4_294_967_293],
    'Lowest user id of a range for VMs alone: each QEMU runs under one of its own. The ids need no names.',
  ),
  /** No share: the host has as many ids as VMs. */
  uid_max: Count([79_999, 1, 4_294_967_293], 'Highest user id of this range.'),
  vcpus: Count([2, 1, 255], 'vCPUs of an instance. On snp they are part of the launch measurement.'),
  memory_mib: Count([2048, 512, 1_048_576], 'Memory of an instance.'),
  scratch_gib: Count(
    [8, 0, 2048],
    'Size of the scratch disk of an instance, on which its home and all that it installs are, encrypted and authenticated with a key that only it has. It grows with its use, and 8 MiB of its memory with each GiB: at most 16 GiB for each GiB of memory. 0 for none: what an instance writes then takes up its memory, half of it at most.',
  ),
  /** No share: limits each VM. */
  scratch_mib_per_s_max: Count(
    [256, 0, 1_048_576],
    'How much an instance may read and write on its scratch disk per second. For up to 10 s it may do four times as much. 0 for no limit.',
  ),
  /** No share: limits each VM. */
  scratch_iops_max: Count(
    [4_000, 0, 10_000_000],
    'How many reads and writes on its scratch disk an instance may do per second. For up to 10 s it may do four times as many. 0 for no limit.',
  ),
  vcpu_type: Type.String({
    default: 'EPYC-v4',
    pattern: '^EPYC(-[A-Za-z0-9]+)*$',
    allowed: 'an EPYC model of QEMU, such as "EPYC-v4"',
    description: 'CPU model of instances on snp. It is part of the launch measurement.',
  }),
  snp_boot: OneOf(['bios', 'igvm'], {
    default: 'bios',
    description:
      'How instances boot on snp: from firmware that checks kernel hashes, or from an IGVM file (QEMU 10.1 or later, built with IGVM support).',
  }),
  firmware: PathOrNone(
    'Firmware of instances for `snp_boot` "bios"; it must check kernel hashes. "" for the firmware of the image. Build VMs have that of their own image.',
  ),
  igvm: PathOrNone(
    'The IGVM file of instances for `snp_boot` "igvm"; its launch digest must be that of the image. "" for one that is made of the image. Build VMs have one that is made of their own image.',
  ),
  boot_timeout_ms: Count(
    [180_000, 1000, 3_600_000],
    'Longest time from the start of QEMU to the first message of the guest agent.',
  ),
  claim_timeout_ms: Count([60_000, 1000, 600_000], 'Longest time that the guest agent may take to respond to a claim.'),
  ssh_timeout_ms: Count([60_000, 1000, 600_000], 'Longest time from the claim to a complete SSH handshake.'),
  stop_grace_ms: Count([5_000, 0, 600_000], 'How long a guest may take to power down before QEMU is killed.'),
  console_bytes_max: Count([1_048_576, 4096, 67_108_864], 'How much of its serial console is kept for each VM.'),
  /** Share: an organization boots at most two rounds of VMs at a time. */
  start_concurrency_max: Count([2, 1, 64], 'How many VMs may boot at the same time.'),
})

const CapacityConfig = Section({
  memory_mib: Count([0, 0, 67_108_864], 'Memory for all VMs together. 0 for 80 % of the memory of the host.'),
  vcpus: Count([0, 0, 65_536], 'vCPUs for all VMs together. 0 for four per CPU of the host.'),
  asids: Count([0, 0, 65_536], 'SEV-SNP ASIDs for VMs on snp. 0 for as many as the CPU reports.'),
  scratch_gib: Count(
    [0, 0, 16_777_216],
    'Scratch disks of all VMs together. 0 for 80 % of what is free for them on the file system of the state directory. A VM whose write finds no room there is paused until there is.',
  ),
  wait_ms: Count([0, 0, 86_400_000], 'How long a new instance waits for free capacity before it fails.'),
  /** Share: this limit is the share of memory, vCPUs, disks and addresses. */
  instances_per_organization_max: Count(
    [100, 1, 100_000],
    'How many instances that are not terminated one organization may have.',
  ),
})

const PoolConfig = Section({
  warm: Count(
    [0, 0, 1024],
    'How many VMs are kept booted for instances to come. Each holds memory, vCPUs and an address like an instance; a new instance takes one over instead of booting its own. 0 for none.',
  ),
})

const InstancesConfig = Section({
  retention_days: Count([30, 30, 3650], 'How long the records of terminated instances, and their names, are kept.'),
  requests_per_minute: Count(
    [600, 1, 1_000_000],
    'Requests per minute to service A with one key. Beyond it: status 429.',
  ),
  /** Share: this limit is the share, also of idempotency keys, which last a day. */
  creates_per_day_max: Count(
    [500, 1, 1_000_000],
    'How many instances one organization may create within 24 hours. Beyond it: status 429.',
  ),
  /** Share: this limit is the share of one organization. */
  records_per_organization_max: Count(
    [1000, 1, 10_000],
    'How many records one organization may have, those of terminated instances included, which are kept for `retention_days`. Beyond it: status 429. Every list shows them all.',
  ),
  attestations_per_minute: Count(
    [30, 1, 100_000],
    'Fresh attestations of instances per minute of each key: `?nonce=` at `/v1/instances/{name}/attestation`. Beyond it: status 429.',
  ),
  idle_minutes: Count(
    [0, 0, 525_600],
    'An instance ends after this time without an SSH session, a login or a request to its gateway, by the count of its VM. The owner may order another time for one (`strongroom idle`). 0 for no end.',
  ),
  idle: Type.Array(
    Entry({
      organization: Type.String({
        pattern: '^[a-z0-9-]{1,32}$',
        maxLength: 32,
        allowed: 'a slug: 1 to 32 lowercase letters, digits and hyphens',
        description: 'Slug of the organization.',
      }),
      minutes: Type.Integer({
        minimum: 0,
        maximum: 525_600,
        description: 'As `idle_minutes`, which does not count for this organization. 0 for no end.',
      }),
    }),
    {
      default: [],
      maxItems: 1_024,
      description: 'Organizations whose instances have another idle time. The first entry of an organization counts.',
    },
  ),
  inference_models: Type.Array(Type.String({ minLength: 1, maxLength: 256 }), {
    default: ['strongroom-tiny'],
    minItems: 1,
    maxItems: 64,
    description: 'Models that an instance may use. The first is the default.',
  }),
  inference_base_url: Type.String({
    default: '',
    maxLength: 512,
    allowed: '"" or an http or https URL of at most 512 characters',
    description:
      'Base URL of the inference gateway that instances use; it must be publicly trusted, and within a private network it needs an entry in `network.egress.allow`. "" for the gateway of this appliance, which instances call inference.strongroom.internal: `network.gateway_v4` at the port of `listen.inference`, path /v1.',
  }),
})

export const Config = Entry({
  domain: Type.String({
    default: 'agents.internal',
    pattern: '^(?=.{1,180}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$',
    allowed: 'a DNS name in lowercase, at most 180 characters',
    description: 'Domain that the host names of instances are in.',
  }),
  platform: OneOf(['auto', ...PLATFORMS], {
    default: 'auto',
    description:
      '"auto" takes the best platform that this host has. Any other value is required: without it the appliance does not start.',
  }),
  log_level: OneOf(LOG_LEVELS, { default: 'info', description: 'The least severe level that is logged.' }),
  listen: ListenConfig,
  tls: TlsConfig,
  http: HttpConfig,
  network: NetworkConfig,
  vm: VmConfig,
  capacity: CapacityConfig,
  pool: PoolConfig,
  instances: InstancesConfig,
  snapshots: SnapshotsConfig,
  inference: InferenceConfig,
  builds: BuildsConfig,
  kds: KdsConfig,
  log: LogConfig,
  billing: BillingConfig,
  operator: OperatorConfig,
  console: ConsoleConfig,
  metrics: MetricsConfig,
  alerts: AlertsConfig,
  fleet: FleetConfig,
})
export type Config = Static<typeof Config>
