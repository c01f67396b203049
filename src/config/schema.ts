// Operator configuration: one TOML file, every field with a documented default, so that an empty file works. Pure.
// Names here are the TOML keys. Units last. `allowed` says in words what a pattern allows; messages and the reference show it.

import { type Static, Type } from '@sinclair/typebox'

const closed = { additionalProperties: false } as const
const AddressPort = (fallback: string, description: string) =>
  Type.String({
    default: fallback,
    pattern: '^[0-9a-fA-F.:\\[\\]]+:[0-9]{1,5}$',
    allowed: 'ADDRESS:PORT, an IPv6 address in brackets',
    description,
  })
const Count = (fallback: number, minimum: number, maximum: number, description: string) =>
  Type.Integer({ default: fallback, minimum, maximum, description })
const Path = (fallback: string, description: string) =>
  Type.String({ default: fallback, maxLength: 4096, allowed: 'an absolute path', description })
const Usd = (fallback: string, description: string) =>
  Type.String({
    default: fallback,
    pattern: '^(0|[1-9][0-9]{0,11})(\\.[0-9]{1,6})?$',
    allowed: 'US dollars as text, such as "12.50"; at most six decimals',
    description,
  })
const Ipv4 = '^(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\\.(?!$|/)|(?=$|/))){4}'

export const ListenConfig = Type.Object(
  {
    instances: AddressPort('0.0.0.0:8441', 'Service A, HTTPS.'),
    inference: Type.String({
      default: '0.0.0.0:8442',
      pattern: '^$|^[0-9a-fA-F.:\\[\\]]+:[0-9]{1,5}$',
      allowed: '"" or ADDRESS:PORT, an IPv6 address in brackets',
      description: 'Service B, the inference gateway, HTTPS; "" switches it off.',
    }),
    dns: Type.String({
      default: '0.0.0.0:53',
      pattern: '^$|^[0-9a-fA-F.:\\[\\]]+:[0-9]{1,5}$',
      allowed: '"" or ADDRESS:PORT, an IPv6 address in brackets',
      description: 'Authoritative DNS for `domain`, UDP and TCP; "" switches it off.',
    }),
  },
  { ...closed, default: {} },
)

export const TlsConfig = Type.Object(
  {
    certificate_file: Path(
      '',
      'PEM chain that replaces the local CA; needs `key_file`; "" for none. Reloaded when it changes.',
    ),
    key_file: Path('', 'PEM private key of `certificate_file`.'),
    names: Type.Array(Type.String({ minLength: 1, maxLength: 253 }), {
      default: [],
      maxItems: 64,
      description: 'Further DNS names and IP addresses in the local certificate, besides the defaults.',
    }),
    validity_days: Count(90, 1, 397, 'Life of a certificate from the local CA.'),
    renew_before_days: Count(30, 0, 396, 'Renew when fewer days than this are left.'),
  },
  { ...closed, default: {} },
)

export const HttpConfig = Type.Object(
  {
    body_bytes_max: Count(65_536, 1024, 16_777_216, 'Largest request body of service A.'),
    body_timeout_ms: Count(15_000, 100, 600_000, 'A request body must have arrived within this time.'),
    json_depth_max: Count(16, 2, 128, 'Deepest nesting of a JSON body.'),
    idle_timeout_s: Count(30, 1, 255, 'Idle connections are closed after this time.'),
  },
  { ...closed, default: {} },
)

