// Entries of the appliance's transparency log. Pure. An entry has digests alone: no name of an organization, an
// instance, a repository or a model, no id and no time. A relying party makes the entry of what it holds again, byte by
// byte.

import { fromUtf8, utf8 } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { parseJson } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkValue } from '../check.ts'
import { Closed, Sha256, Sha384 } from '../forms.ts'
import { type Static, Type } from '../type.ts'

const format = Type.Literal('strongroom/log/v1')
const kind = <const Kind extends string>(name: Kind) => ({ format, kind: Type.Literal(name) })

const KINDS = {
  /** A launch measurement that VMs of this appliance were launched with. */
  image: Closed({ ...kind('image'), measurement: Sha384 }),
  /** SHA-256 of allowlist.json, as receipts name it. */
  allowlist: Closed({ ...kind('allowlist'), sha256: Sha256 }),
  /** SHA-256 of workload.json, which is HOST_DATA of the gateway's VM. */
  workload: Closed({ ...kind('workload'), sha256: Sha256 }),
  /** ID_KEY_DIGEST. */
  'operator-key': Closed({ ...kind('operator-key'), sha384: Sha384 }),
  /** SHA-256 of a policy file that the operator hands out. */
  'verifier-policy': Closed({ ...kind('verifier-policy'), sha256: Sha256 }),
  /** SHA-256 of a signed list of the operator's chips. */
  'chip-list': Closed({ ...kind('chip-list'), sha256: Sha256 }),
  /** A gateway VM before its first client. `receipt_key`: SHA-256 of its Ed25519 key, which no other start has. */
  'gateway-start': Closed({
    ...kind('gateway-start'),
    measurement: Sha384,
    workload: Sha256,
    operator_key: Sha384,
    receipt_key: Sha256,
  }),
  /** A finished build. `keys`: digest of its VM's keys, as its receipt names it. */
  build: Closed({ ...kind('build'), measurement: Sha384, keys: Sha256, provenance: Sha256 }),
  /** First entry of a log that follows another one: SHA-256 of the text of that one's last checkpoint, and its size. */
  'former-log': Closed({
    ...kind('former-log'),
    sha256: Sha256,
    size: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  }),
} as const

export type LogEntryKind = keyof typeof KINDS
type Entries = { readonly [Kind in LogEntryKind]: Readonly<Static<(typeof KINDS)[Kind]>> }
export type LogEntry = Entries[LogEntryKind]
/** The digests of a kind alone. */
export type LogDigests<Kind extends LogEntryKind> = Omit<Entries[Kind], 'format' | 'kind'>

/** An entry without its format, as those who report it write it. */
export type LogFact = { readonly [Kind in LogEntryKind]: { readonly kind: Kind } & LogDigests<Kind> }[LogEntryKind]

/** Far above the longest entry. */
export const logEntryBytesMax = 1_024

/** Canonical by RFC 8785. */
export function encodeLogEntry(fact: LogFact): Uint8Array {
  return utf8(canonicalJson({ format: format.const, ...fact }))
}

/** Null if it is not an entry, of an unknown kind, or not canonical. */
export function readLogEntry(bytes: Uint8Array): LogEntry | null {
  if (bytes.length > logEntryBytesMax) return null
  const value: unknown = resultOr(() => parseJson(bytes, { depthMax: 2 }), null)
  const named: unknown = Reflect.get(Object(value), 'kind')
  if (typeof named !== 'string' || !Object.hasOwn(KINDS, named)) return null
  const read = checkValue(KINDS[named as LogEntryKind], value)
  return read.ok && canonicalJson(read.value) === fromUtf8(bytes) ? read.value : null
}
