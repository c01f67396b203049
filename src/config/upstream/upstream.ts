// Configuration of one upstream of the gateway. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Count, Entry, Name, OneOf, PathOrNone } from '../fields.ts'
import { CONTENT_KINDS, ENGINES } from './kinds.ts'

const ModelId = Type.String({ minLength: 1, maxLength: 256 })

export const UpstreamConfig = Entry({
  name: Name('Name of the upstream in logs, metrics and the receipts of its responses, which clients see.'),
  url: Type.String({
    pattern: '^https?://[^/?#@\\s]+(/[^?#\\s]*)?$',
    maxLength: 512,
    allowed: 'an http or https URL up to and including /v1, without credentials',
    description: 'Base URL of an OpenAI-compatible server. For text-embeddings-inference, its root without /v1.',
  }),
  engine: OneOf(ENGINES, {
    default: 'openai',
    description: 'Kind of server. It decides which request fields beyond those of OpenAI are sent.',
  }),
  key_file: PathOrNone('File with the API key that is sent to the upstream. "" for none.'),
  models: Type.Array(ModelId, { minItems: 1, maxItems: 64, description: 'Models that the upstream serves.' }),
  embedding_models: Type.Array(ModelId, {
    default: [],
    maxItems: 64,
    uniqueItems: true,
    description:
      'Which of its models make embeddings (POST /v1/embeddings) or rank documents (POST /v1/rerank). The others make completions.',
  }),
  weight: Count([1, 1, 1000], 'Share of the requests among the upstreams that serve the same model.'),
  /** Share: each organization leaves an eighth; the one with the fewest requests goes first. */
  concurrency_max: Count([64, 1, 65_536], 'How many requests the upstream gets at the same time.'),
  /** No share: limits one request. */
  choices_max: Count([128, 1, 128], 'How many choices (n) one request to the upstream may ask for.'),
  context_tokens: Count(
    [0, 0, 16_777_216],
    'Context size of its models, prompt and completion together. 0 for unknown.',
  ),
  content: Type.Array(Type.Union(CONTENT_KINDS.map(kind => Type.Literal(kind))), {
    default: [],
    maxItems: 4,
    uniqueItems: true,
    description: 'Kinds of content parts beside text that the upstream takes.',
  }),
  remote_urls: Type.Boolean({
    default: false,
    description: 'Whether content parts may name http and https URLs, which the upstream then fetches by itself.',
  }),
  ca_file: PathOrNone(
    'File with the PEM certificates of the authorities to trust for the upstream. "" for those of the system.',
  ),
  spki_sha256: Type.String({
    default: '',
    pattern: '^$|^[0-9a-f]{64}$',
    allowed: '"" or 64 lowercase hexadecimal digits',
    description: 'SHA-256 of the public key (SPKI) that the certificate of the upstream must hold. "" for any.',
  }),
  spki_sha256_next: Type.String({
    default: '',
    pattern: '^$|^[0-9a-f]{64}$',
    allowed: '"" or 64 lowercase hexadecimal digits',
    description:
      'As `spki_sha256`, for the key that comes next: either counts, so that the upstream may change it. "" for none.',
  }),
  attestation: OneOf(['', 'snp', 'tdx'], {
    default: '',
    description:
      'Evidence that the upstream has to show before it gets a prompt, and again by interval: "snp" for a Strongroom gateway in a VM, "tdx" for a TDX quote that names nonce and TLS key. "" for none.',
  }),
  attestation_policy: PathOrNone(
    'File with the policy that the evidence has to meet (`strongroom verify policy-schema`, `tdx-policy-schema`). It has to name measurements.',
  ),
  attestation_collateral: PathOrNone(
    'With "tdx": file with Intel\'s collateral, read for each verification. "" where the upstream sends it with its quote, as it has to for a gateway in a VM.',
  ),
  attestation_path: Type.String({
    default: '/attestation',
    pattern: '^/[A-Za-z0-9._~/-]{0,255}$',
    allowed: 'a path that begins with a slash',
    description: 'Where the upstream serves its evidence, at the root of its address. `?nonce=` is appended.',
  }),
  attestation_minutes: Count([30, 1, 1440], 'Minutes after which the upstream has to show its evidence again.'),
  attestation_simulated_root: PathOrNone(
    'File with the PEM of a simulated root, for tests: evidence below it counts too. "" for none.',
  ),
})
export type UpstreamConfig = Static<typeof UpstreamConfig>
