// Attested builds: the table `builds` of the configuration. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { fetchHostAllowed } from './fetch-hosts.ts'
import { Count, OneOf, Path, PathOrNone, Section } from './fields.ts'

export const BuildsConfig = Section({
  image_dir: Path('/var/lib/strongroom/images/builder', 'Directory of the `builder` image, with its manifest.json.'),
  vcpus: Count([2, 1, 255], 'vCPUs of a build VM. On snp they are part of the launch measurement.'),
  memory_mib: Count([4096, 1024, 1_048_576], 'Memory of a build VM.'),
  scratch_gib: Count(
    [20, 1, 2048],
    'Size of the scratch disk of a build VM, where source, dependencies and outputs are, encrypted and authenticated with a key that only it has. It grows with its use, and 8 MiB of its memory with each GiB: at most 16 GiB for each GiB of memory.',
  ),
  exchange_gib: Count(
    [1, 1, 64],
    'Size of the disk by which a build VM gets its source and hands over its result. It grows with its use.',
  ),
  warm: Count(
    [0, 0, 64],
    'How many build VMs are kept booted for builds to come. Each holds memory, vCPUs and an address; a new build takes one over instead of booting its own. 0 for none.',
  ),
  auth: OneOf(['key', 'open'], {
    default: 'key',
    description:
      'Who may build: "key" requires a key of an organization, as service A does; "open" admits callers without one.',
  }),
  base_url: Type.String({
    default: '',
    maxLength: 512,
    allowed: '"" or https://HOST or https://HOST:PORT, with nothing after it',
    description:
      'Where clients reach service C, for the addresses and commands that it prints. "" for the host of each request.',
  }),
  /**
   * Share: half may be reserved by one organization, none while builds wait; free VMs go by turns.
   */
  concurrent_max: Count(
    [2, 1, 256],
    'How many builds may have a VM at the same time, reserved VMs included, of which one organization may hold half.',
  ),
  /** Share: half for one organization; organizations take turns. */
  queue_max: Count(
    [32, 0, 4096],
    'How many builds may wait for a VM, half of them of one organization. Beyond it: status 429.',
  ),
  /** Share: this limit is the share of one organization. */
  per_organization_max: Count(
    [8, 1, 4096],
    'How many builds of one organization may wait or run, its reserved VMs included. Beyond it: status 429.',
  ),
  /** Share: this limit is the share of one organization, for nonces too. */
  per_day_max: Count(
    [200, 1, 100_000],
    'How many builds one organization may begin within 24 hours. Beyond it: status 429.',
  ),
  requests_per_minute: Count(
    [600, 1, 1_000_000],
    'Requests per minute to service C with one key; without keys, from one IP address. Beyond it: status 429.',
  ),
  /** Share: a quarter for one organization; half for all strangers, an eighth for one network. */
  uploads_max: Count(
    [8, 1, 256],
    'How many sources may be on their way at the same time, a quarter of them of one organization. Beyond it: status 429.',
  ),
  body_timeout_s: Count([600, 1, 86_400], 'A request body, which may hold the source, must arrive within this time.'),
  reserved_minutes: Count([15, 1, 1440], 'How long a reserved VM waits for its build.'),
  retention_days: Count([30, 1, 3650], 'How long records of builds, their events and results are kept.'),
  /** Share: when full, the organization with the most bytes loses its oldest result. */
  results_gib_max: Count(
    [20, 1, 65_536],
    'How much the sources, events and results of all builds may take up; the organization that has most loses its oldest results first. When what is left cannot go, new builds get status 429.',
  ),
  archive_mib: Count([64, 1, 1024], 'Largest source archive that a client may send.'),
  source_mib: Count([1024, 1, 65_536], 'Largest source, unpacked or cloned.'),
  source_entries: Count([100_000, 1, 10_000_000], 'How many files and directories a source may have.'),
  fetch_seconds: Count([900, 1, 86_400], 'Longest time for cloning and fetching, when the network is open.'),
  fetch_mib: Count([2048, 1, 1_048_576], 'How much one build may fetch.'),
  build_seconds: Count([3600, 1, 604_800], 'Longest time for the build itself.'),
  build_memory_mib: Count(
    [0, 0, 1_048_576],
    'Memory of the build within its VM. 0 for three quarters of `memory_mib`.',
  ),
  build_pids: Count([4096, 16, 4_194_304], 'How many processes and threads a build may have.'),
  build_disk_gib: Count([0, 0, 2048], 'What a build may write. 0 for three quarters of `scratch_gib`.'),
  log_mib: Count([16, 1, 1024], 'How much a build may print; more ends it.'),
  artifact_mib: Count([512, 1, 65_536], 'How large all artifacts of a build together may be.'),
  artifact_count: Count([256, 1, 65_536], 'How many artifacts a build may have.'),
  fetch_hosts: Type.Array(Type.String({ minLength: 1, maxLength: 300, allowed: fetchHostAllowed }), {
    default: [],
    maxItems: 256,
    description:
      'Hosts that builds may clone and fetch from: git hosts, registries, or a mirror of one. Everything else is refused, and addresses within private networks unless they stand here. With none, builds fetch nothing.',
  }),
  fetch_port: Count(
    [8444, 1, 65_535],
    'TCP port on `network.gateway_v4` at which only build VMs reach the proxy to these hosts.',
  ),
  fetch_ca_file: PathOrNone(
    'PEM certificates of a mirror or git host of your own. A build trusts them beside the public ones while it fetches, if its request names their SHA-256 (`fetch_ca_sha256`). "" for none.',
  ),
  crates_mirror: Type.String({
    default: '',
    pattern: '^$|^sparse\\+https://[^/?#@\\s]+/([^?#\\s]*/)?$',
    maxLength: 512,
    allowed: '"" or sparse+https://HOST/…/',
    description:
      'Mirror that replaces crates.io, as cargo writes it, for builds whose request names it (`crates_mirror`); its host must be in `fetch_hosts`. "" for the registry that a lock file names.',
  }),
  rust_mirror: Type.String({
    default: '',
    pattern: '^$|^https://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*$',
    maxLength: 512,
    allowed: '"" or https://HOST/PATH without a slash at its end',
    description:
      'Distribution server of Rust, or a mirror of it (`RUSTUP_DIST_SERVER` of rustup), for builds whose request names it (`rust_mirror`). Such a build takes the exact version that its rust-toolchain.toml pins. The host must be in `fetch_hosts`. "" for none.',
  }),
})
export type BuildsConfig = Static<typeof BuildsConfig>
