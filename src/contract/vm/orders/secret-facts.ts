// The parts of a secret that the statement of its VM has and a verifier sees: everything but the value and its format.
// Pure.

import { Closed } from '../../forms.ts'
import { type Static, Type } from '../../type.ts'

const namePattern = '^[A-Z_][A-Z0-9_]{0,63}$'
/** RFC 1123 2.1, in lower case and with a dot: neither an address nor a single label. */
const hostPattern = '^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$'
/** Field names and methods (RFC 9110 5.6.2). */
const tokenPattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$"

export const SecretFacts = Closed({
  /** The variable of new sessions that holds the placeholder. */
  name: Type.String({ pattern: namePattern }),
  host: Type.String({ pattern: hostPattern, maxLength: 253 }),
  /** HTTPS is spoken there. */
  port: Type.Integer({ minimum: 1, maximum: 65_535 }),
  /** The field of requests that holds the secret. */
  header: Type.String({ pattern: tokenPattern }),
  /** Only requests with this method; absent for all. */
  method: Type.Optional(Type.String({ pattern: tokenPattern })),
  /** Only requests below this path; absent for all. */
  path: Type.Optional(Type.String({ pattern: '^/[\\x21\\x24-\\x3e\\x40-\\x7e]{0,255}$' })),
})
export type SecretFacts = Static<typeof SecretFacts>

/** The secret without its value and format, in the order of fields of a statement. */
export function factsOf({ name, host, port, header, method, path }: SecretFacts): SecretFacts {
  return {
    name,
    host,
    port,
    header,
    ...(method === undefined ? {} : { method }),
    ...(path === undefined ? {} : { path }),
  }
}
