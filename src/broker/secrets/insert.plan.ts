// Which secrets a request gets, and the request as the upstream sees it. Pure.

import { formatSecret, isPlainPath, type Secret } from '../../contract/vm/orders/secret.ts'
import { requestFraming } from './http/body.codec.ts'
import { endToEnd, type Field, HttpProblem, listOf, type RequestHead, valuesOf } from './http/head.codec.ts'

export type Destination = {
  readonly hostname: string
  readonly port: number
  /** Secrets of exactly this host and port. */
  readonly secrets: readonly Secret[]
}

/**
 * Returns the head for the upstream. The field of a secret has the secret's value alone and nothing of the program's,
 * so a program cannot use the host with other credentials. Throws HttpProblem.
 */
export function prepareRequest(head: RequestHead, { hostname, port, secrets }: Destination): RequestHead {
  const host = hostField(hostname, port)
  const [named, ...more] = valuesOf(head.fields, 'host')
  if (named === undefined || more.length > 0) throw new HttpProblem(400, 'a request has one Host field')
  if (!isHost(named, hostname, port)) throw new HttpProblem(421, `the Host field names another host than ${hostname}`)
  const expected = listOf(head.fields, 'expect')
  if (expected.some(value => value !== '100-continue')) throw new HttpProblem(417, 'Expect has an unknown value')
  const chosen = secretsFor(head, secrets)
  const [evading] = head.fields.find(([name]) => chosen.some(secret => isEvaded(secret, name))) ?? []
  if (evading !== undefined)
    throw new HttpProblem(403, `${evading} could evade the method or path of a secret; send the request without it`)
  // A format without a place would have been refused by the order.
  const inserted = chosen.map(({ header, format, value }): Field => [header, formatSecret(format, value) ?? ''])
  // A part of a response could begin or end within a secret.
  const ours = ['accept-encoding', 'content-length', 'expect', 'host', 'if-range', 'range']
  const fields = endToEnd(head.fields, [...ours, ...inserted.map(([name]) => name)])
  return {
    ...head,
    fields: [['Host', host], ...fields, ['Accept-Encoding', 'identity'], ...framingFields(head), ...inserted],
  }
}

/** Fields that some servers read instead of method or target. Without signs, because servers differ on these. */
const overriding =
  /^(?:x?(?:http)?methodoverride|(?:x|x?http)method|x(?:envoyoriginal|forwarded|original|override|replaced|rewrite)(?:ur[il]|path|prefix|method)|x?(?:scriptname|pathinfo))$/i

/** Fields with a second path, from which or to which a server copies or moves. */
const secondPath = /^(?:destination|xcopyfrom|.*(?:copy|rename)source)$/i

/** Reports whether a server could leave the method or path of the secret because of the field. */
function isEvaded({ method, path }: Secret, name: string): boolean {
  const letters = name.replace(/[\W_]/g, '')
  if (path !== undefined && secondPath.test(letters)) return true
  return (method ?? path) !== undefined && overriding.test(letters)
}

/** Framing as the broker itself writes it. */
function framingFields(head: RequestHead): Field[] {
  const framing = requestFraming(head.fields)
  if (framing.kind === 'chunked') return [['Transfer-Encoding', 'chunked']]
  if (framing.kind === 'length') return [['Content-Length', String(framing.bytes)]]
  return valuesOf(head.fields, 'content-length').length > 0 ? [['Content-Length', '0']] : []
}

/** For each field the secret of the most precise rule: the longest path, then a method. */
export function secretsFor({ method, target }: RequestHead, secrets: readonly Secret[]): Secret[] {
  const [path = ''] = target.split('?')
  const isAt = ({ path: prefix }: Secret) => prefix === undefined || isBelow(path, prefix)
  const met = secrets.filter(secret => (secret.method ?? method) === method && isAt(secret))
  // A map keeps the last value of a key.
  const sorted = met.toSorted((a, b) => precision(a) - precision(b))
  return [...new Map(sorted.map(secret => [secret.header.toLowerCase(), secret])).values()]
}

function precision({ path, method }: Secret): number {
  return 2 * (path?.length ?? 0) + (method === undefined ? 0 : 1)
}

/** Reports whether every server reads `path` as one at or below `prefix`. A path without `/` ends at a segment. */
function isBelow(path: string, prefix: string): boolean {
  return isPlainPath(path) && (path === prefix || path.startsWith(prefix.endsWith('/') ? prefix : `${prefix}/`))
}

function hostField(hostname: string, port: number): string {
  return port === 443 ? hostname : `${hostname}:${port}`
}

function isHost(text: string, hostname: string, port: number): boolean {
  const [, name = '', given] = /^([^:]*)(?::([0-9]{1,5}))?$/.exec(text) ?? []
  return name.toLowerCase() === hostname && Number(given ?? 443) === port
}