export const NetworkConfig = Type.Object(
  {
    pool_v4: Type.String({
      default: '10.88.0.0/24',
      pattern: `${Ipv4}/(1[6-9]|2[0-9]|30)$`,
      allowed: 'an IPv4 network A.B.C.D/N, N from 16 to 30',
      description: 'Instance addresses, routed to this host, one /32 each; prefix length 16 to 30.',
    }),
    gateway_v4: Type.String({
      default: '169.254.88.1',
      pattern: `${Ipv4}$`,
      allowed: 'an IPv4 address',
      description: 'Link-local gateway address that every tap carries.',
    }),
    resolvers: Type.Array(Type.String({ pattern: `${Ipv4}$`, allowed: 'an IPv4 address' }), {
      default: ['9.9.9.9', '149.112.112.112'],
      maxItems: 3,
      description: 'DNS resolvers that instances use.',
    }),
    mtu_bytes: Count(1500, 576, 9000, 'MTU of taps and guests.'),
    table: Type.String({
      default: 'strongroom',
      pattern: '^[a-z][a-z0-9_]{0,30}$',
      allowed: '1 to 31 lowercase letters, digits and underscores, a letter first',
      description: 'nftables table (family inet) owned by this appliance; nothing else may use it.',
    }),
    tap_prefix: Type.String({
      default: 'sr',
      pattern: '^[a-z]{1,4}$',
      allowed: '1 to 4 lowercase letters',
      description: 'Tap names begin with this; 10 characters of the VM id follow.',
    }),
    sample_interval_ms: Count(5_000, 100, 600_000, 'Egress counters are read this often.'),
  },
  { ...closed, default: {} },
)

export const VmConfig = Type.Object(
  {
    image_dir: Path('/var/lib/strongroom/images/instance', 'Directory of the `instance` image and its manifest.json.'),
    qemu: Path('/usr/bin/qemu-system-x86_64', 'QEMU executable.'),
    user: Type.String({
      default: 'strongroom-vm',
      pattern: '^[a-z_][a-z0-9_-]{0,30}$',
      allowed: 'the name of a user',
      description: 'Unprivileged user that QEMU runs as.',
    }),
    vcpus: Count(2, 1, 255, 'vCPUs of an instance; measured on snp.'),
    memory_mib: Count(2048, 512, 1_048_576, 'Memory of an instance.'),
    vcpu_type: Type.String({
      default: 'EPYC-v4',
      pattern: '^EPYC(-[A-Za-z0-9]+)*$',
      allowed: 'an EPYC model of QEMU, such as "EPYC-v4"',
      description: 'CPU model on snp; measured.',
    }),
    snp_boot: Type.Union([Type.Literal('bios'), Type.Literal('igvm')], {
      default: 'bios',
      description: 'snp: firmware with kernel-hashes, or an IGVM file (QEMU 10.1 or later built with it).',
    }),
    firmware: Path('', 'snp, bios: firmware that checks kernel hashes; "" for the one of the image.'),
    igvm: Path('', 'snp, igvm: the IGVM file.'),
    boot_timeout_ms: Count(180_000, 1000, 3_600_000, 'From start of QEMU to the agent being there.'),
    claim_timeout_ms: Count(60_000, 1000, 600_000, 'Answer to one claim.'),
    ssh_timeout_ms: Count(60_000, 1000, 600_000, 'From the claim to a completed SSH handshake.'),
    stop_grace_ms: Count(5_000, 0, 600_000, 'From power-down to force.'),
    console_bytes_max: Count(1_048_576, 4096, 67_108_864, 'Serial console kept per VM.'),
    start_concurrency_max: Count(2, 1, 64, 'VMs that boot at the same time.'),
  },
  { ...closed, default: {} },
)

export const CapacityConfig = Type.Object(
  {
    memory_mib: Count(0, 0, 67_108_864, 'Memory for VMs; 0: 80 % of the host.'),
    vcpus: Count(0, 0, 65_536, 'vCPUs for VMs; 0: four per host CPU.'),
    asids: Count(0, 0, 65_536, 'snp: SEV-SNP ASIDs; 0: as many as the CPU reports.'),
    wait_ms: Count(0, 0, 86_400_000, 'A new instance waits this long for room before it fails.'),
    instances_per_organization_max: Count(100, 1, 100_000, 'Living instances of one organization.'),
  },
  { ...closed, default: {} },
)

export const InstancesConfig = Type.Object(
  {
    retention_days: Count(30, 30, 3650, 'Terminated records and their names are kept this long.'),
    inference_models: Type.Array(Type.String({ minLength: 1, maxLength: 256 }), {
      default: ['strongroom-tiny'],
      minItems: 1,
      maxItems: 64,
      description: 'Models an instance may ask for; the first is the default.',
    }),
    inference_base_url: Type.String({
      default: '',
      maxLength: 512,
      description: 'Inference gateway as instances reach it; "": https://{gateway_v4}:8442/v1.',
    }),
  },
  { ...closed, default: {} },
)

