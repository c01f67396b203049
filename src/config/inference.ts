// Service B: the table `inference` of the configuration. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Count, Entry, OneOf, Path, PathOrNone, Section, Usd, UsdOrNone, UserName } from './fields.ts'
import { TracesConfig } from './traces.ts'
import { UpstreamConfig } from './upstream/upstream.ts'

const PriceConfig = Entry({
  model: Type.String({ minLength: 1, maxLength: 256, description: 'Model that has these prices.' }),
  prompt_usd_per_million: Usd('0.00', 'Price of a million prompt tokens.'),
  completion_usd_per_million: Usd('0.00', 'Price of a million completion tokens.'),
  cached_prompt_usd_per_million: UsdOrNone(
    'Price of a million prompt tokens out of a cache (vllm, sglang), at most that of others. "" for the same.',
  ),
})

const FallbackConfig = Entry({
  model: Type.String({ minLength: 1, maxLength: 256, description: 'Model that clients ask for.' }),
  fallback: Type.String({
    minLength: 1,
    maxLength: 256,
    description: 'Model that answers where no upstream of `model` does. The response names it.',
  }),
  canary_percent: Count(
    [0, 0, 100],
    'Share of the requests that `fallback` answers in any case, to try it; where it fails, `model` answers.',
  ),
})

export const WorkerConfig = Section({
  model_file: PathOrNone(
    'GGUF file with the model that the built-in worker serves. "" here and in `model_disk` for no built-in worker.',
  ),
  model_disk: Type.String({
    default: '',
    pattern: '^$|^[a-z0-9][a-z0-9._-]{0,62}$',
    allowed: '"" or the name of a model, as `strongroom model list` shows it',
    description:
      "Model whose disk a gateway in a VM serves (`strongroom model add`). A gateway on the host serves `model_file`, and holds it against this model's digest and golden answer.",
  }),
  model: Type.String({
    default: 'strongroom-tiny',
    minLength: 1,
    maxLength: 256,
    description: 'Id of this model for clients.',
  }),
  image_dir: Path(
    '/var/lib/strongroom/images/inference',
    'Directory of the `inference` image, with its manifest.json.',
  ),
  user: UserName('Unprivileged user that the built-in worker runs as.'),
  gpu: Type.Array(
    Type.String({
      pattern: '^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$',
      allowed: 'a PCI address as `lspci -D` prints it, such as "0000:41:00.0"',
    }),
    {
      default: [],
      maxItems: 8,
      description:
        'NVIDIA GPUs that the VM of the gateway gets whole (VFIO), on snp alone. Their number and `gpu_policy` are in workload.json.',
    },
  ),
  gpu_policy: PathOrNone(
    'Policy that evidence of the GPUs has to meet before the gateway serves, as in `strongroom verify gpu-policy-schema`, without `topology`; needed with `gpu`.',
  ),
  context_tokens: Count(
    [32_768, 128, 1_048_576],
    'Context size of one request: prompt and completion together. The packaged agent needs 16384 to start, with `strongroom-tiny` 32768.',
  ),
  parallel: Count([4, 1, 256], 'How many requests the worker serves at the same time.'),
  threads: Count([2, 1, 1024], 'How many CPU threads the worker uses.'),
  /** No share: limits the worker. */
  memory_mib_max: Count(
    [8192, 0, 16_777_216],
    'Most memory that the worker may use. 0 for no limit. A large model needs more than the default.',
  ),
  start_timeout_ms: Count(
    [60_000, 1000, 3_600_000],
    'Longest time from the start of the worker until it is healthy, and then for its golden answer.',
  ),
})

