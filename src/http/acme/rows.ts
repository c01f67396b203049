// The file of certificates by ACME: one row for each name and key. Effects: one file.

import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { readTextOrNull, writeFileAtomic } from '../../linux/files.ts'

const OrNull = <T extends ReturnType<typeof Type.String | typeof Type.Number | typeof Type.Object>>(schema: T) =>
  Type.Union([schema, Type.Null()])

const Row = Type.Object({
  name: Type.String({ maxLength: 255 }),
  /** Holder of the key: this host, a gateway's VM, or that of an instance, whose rows have a file of their own. */
  holder: Type.Union([Type.Literal('host'), Type.Literal('gateway'), Type.Literal('instance')]),
  /** Owner of the instance. */
  organizationId: Type.Optional(Type.String({ maxLength: 64 })),
  /** SHA-256 of the SubjectPublicKeyInfo, hexadecimal. */
  spkiSha256: Type.String({ maxLength: 64 }),
  /** PKCS #10, DER, base64url: orders of a renewal need no new one. */
  csr: Type.String({ maxLength: 8_192 }),
  /** PEM chain; null means none yet. */
  chain: OrNull(Type.String({ maxLength: 16_384 })),
  renewAtMs: Type.Number(),
  /** In a row. */
  failures: Type.Number(),
  failure: OrNull(
    Type.Object({
      atMs: Type.Number(),
      type: OrNull(Type.String({ maxLength: 128 })),
      detail: Type.String({ maxLength: 512 }),
    }),
  ),
  retryAtMs: Type.Number(),
  /** When a gateway's VM last asked for it; VMs that are gone never ask again. */
  askedAtMs: Type.Number(),
  /** Time of the next poll for the server's suggestion. Absent in files of earlier releases. */
  infoAtMs: Type.Optional(Type.Number()),
  /** Whether the server has suggested a time for this chain, so that the next order may name it. */
  isSuggested: Type.Optional(Type.Boolean()),
  /** Whether an order failed that named this chain as the one it replaces: no further order names it. */
  isReplacesRefused: Type.Optional(Type.Boolean()),
})
export type Row = Static<typeof Row>

/** A name of a published port that was ordered for a new key. */
const Ordered = Type.Object({ organizationId: Type.String({ maxLength: 64 }), atMs: Type.Number() })
export type Ordered = Static<typeof Ordered>

const Stored = Type.Object({
  rows: Type.Array(Row, { maxItems: 256 }),
  ordered: Type.Optional(Type.Array(Ordered, { maxItems: 1_024 })),
})

/** Empty without a file, or if another program has written it: every certificate can be ordered again. */
export function readRows(file: string): Row[] {
  return readStored(file).rows
}

/** The same with the times of orders, which rows of published ports have. */
export function readStored(file: string): { readonly rows: Row[]; readonly ordered: Ordered[] } {
  try {
    const value: unknown = JSON.parse(readTextOrNull(file) ?? 'null')
    if (Value.Check(Stored, value)) return { ordered: [], ...value }
  } catch {
    // Handled like a file of another program.
  }
  return { rows: [], ordered: [] }
}

/** `ordered`: left out for rows of the host and of gateways. */
export function writeRows(file: string, rows: readonly Row[], ordered?: readonly Ordered[]): void {
  writeFileAtomic(file, `${JSON.stringify({ rows, ordered })}\n`, { mode: 0o600 })
}