const Name = (description: string) =>
  Type.String({ pattern: '^[a-z0-9][a-z0-9-]{0,62}$', allowed: 'lowercase letters, digits and hyphens', description })
const ModelId = Type.String({ minLength: 1, maxLength: 256 })

export const UpstreamConfig = Type.Object(
  {
    name: Name('What logs and metrics call it; clients never see it.'),
    url: Type.String({
      pattern: '^https?://[^/?#@\\s]+(/[^?#\\s]*)?$',
      maxLength: 512,
      allowed: 'an http or https URL up to and including /v1, without credentials',
      description: 'Base address of an OpenAI-compatible server.',
    }),
    key_file: Path('', 'File with the key that is sent to this upstream; "" for none.'),
    models: Type.Array(ModelId, { minItems: 1, maxItems: 64, description: 'Models that it serves.' }),
    weight: Count(1, 1, 1000, 'Share of the load among upstreams of a model.'),
    concurrency_max: Count(64, 1, 65_536, 'Requests under way at it.'),
    ca_file: Path('', 'PEM certificates that its certificate must come from; "" for those of the system.'),
    spki_sha256: Type.String({
      default: '',
      pattern: '^$|^[0-9a-f]{64}$',
      allowed: '"" or 64 lowercase hexadecimal digits',
      description: 'SHA-256 of the public key (SPKI) that its certificate must hold; "" for any.',
    }),
  },
  closed,
)
export type UpstreamConfig = Static<typeof UpstreamConfig>

export const PriceConfig = Type.Object(
  {
    model: ModelId,
    prompt_usd_per_million: Usd('0.00', 'Per million prompt tokens.'),
    completion_usd_per_million: Usd('0.00', 'Per million completion tokens.'),
  },
  closed,
)

export const WorkerConfig = Type.Object(
  {
    model_file: Path('', 'GGUF file that the built-in worker serves; "" for no built-in worker.'),
    model: Type.String({
      default: 'strongroom-tiny',
      minLength: 1,
      maxLength: 256,
      description: 'Its id for clients.',
    }),
    image_dir: Path('/var/lib/strongroom/images/inference', 'Directory of the `inference` image.'),
    user: Type.String({
      default: 'strongroom-vm',
      pattern: '^[a-z_][a-z0-9_-]{0,30}$',
      description: 'Unprivileged user that the worker runs as.',
    }),
    context_tokens: Count(2048, 128, 1_048_576, 'Context of one request.'),
    parallel: Count(4, 1, 256, 'Requests that the worker serves at the same time.'),
    threads: Count(2, 1, 1024, 'CPU threads.'),
    memory_mib_max: Count(8192, 0, 16_777_216, 'Memory of the worker; 0 for no bound. A large model needs more.'),
    start_timeout_ms: Count(60_000, 1000, 3_600_000, 'From its start to being healthy.'),
  },
  { ...closed, default: {} },
)

