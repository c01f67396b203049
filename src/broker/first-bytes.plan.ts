// Which server a connection's first bytes name: the server name of a ClientHello (RFC 8446 4.1.2, RFC 6066 3), or the
// host of a plain HTTP/1 request (RFC 9112 3.2). Pure.
//
// Programs choose the bytes. Every length is checked, and both forms are read within `firstBytesMax`.

/** A ClientHello with post-quantum shares has about 2 KiB. No share: limits one connection. */
export const firstBytesMax = 32_768

export type FirstBytes =
  /** Undecided: more bytes are needed. */
  | { readonly kind: 'partial' }
  | { readonly kind: 'tls'; readonly host: string }
  | { readonly kind: 'http'; readonly host: string; readonly port: number | null }
  /** Another protocol, which names no server that is known here. */
  | { readonly kind: 'other' }
  /** `reason`: a sentence's end for the log. */
  | { readonly kind: 'refused'; readonly reason: string }

export function readFirstBytes(bytes: Buffer): FirstBytes {
  if (bytes.length === 0) return partial
  const read = bytes[0] === recordHandshake ? readHello(bytes) : readHttp(bytes)
  if (read.kind === 'partial' && bytes.length >= firstBytesMax) return refused('it names no server in its first bytes')
  return read
}

const partial = { kind: 'partial' } as const
const refused = (reason: string) => ({ kind: 'refused', reason }) as const
const malformed = refused('it begins with a malformed TLS record')

/** RFC 8446 5.1. */
const recordHandshake = 22
const recordHeaderBytes = 5
const recordBytesMax = 16_384
const messageHeaderBytes = 4
const messageClientHello = 1
const extensionServerName = 0
const nameTypeHost = 0

/** A ClientHello may stretch over several records. */
function readHello(bytes: Buffer): FirstBytes {
  const fragments: Buffer[] = []
  let [at, held, needed] = [0, 0, messageHeaderBytes]
  while (held < needed) {
    if (bytes.length < at + recordHeaderBytes) return partial
    const sizeBytes = bytes.readUInt16BE(at + 3)
    const isRecord = bytes[at] === recordHandshake && bytes[at + 1] === 3
    if (!isRecord || sizeBytes === 0 || sizeBytes > recordBytesMax) return malformed
    at += recordHeaderBytes
    const fragment = bytes.subarray(at, at + sizeBytes)
    fragments.push(fragment)
    held += fragment.length
    at += sizeBytes
    if (held >= messageHeaderBytes && needed === messageHeaderBytes) {
      const header = Buffer.concat(fragments)
      if (header[0] !== messageClientHello) return malformed
      needed += header.readUIntBE(1, 3)
    }
    if (fragment.length < sizeBytes && held < needed) return partial
  }
  const hello = Buffer.concat(fragments).subarray(messageHeaderBytes, needed)
  const names = serverNames(new Reader(hello))
  if (names === null) return malformed
  const [host] = names
  if (host === undefined) return refused('its ClientHello has no server name')
  return names.length === 1 ? { kind: 'tls', host } : refused('its ClientHello has several server names')
}

/** Null if the message is malformed. */
function serverNames(hello: Reader): string[] | null {
  hello.skip(2 + 32)
  hello.vector(1)
  hello.vector(2)
  hello.vector(1)
  const extensions = hello.vector(2)
  const names: string[] = []
  while (extensions.left() > 0) {
    const type = extensions.number(2)
    const data = extensions.vector(2)
    if (type !== extensionServerName) continue
    const list = data.vector(2)
    while (list.left() > 0) {
      if (list.number(1) !== nameTypeHost) return null
      names.push(list.vector(2).text().toLowerCase())
    }
    if (list.failed || data.failed || data.left() > 0 || names.length === 0) return null
  }
  return hello.failed || extensions.failed || hello.left() > 0 ? null : names
}