export const InferenceConfig = Section({
  placement: OneOf(['vm', 'host'], {
    default: 'vm',
    description:
      'Where the gateway runs: in a measured VM of its own, so that this host cannot read what it serves, or as a part of this process, for development. On snp the latter has no attestation.',
  }),
  vcpus: Count([2, 1, 255], 'vCPUs of the VM of the gateway. On snp they are part of its launch measurement.'),
  memory_mib: Count([4096, 1024, 1_048_576], 'Memory of the VM of the gateway; the model and its context are in it.'),
  processes: Count(
    [0, 0, 32],
    'Processes that serve the clients of the gateway. 0: one for each four cores of where the gateway runs, as far as it has 1 GiB of memory for each.',
  ),
  http2: Type.Boolean({
    default: false,
    description:
      'Whether clients that offer it (ALPN) get HTTP/2. Such connections get no notice that a VM is replaced: those that keep sending stay with it for `drain_s`.',
  }),
  usage_labels: Type.Boolean({
    default: false,
    description:
      'Whether the usage ledger of this host has `user` and `metadata` of requests, as `strongroom gateway usage --by user,tags` sums them. Clients see in workload.json that they leave the VM.',
  }),
  drain_s: Count(
    [600, 1, 86_400],
    'How long the requests of a VM that was replaced may go on, before it is stopped with them.',
  ),
  upstreams: Type.Array(UpstreamConfig, {
    default: [],
    maxItems: 64,
    description: 'OpenAI-compatible servers that requests are sent to.',
  }),
  prices: Type.Array(PriceConfig, {
    default: [],
    maxItems: 256,
    description: 'Prices by model. Other models are free.',
  }),
  fallbacks: Type.Array(FallbackConfig, {
    default: [],
    maxItems: 64,
    description: 'Models that answer in place of others, for completions. None leads out of the measured VM.',
  }),
  owned_by: Type.String({
    default: 'strongroom',
    minLength: 1,
    maxLength: 64,
    description: 'Value of `owned_by` in the list of models.',
  }),
  worker: WorkerConfig,
  traces: TracesConfig,
  unknown_fields: OneOf(['ignore', 'refuse'], {
    default: 'ignore',
    description:
      'What happens to request fields that an upstream does not get: left out and named in x-strongroom-ignored, or refused with 400.',
  }),
  body_bytes_max: Count(
    [33_554_432, 1024, 268_435_456],
    'Largest request body that the gateway accepts; beyond 4 MiB the rest must be base64 of pictures and documents.',
  ),
  body_timeout_ms: Count([30_000, 100, 600_000], 'A request body must arrive within this time.'),
  connect_timeout_ms: Count([5_000, 50, 120_000], 'Longest time to connect to an upstream.'),
  first_byte_timeout_ms: Count(
    [0, 0, 86_400_000],
    'Longest time from sending a request to an upstream to the first byte of the response; 0 for no limit. A long prompt may take an engine minutes.',
  ),
  idle_timeout_ms: Count(
    [600_000, 50, 3_600_000],
    'Longest time between two events of a stream from an upstream. Some engines hold a tool call back until it is whole.',
  ),
  client_stall_timeout_ms: Count(
    [60_000, 100, 600_000],
    'A stream ends when its client reads nothing of it for this long.',
  ),
  event_bytes_max: Count([4_194_304, 1024, 67_108_864], 'Largest event of a stream from an upstream.'),
  answer_bytes_max: Count([33_554_432, 1024, 536_870_912], 'Largest response of an upstream that is not a stream.'),
  /** Share: when full, the organization and key with the most requests lose their newest. */
  queue_max: Count([256, 0, 65_536], 'How many requests may wait for a free upstream of one model.'),
  queue_timeout_ms: Count([10_000, 1, 600_000], 'Longest time that a request waits for a free upstream.'),
  eject_failures: Count(
    [3, 1, 1000],
    'After this many failures in a row an upstream is ejected: it gets no more requests.',
  ),
  eject_ms: Count(
    [10_000, 100, 3_600_000],
    'How often an ejected upstream is probed. It gets requests again when it is healthy.',
  ),
  key_requests_per_minute: Count([600, 1, 1_000_000], 'Requests per minute of a key without a limit of its own.'),
  key_tokens_per_minute: Count([1_000_000, 1, 1_000_000_000], 'Tokens per minute of a key without a limit of its own.'),
  /** Share: this limit is the share of a key that has none of its own. */
  key_concurrency_max: Count([32, 1, 65_536], 'Requests at the same time of a key without a limit of its own.'),
  public_requests_per_minute: Count(
    [60, 1, 1_000_000],
    'Requests per minute to /health, /attestation and the other public routes of the gateway from one IP address.',
  ),
  // Longer than a verifier takes a statement for fresh, clock skew included
  // (test/inference/attestation/nonces.test.ts).
  nonce_retention_minutes: Count(
    [15, 12, 1440],
    'How long an attestation nonce that was used is refused: longer than evidence over it can be taken for fresh.',
  ),
  /** No share: the ledger cannot fill up, because attestations are spaced (`nonceGapMs`). */
  nonces_max: Count(
    [1_000_000, 10_000, 100_000_000],
    'How many used nonces are kept, each for `nonce_retention_minutes`. No more attestations are made in that time than there is room for; networks that ask for many wait for those that ask for few.',
  ),
  // At least two of the longest billing periods, so that the present one and the one before it are always whole.
  usage_retention_days: Count(
    [400, 62, 3650],
    'How long usage records are kept, and gateway keys after they were revoked or expired.',
  ),
  pad_streams: OneOf(['auto', 'on', 'off'], {
    default: 'auto',
    description:
      'Whether the chunks of streams are padded, so that their sizes do not give away the lengths of tokens. "auto": where the gateway runs in a measured VM. Clients choose for themselves with `stream_options.include_obfuscation`, as with OpenAI. It costs about 50 bytes a chunk.',
  }),
  response_receipts: OneOf(['on-request', 'always'], {
    default: 'on-request',
    description:
      'Which responses get a signed receipt: those to requests with `X-Strongroom-Receipt` (`1` or `keep`), or all of them.',
  }),
  cors_origins: Type.Array(
    Type.String({
      maxLength: 256,
      pattern: '^(\\*|https?://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?)$',
      allowed: 'origins such as "https://app.example", or "*" for any',
    }),
    {
      default: [],
      maxItems: 64,
      description:
        'Origins of web pages that may call the API with a key of their own. `/attestation`, `/workload.json` and the other public routes may be read by any page. They stand in workload.json.',
    },
  ),
  receipts_kept_s: Count(
    [900, 0, 86_400],
    'How long receipts of responses are kept for GET /v1/receipts/ID, in the memory of the gateway. 0 for not at all.',
  ),
  /** Share: when full, the organization with the most receipts loses its oldest. */
  receipts_kept_max: Count(
    [8_192, 1, 65_536],
    'How many receipts are kept. When there are more, the organization that has most loses its oldest.',
  ),
  responses_kept_s: Count(
    [0, 0, 86_400],
    'How long the items of a response are kept for `previous_response_id` and `item_reference` after they were last used, in the memory of the gateway, for the key of the request, unless that has `store: false`. 0 for not at all. Clients that verify the gateway must allow it by name: `kept-responses`.',
  ),
  responses_kept_bytes_max: Count(
    [134_217_728, 1_048_576, 4_294_967_296],
    'How many bytes of responses are kept; a key may have a quarter of them. When there are more, the organization that has most loses its oldest.',
  ),
  receipts_kept_bytes_max: Count([67_108_864, 65_536, 1_073_741_824], 'How many bytes of receipts are kept.'),
})
export type InferenceConfig = Static<typeof InferenceConfig>