export const InferenceConfig = Type.Object(
  {
    upstreams: Type.Array(UpstreamConfig, { default: [], maxItems: 64, description: 'OpenAI-compatible servers.' }),
    prices: Type.Array(PriceConfig, { default: [], maxItems: 256, description: 'Prices by model; others are free.' }),
    owned_by: Type.String({ default: 'strongroom', minLength: 1, maxLength: 64, description: '`owned_by` of models.' }),
    worker: WorkerConfig,
    body_bytes_max: Count(4_194_304, 1024, 268_435_456, 'Largest request body.'),
    body_timeout_ms: Count(30_000, 100, 600_000, 'A request body must have arrived within this time.'),
    connect_timeout_ms: Count(5_000, 50, 120_000, 'Connecting to an upstream.'),
    first_byte_timeout_ms: Count(120_000, 50, 3_600_000, 'From the request to the first byte of an answer.'),
    idle_timeout_ms: Count(60_000, 50, 3_600_000, 'Between two events of a stream.'),
    client_stall_timeout_ms: Count(
      60_000,
      100,
      600_000,
      'A client that takes nothing of its stream for this long loses it.',
    ),
    event_bytes_max: Count(4_194_304, 1024, 67_108_864, 'Largest event of a stream.'),
    answer_bytes_max: Count(33_554_432, 1024, 536_870_912, 'Largest answer that is no stream.'),
    queue_max: Count(256, 0, 65_536, 'Requests that wait for an upstream of their model.'),
    queue_timeout_ms: Count(10_000, 1, 600_000, 'Longest wait for an upstream.'),
    eject_failures: Count(3, 1, 1000, 'Failures in a row after which an upstream is left alone.'),
    eject_ms: Count(10_000, 100, 3_600_000, 'Then it is probed this often, and comes back when it is well.'),
    key_requests_per_minute: Count(600, 1, 1_000_000, 'Per key, unless the key says otherwise.'),
    key_tokens_per_minute: Count(1_000_000, 1, 1_000_000_000, 'Per key, unless the key says otherwise.'),
    key_concurrency_max: Count(32, 1, 65_536, 'Per key, unless the key says otherwise.'),
    public_requests_per_minute: Count(60, 1, 1_000_000, 'Per address on /health and /attestation.'),
    nonce_retention_hours: Count(24, 1, 8760, 'A used attestation nonce is refused for this long.'),
    nonces_max: Count(1_000_000, 1000, 100_000_000, 'Used nonces kept; beyond it /attestation answers 503.'),
    // At least two of the longest billing periods: the present one and the one before it are always whole.
    usage_retention_days: Count(
      400,
      62,
      3650,
      'Usage is kept this long, and gateway keys from their revocation or expiry on.',
    ),
    response_receipts: Type.Union([Type.Literal('on-request'), Type.Literal('always')], {
      default: 'on-request',
      description: 'Sign every answer, or those that ask for it by `X-Strongroom-Receipt: 1`.',
    }),
  },
  { ...closed, default: {} },
)
export type InferenceConfig = Static<typeof InferenceConfig>

export const KdsConfig = Type.Object(
  {
    base_url: Type.String({
      default: 'https://kdsintf.amd.com',
      pattern: '^$|^https?://[^/?#@\\s]+(/[^?#\\s]*)?$',
      maxLength: 512,
      allowed: '"" or an http or https URL without credentials',
      description:
        'snp: AMD\'s key distribution service, or a mirror of it; "" for none: its files are then put below kds/ in the state directory.',
    }),
  },
  { ...closed, default: {} },
)

export const BillingConfig = Type.Object(
  {
    subscription_cost_usd: Usd('0.00', 'Base cost per period.'),
    instance_hours_included: Count(0, 0, 1_000_000, 'Instance-hours within the base cost.'),
    overage_per_hour_usd: Usd('0.00', 'Cost of a further instance-hour.'),
  },
  { ...closed, default: {} },
)

export const Config = Type.Object(
  {
    domain: Type.String({
      default: 'agents.internal',
      pattern: '^(?=.{1,180}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$',
      allowed: 'a DNS name in lowercase, at most 180 characters',
      description: 'Parent domain of instance host names.',
    }),
    platform: Type.Union([Type.Literal('auto'), Type.Literal('snp'), Type.Literal('kvm'), Type.Literal('tcg')], {
      default: 'auto',
      description: 'auto detects; another value pins it, and start fails where the host lacks it.',
    }),
    log_level: Type.Union([Type.Literal('debug'), Type.Literal('info'), Type.Literal('warn'), Type.Literal('error')], {
      default: 'info',
      description: 'Least level that is logged.',
    }),
    listen: ListenConfig,
    tls: TlsConfig,
    http: HttpConfig,
    network: NetworkConfig,
    vm: VmConfig,
    capacity: CapacityConfig,
    instances: InstancesConfig,
    inference: InferenceConfig,
    kds: KdsConfig,
    billing: BillingConfig,
  },
  closed,
)
export type Config = Static<typeof Config>
export type Platform = 'snp' | 'kvm' | 'tcg'