/** Reads numbers and vectors. `failed` once a read went beyond the end. */
class Reader {
  failed = false
  #at = 0
  readonly #bytes: Buffer

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  left(): number {
    return this.failed ? 0 : this.#bytes.length - this.#at
  }

  skip(sizeBytes: number): Buffer {
    if (sizeBytes > this.left()) this.failed = true
    if (this.failed) return Buffer.alloc(0)
    this.#at += sizeBytes
    return this.#bytes.subarray(this.#at - sizeBytes, this.#at)
  }

  number(sizeBytes: number): number {
    const bytes = this.skip(sizeBytes)
    return this.failed ? 0 : bytes.readUIntBE(0, sizeBytes)
  }

  vector(lengthBytes: number): Reader {
    const inner = new Reader(this.skip(this.number(lengthBytes)))
    inner.failed = this.failed
    return inner
  }

  text(): string {
    return this.skip(this.left()).toString('latin1')
  }
}

/** Largest head of a request. No share: limits one connection. */
const headBytesMax = 8_192

/**
 * A request line's beginning: a method and the start of a target (RFC 9110 9.1). Each pattern tries every letter once:
 * a program chooses the text, and one thread serves all connections.
 */
const METHOD_START = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{0,32}(?:[ \t][^\r\n]*)?$/
const METHOD = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const VERSION = /^HTTP\/[0-9.]+$/
const HOST_VALUE = /^([a-z0-9_.-]+?)\.?(?::([0-9]{1,5}))?$/

function readHttp(bytes: Buffer): FirstBytes {
  const text = bytes.toString('latin1')
  const begin = /^[\r\n]*/.exec(text)?.[0].length ?? 0
  const lineEnd = text.indexOf('\n', begin)
  if (lineEnd === -1) {
    if (!METHOD_START.test(text.slice(begin).replace(/\r$/, ''))) return other
    return bytes.length < headBytesMax ? partial : tooLong
  }
  const words = text
    .slice(begin, lineEnd)
    .split(/[ \t\r]/)
    .filter(word => word !== '')
  const [method = '', target = ''] = words
  if (words.length < 2 || !METHOD.test(method) || !VERSION.test(words.at(-1) ?? '')) return other
  // Some servers take all between the first blank and the last one as the target.
  if (words.length > 3) return refused('its HTTP request line has blanks in the target')
  if (method === 'PRI') return refused('it is HTTP/2 without TLS, whose host cannot be checked')
  if (method === 'CONNECT') return refused('it asks for a tunnel (CONNECT)')
  const end = /\n\r?\n/.exec(text.slice(lineEnd))
  if (end === null) return bytes.length < headBytesMax ? partial : tooLong
  const lines = text.slice(lineEnd + 1, lineEnd + end.index + 1).split('\n')
  const values = lines.flatMap(line => {
    const colon = line.indexOf(':')
    const isHost = colon !== -1 && /^host[ \t]*$/i.test(line.slice(0, colon))
    return isHost ? [withoutBlanks(line.slice(colon + 1)).toLowerCase()] : []
  })
  const [, authority] = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(target) ?? []
  const named = [...new Set([...values, ...(authority === undefined ? [] : [authority.toLowerCase()])])]
  const [, host, port] = HOST_VALUE.exec(named[0] ?? '') ?? []
  if (values.length !== 1 || named.length !== 1 || host === undefined) {
    return refused('its HTTP request does not name exactly one host')
  }
  return { kind: 'http', host, port: port === undefined ? null : Number(port) }
}

/** Without those at both ends, in one pass. `trim` takes other characters as well. */
function withoutBlanks(text: string): string {
  let [from, to] = [0, text.length]
  while (from < to && ' \t\r'.includes(text.charAt(from))) from += 1
  while (from < to && ' \t\r'.includes(text.charAt(to - 1))) to -= 1
  return text.slice(from, to)
}

const other = { kind: 'other' } as const
const tooLong = refused(`its HTTP request names no host in the first ${headBytesMax} bytes`)
