// Statements `strongroom/attest-pq/v1`: the content of a receipt, as deterministic CBOR. Pure; verify.ts decides
// whether to trust one. One table defines the fields of each kind. A statement has exactly those fields, and re-encodes
// to the bytes from which it was decoded.

import { fromUtf8, utf8 } from '../../base/bytes.ts'
import { type CborLimits, type CborMap, type CborValue, decodeCbor, encodeCbor } from '../encoding/cbor.ts'
import { sha512 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'

export const statementFormat = 'strongroom/attest-pq/v1'

/** The ML-DSA context under which statements are signed. */
export const statementContext = utf8(statementFormat)

export const STATEMENT_LIMITS = { sizeBytesMax: 64 * 1024, depthMax: 3 } as const satisfies CborLimits

type Field =
  | { readonly type: 'text'; readonly sizeBytesMax: number }
  | { readonly type: 'constant'; readonly text: string }
  /** Size limits in bytes, inclusive. */
  | { readonly type: 'bytes'; readonly min: number; readonly max: number }
  | { readonly type: 'bytes-or-null'; readonly sizeBytes: number }
  /** Null if the map lacks the key, so that older statements keep their bytes. */
  | { readonly type: 'bytes-or-absent'; readonly sizeBytes: number }
  | { readonly type: 'texts'; readonly countMax: number; readonly sizeBytesMax: number }
  /** Null if the map lacks the key; never an empty list. */
  | { readonly type: 'texts-or-absent'; readonly countMax: number; readonly sizeBytesMax: number }
  | { readonly type: 'text-or-null'; readonly sizeBytesMax: number }
  /** Null if the map lacks the key. */
  | { readonly type: 'text-or-absent'; readonly sizeBytesMax: number }
  /** Milliseconds since 1970. */
  | { readonly type: 'time-ms' }
  | { readonly type: 'count' }
  | { readonly type: 'image' }

const sha256Digest = { type: 'bytes', min: 32, max: 32 } as const
const sha384Digest = { type: 'bytes', min: 48, max: 48 } as const
const name = { type: 'text', sizeBytesMax: 256 } as const
/** The client's nonce exactly as it was sent, so that its length is bound too. */
const buildNonce = { type: 'bytes', min: 1, max: 16 } as const

const COMMON = {
  format: { type: 'constant', text: statementFormat },
  /** The relying party's challenge. */
  nonce: { type: 'bytes', min: 1, max: 64 },
  issuedAt: { type: 'time-ms' },
  /** SHA-256 of the public key bundle (`keysDigest` of public-keys.ts). */
  keysDigest: sha256Digest,
  /** SHA-384 of the ID key, as in the report; 48 zero bytes if the VM was launched without an ID block. */
  operatorKey: sha384Digest,
  image: { type: 'image' },
} as const satisfies Record<string, Field>

/** All kinds of statements with their own fields. */
export const STATEMENT_FIELDS = {
  workload: {
    ...COMMON,
    kind: { type: 'constant', text: 'workload' },
    scope: { type: 'constant', text: 'launch-or-admission-only' },
    nonce: { type: 'bytes', min: 32, max: 32 },
    target: name,
    workload: name,
    imageDigest: sha256Digest,
    /** The effective argv. */
    command: { type: 'texts', countMax: 256, sizeBytesMax: 8192 },
    allowlistDigest: sha256Digest,
    /** SHA-256 of the SPKI of the TLS key that serves the connection; null for a workload without TLS. */
    tlsSpkiDigest: { type: 'bytes-or-null', sizeBytes: 32 },
    /** SHA-256 of the gateway's canonical configuration, which lists the upstreams; null for other workloads. */
    configurationDigest: { type: 'bytes-or-null', sizeBytes: 32 },
    /** SHA-256 of the evidence of all GPUs of the worker (attest/nvidia/bound.ts); null if it has none. */
    gpuEvidenceDigest: { type: 'bytes-or-absent', sizeBytes: 32 },
  },
  claim: {
    ...COMMON,
    kind: { type: 'constant', text: 'claim' },
    scope: { type: 'constant', text: 'claim-only' },
    nonce: { type: 'bytes', min: 32, max: 32 },
    organization: name,
    name,
    hostname: name,
    sshHostKeyDigest: sha256Digest,
    publicKeyDigest: sha256Digest,
    /** SHA-256 of the claim document (contract/vm/claim-document.ts): the whole claim and the network in force. */
    claimDigest: sha256Digest,
    /** URL to which the instance sends its prompts; null if it has no gateway. */
    inferenceUrl: { type: 'text-or-null', sizeBytesMax: 512 },
    inferenceModel: { type: 'text-or-null', sizeBytesMax: 256 },
    /** `attested`, `none`, or why the gateway is not attested: `host`, `no-worker`, `elsewhere`. */
    gateway: name,
    /** SHA-256 of the claim's requirements for the gateway, which it must prove before a prompt is sent. */
    gatewayDigest: sha256Digest,
    resolvers: { type: 'texts', countMax: 3, sizeBytesMax: 39 },
    /** The host's promise about its firewall, which is outside of the VM. */
    egressLimitBytes: { type: 'count' },
    /** `any` or `listed`. */
    egressNames: name,
    /** SHA-256 of the secret of the gateway key that the guest drew; null if it drew none. */
    gatewayKeyDigest: { type: 'bytes-or-absent', sizeBytes: 32 },
    /** Fingerprints of all SSH keys that log in, once an order of the owner has changed them (contract/vm/orders/). */
    loginKeys: { type: 'texts-or-absent', countMax: 16, sizeBytesMax: 50 },
    /** Canonical text of the policy that the VM enforces on its programs' egress; null if it enforces none. */
    egressPolicy: { type: 'text-or-absent', sizeBytesMax: 20_480 },
    /** Secrets that orders of the owner put, without values: canonical JSON of `SecretFacts`; null without any. */
    secrets: { type: 'texts-or-absent', countMax: 32, sizeBytesMax: 1_024 },
    /** Ports that orders of the owner publish: canonical JSON of `PublishedFacts`; null without any. */
    published: { type: 'texts-or-absent', countMax: 4, sizeBytesMax: 256 },
  },
  /** Issued before any source code runs. */
  'build-dispatch': {
    ...COMMON,
    kind: { type: 'constant', text: 'build-dispatch' },
    scope: { type: 'constant', text: 'build-only' },
    nonce: buildNonce,
    jobId: name,
    sourceDigest: sha256Digest,
    networkPolicy: name,
    /**
     * SHA-256 of the host's whole order (`orderText` of contract/vm/build-order.ts). The provenance contains the order.
     */
    orderDigest: sha256Digest,
    /**
     * Everything that opens a fetch: the host's proxy, the mirror for crates, and the SHA-256 of the authorities' PEM.
     */
    fetchProxy: { type: 'text-or-null', sizeBytesMax: 256 },
    fetchMirror: { type: 'text-or-null', sizeBytesMax: 1024 },
    fetchAuthoritiesDigest: { type: 'bytes-or-null', sizeBytes: 32 },
  },
  build: {
    ...COMMON,
    kind: { type: 'constant', text: 'build' },
    scope: { type: 'constant', text: 'build-only' },
    nonce: buildNonce,
    /** SHA-256 of the exact bytes of the `build-dispatch` statement. */
    dispatchDigest: sha256Digest,
    /** SHA-256 of the exact bytes of provenance.json. */
    provenanceDigest: sha256Digest,
    /** Git's tree id of the source in its SHA-256 object format. */
    sourceDigest: sha256Digest,
    networkPolicy: name,
  },
} as const satisfies Record<string, Readonly<Record<string, Field>>>

export type Image = {
  readonly name: string
  /** The launch digest, 48 bytes. */
  readonly measurement: Uint8Array
}

type ValueOf<F> = F extends { type: 'text' }
  ? string
  : F extends { type: 'constant'; text: infer Text }
    ? Text
    : F extends { type: 'bytes' }
      ? Uint8Array
      : F extends { type: 'bytes-or-null' | 'bytes-or-absent' }
        ? Uint8Array | null
        : F extends { type: 'text-or-null' | 'text-or-absent' }
          ? string | null
          : F extends { type: 'texts' }
            ? readonly string[]
            : F extends { type: 'texts-or-absent' }
              ? readonly string[] | null
              : F extends { type: 'time-ms' | 'count' }
                ? number
                : F extends { type: 'image' }
                  ? Image
                  : never

type Fields<Shape> = { readonly [Name in keyof Shape]: ValueOf<Shape[Name]> }

export type StatementKind = keyof typeof STATEMENT_FIELDS
export type StatementOf<Kind extends StatementKind> = Fields<(typeof STATEMENT_FIELDS)[Kind]>
export type Statement = { [Kind in StatementKind]: StatementOf<Kind> }[StatementKind]

/** Encodes a statement. Throws Malformed if a field is missing, unknown, or of the wrong type or length. */
export function encodeStatement(statement: Statement): Uint8Array {
  const fields = fieldsOf(statement.kind)
  const source: Readonly<Record<string, unknown>> = statement
  checkNames(Object.keys(source), fields)
  const present = Object.entries(fields).filter(([key, field]) => !isOptional(field) || source[key] !== null)
  const map = new Map(present.map(([key, field]) => [key, cborOf(key, field, source[key])]))
  const bytes = encodeCbor(map)
  wellFormed(bytes.length <= STATEMENT_LIMITS.sizeBytesMax, 'statement: too long')
  return bytes
}

/** Decodes a statement. Throws Malformed for anything that `encodeStatement` would not have written. */
export function decodeStatement(bytes: Uint8Array): Statement {
  const map = decodeCbor(bytes, STATEMENT_LIMITS)
  wellFormed(map instanceof Map, 'statement: not a map')
  const fields = fieldsOf(map.get('kind'))
  const absent = Object.entries(fields).flatMap(([key, field]) => (isOptional(field) && !map.has(key) ? [key] : []))
  checkNames([...map.keys(), ...absent], fields)
  // A null in the map would be a second encoding of the same statement.
  for (const [key, field] of Object.entries(fields)) {
    wellFormed(!isOptional(field) || map.get(key) !== null, `statement: ${key}`)
  }
  const entries = Object.entries(fields).map(([key, field]) => [key, fieldValue(key, field, map.get(key) ?? null)])
  // Both the type and this object are derived from the table.
  return Object.fromEntries(entries) as Statement
}

/** Returns the REPORT_DATA with which the hardware attests the statement. */
export function reportDataOf(statementBytes: Uint8Array): Uint8Array {
  return sha512(statementBytes)
}

function isOptional({ type }: Field): boolean {
  return type === 'bytes-or-absent' || type === 'texts-or-absent' || type === 'text-or-absent'
}

function fieldsOf(kind: unknown): Readonly<Record<string, Field>> {
  wellFormed(typeof kind === 'string' && Object.hasOwn(STATEMENT_FIELDS, kind), 'statement: unknown kind')
  return STATEMENT_FIELDS[kind as StatementKind]
}

function checkNames(names: readonly string[], fields: Readonly<Record<string, Field>>): void {
  for (const key of names) wellFormed(Object.hasOwn(fields, key), 'statement: unknown field')
  for (const key of Object.keys(fields)) wellFormed(names.includes(key), `statement: no ${key}`)
}

/** Converts a statement's value to its CBOR form. */
function cborOf(key: string, field: Field, value: unknown): CborValue {
  if (field.type !== 'image') return checked(key, field, value)
  wellFormed(
    typeof value === 'object' && value !== null && 'name' in value && 'measurement' in value,
    `statement: ${key}`,
  )
  wellFormed(Object.keys(value).length === 2, `statement: ${key} has unknown fields`)
  return new Map([
    ['name', checked('image.name', name, value.name)],
    ['measurement', checked('image.measurement', sha384Digest, value.measurement)],
  ])
}

/** Converts a field's CBOR form to its value. */
function fieldValue(key: string, field: Field, value: CborValue): CborValue | Image {
  if (field.type !== 'image') return checked(key, field, value)
  wellFormed(value instanceof Map && value.size === 2, `statement: ${key}`)
  const image: CborMap = value
  return {
    name: checked('image.name', name, image.get('name')) as string,
    measurement: checked('image.measurement', sha384Digest, image.get('measurement')) as Uint8Array,
  }
}

function checked(key: string, field: Exclude<Field, { type: 'image' }>, value: unknown): CborValue {
  const what = `statement: ${key}`
  switch (field.type) {
    case 'constant':
      wellFormed(value === field.text, what)
      return field.text
    case 'text':
      wellFormed(typeof value === 'string' && value !== '', what)
      checkText(value, field.sizeBytesMax, what)
      return value
    case 'text-or-null':
    case 'text-or-absent':
      return value === null ? null : checked(key, { type: 'text', sizeBytesMax: field.sizeBytesMax }, value)
    case 'texts':
      wellFormed(Array.isArray(value) && value.length <= field.countMax, what)
      return value.map(text => {
        wellFormed(typeof text === 'string', what)
        checkText(text, field.sizeBytesMax, what)
        return text
      })
    case 'texts-or-absent':
      if (value === null) return null
      wellFormed(Array.isArray(value) && value.length > 0, what)
      return checked(key, { ...field, type: 'texts' }, value)
    case 'time-ms':
    case 'count':
      wellFormed(typeof value === 'number' && Number.isSafeInteger(value) && value >= 0, what)
      return value
    case 'bytes':
      wellFormed(value instanceof Uint8Array && value.length >= field.min && value.length <= field.max, what)
      return value
    case 'bytes-or-null':
    case 'bytes-or-absent':
      wellFormed(value === null || (value instanceof Uint8Array && value.length === field.sizeBytes), what)
      return value
  }
}

/** Requires well-formed Unicode within the limit, without NUL, which names and arguments never contain. */
function checkText(text: string, sizeBytesMax: number, what: string): void {
  const bytes = utf8(text)
  wellFormed(bytes.length <= sizeBytesMax && !text.includes('\0') && fromUtf8(bytes) === text, what)
}
