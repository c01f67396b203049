// When an ACME server suggests to renew a certificate (ARI, RFC 9773). Effects: the network.
//
// The answer is no secret and not signed. A server that has none, or answers in another form, changes nothing.

import { X509Certificate } from 'node:crypto'
import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { readAll, readSequence, TAG } from '../../attest/encoding/der.ts'
import { extensionsOf, OID } from '../../attest/x509/certificate.ts'
import { toBase64Url } from '../../base/bytes.ts'
import type { Window } from './renewal.plan.ts'
import { type AcmeServer, converse, retryAfterOf, send } from './transport.ts'

export type RenewalInfo = {
  readonly window: Window
  /** Time until the next poll, by the server's `Retry-After`. Null if it sent none. */
  readonly retryAfterMs: number | null
}

/** Returns null if the server suggests nothing. Never rejects. `id`: see `certificateId`. */
export type AskRenewal = (id: string, signal: AbortSignal) => Promise<RenewalInfo | null>

const timeoutMs = 30_000

const Directory = Type.Object({ renewalInfo: Type.String() })
const Info = Type.Object({ suggestedWindow: Type.Object({ start: Type.String(), end: Type.String() }) })

export function openRenewalInfo(server: AcmeServer, directory: string): AskRenewal {
  const ask = async (id: string): Promise<RenewalInfo | null> => {
    const { value: named } = await read(directory, Directory)
    const { value, retryAfter } = await read(`${named.renewalInfo.replace(/\/$/, '')}/${id}`, Info)
    const [startMs, endMs] = [value.suggestedWindow.start, value.suggestedWindow.end].map(text => Date.parse(text))
    // RFC 9773 4.2: such a window is as no answer.
    if (startMs === undefined || endMs === undefined || !(startMs < endMs)) return null
    return { window: { startMs, endMs }, retryAfterMs: retryAfterOf(retryAfter, server.clock.nowMs()) }
  }
  return (id, signal) => converse(server, { timeoutMs, signal }, () => ask(id)).catch(() => null)
}

async function read<Schema extends typeof Directory | typeof Info>(
  url: string,
  schema: Schema,
): Promise<{ readonly value: Static<Schema>; readonly retryAfter: string | undefined }> {
  const { status, data, headers } = await send({ url, method: 'get', headers: {} })
  const value: unknown = JSON.parse(data)
  if (status !== 200 || !Value.Check(schema, value)) throw new Error('no renewal information')
  return { value, retryAfter: headers['retry-after'] }
}

/** Tag of `keyIdentifier` (RFC 5280 4.2.1.1), implicit. */
const keyIdentifierTag = 0x80

/** Returns the identifier of the first certificate of a chain (RFC 9773 4.1). Null if it names no issuer's key. */
export function certificateId(pem: string): string | null {
  try {
    const [tbs] = readSequence(new X509Certificate(pem).raw, 'certificate')
    const fields = tbs === undefined ? [] : readAll(tbs.contents, 'TBSCertificate')
    const serial = fields.find(({ tag }) => tag === TAG.integer)
    const extensions = fields.find(({ tag }) => tag === TAG.context3)
    if (serial === undefined || extensions === undefined) return null
    const issuer = extensionsOf(extensions.contents, 'certificate').get(OID.authorityKeyIdentifier)
    const key =
      issuer && readSequence(issuer.value, OID.authorityKeyIdentifier).find(({ tag }) => tag === keyIdentifierTag)
    return key === undefined ? null : `${toBase64Url(key.contents)}.${toBase64Url(serial.contents)}`
  } catch {
    return null
  }
}
