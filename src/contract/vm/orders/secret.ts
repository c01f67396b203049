// Secrets that programs of an instance use and cannot read: bodies of the orders `secret_put` and `secret_remove`, and
// their rules. Pure.
//
// The broker of the VM inserts a secret into requests to its host, over TLS. A statement of the VM has everything
// but the value and its format.

import { Closed } from '../../forms.ts'
import { type Static, Type } from '../../type.ts'
import { SecretFacts } from './secret-facts.ts'

/** Secrets of one VM. Share: of the order documents of its owner. */
export const secretsMax = 32

/**
 * Limit for the policy's text and those of the secrets together in one statement: the largest of the other fields, with
 * 16 SSH keys, fit besides (`claimStatementBytesMax`). No share: limits one instance.
 */
export const orderedBytesMax = 26_624

export const Secret = Closed({
  ...SecretFacts.properties,
  /** Text of the field with one `{}`, which stands for the value, or one `{basic:USER}` (RFC 7617). */
  format: Type.String({ pattern: '^[\\x20-\\x7e]{2,256}$' }),
  /** Long enough to differ from other text in responses. */
  value: Type.String({ pattern: '^[\\x21-\\x7e]([\\x20-\\x7e]{6,4094})[\\x21-\\x7e]$' }),
})
export type Secret = Static<typeof Secret>

/** Body of `secret_remove`. */
export const SecretName = Closed({ name: SecretFacts.properties.name })

/** The text of the variable. Worthless: programs that need a value find one. */
export function placeholderOf(name: string): string {
  return `strongroom-placeholder-${name}`
}

/** The field's value, or null if the format has not exactly one place for the secret. */
export function formatSecret(format: string, value: string): string | null {
  const [before, user, after, ...more] = format.split(/\{(|basic:[^{}:]{1,64})\}/)
  if (before === undefined || user === undefined || after === undefined || more.length > 0) return null
  if (/[{}]/.test(before + after)) return null
  return `${before}${user === '' ? value : btoa(`${user.slice('basic:'.length)}:${value}`)}${after}`
}

/** Fields that frame messages, that choose the host, or that one connection uses. */
const framingFields = new Set([
  ...['accept-encoding', 'connection', 'content-encoding', 'content-length', 'content-type', 'expect', 'host'],
  ...['if-range', 'keep-alive', 'proxy-authorization', 'proxy-connection', 'range', 'te', 'trailer'],
  ...['transfer-encoding', 'upgrade'],
])

/** Variables that shells and loaders obey, and those that the broker's certificates need. */
const reservedName =
  /^(PATH|HOME|SHELL|USER|LOGNAME|TERM|IFS|ENV|PS[0-4]|BASH.*|PROMPT_COMMAND|LANG|LC_.*|LD_.*|TZ|SHLVL|(OLD)?PWD|_|SSL_CERT_.*|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS)|GIT_(SSL|SSH|EXEC|CONFIG|DIR).*|PIP_CERT|(REQUESTS|CURL)_CA_BUNDLE|CARGO_HTTP_CAINFO|NPM_CONFIG_CAFILE|PYTHON(PATH|HOME|STARTUP)|(OPENAI|ANTHROPIC)_BASE_URL|(HTTPS?|ALL|FTP|NO)_PROXY|PERL5(OPT|LIB|DB)|RUBY(OPT|LIB)|RUSTC.*_WRAPPER|GIT_(ASKPASS|PAGER|.*EDITOR)|SSH_ASKPASS|JAVA_TOOL_OPTIONS|(BUN|DENO)_(?!AUTH).*)$/

/** Checks beyond the schema, beside the other secrets: the first wrong field and what to do, never a value; or null. */
export function secretProblem(secret: Secret, others: readonly SecretFacts[]): string | null {
  const { name, header, method, path, format, value } = secret
  if (reservedName.test(name)) return `name: sessions need ${name} for something else; take another name`
  if (framingFields.has(header.toLowerCase()))
    return `header: ${header} frames requests; name the field of the API's keys`
  if (method !== undefined && /^(CONNECT|TRACE)$/.test(method)) return `method: ${method} is never sent; leave it out`
  if (path !== undefined && !isPlainPath(path))
    return 'path: it has // or a semicolon, an encoded slash, or a segment with a dot or blank at its end; write it plainly'
  const field = formatSecret(format, value)
  if (field === null) return 'format: it must have {} or {basic:USER} exactly once, and no other brace'
  if (field !== field.trim()) return 'format: it begins or ends with a blank; remove that'
  const same = others.find(other => other.name !== name && placeOf(other) === placeOf(secret))
  if (same !== undefined) return `header: ${same.name} fills it in the same requests; remove ${same.name} first`
  const count = others.filter(other => other.name !== name).length
  if (count >= secretsMax) return `name: this instance has ${count} secrets, the most; remove one first`
  return null
}

/** Equal for secrets in one field of the same requests. */
function placeOf({ host, port, header, method, path }: SecretFacts): string {
  return JSON.stringify([host, port, header.toLowerCase(), method, path])
}

/**
 * Reports whether servers read the path as it is written. It has no empty segment and none that ends in a dot or blank,
 * encoded or not; no encoded or backward slash, no encoded control character, and no other form of a dot or slash that
 * UTF-8, Unicode or IIS have.
 */
export function isPlainPath(path: string): boolean {
  const other = /%(?:[01]|2[5f]|5c|c[01]|e0%[89]|f0%8|u|ef%b(?:8%99|8%b0|9%92|9%a8|c)|e2%(?:80%a[4-6]|81%84|88%9[56]))/i
  return !other.test(path) && !/\/\/|[\\;]|(?:\.|%2e|%20)\+*(?:\/|$)/i.test(path)
}
