// Heads of HTTP/1.1 messages, read strictly (RFC 9112 sections 3 to 5) and written again. Pure.
//
// Program and upstream may read a doubtful head differently from each other, so this reads only what has one meaning.
// Nothing of a head is passed on as it came: the fields are written again, one per line.

export type Field = readonly [name: string, value: string]

export type RequestHead = {
  readonly method: string
  /** In origin form, or `*`. */
  readonly target: string
  readonly fields: readonly Field[]
}

export type ResponseHead = {
  readonly status: number
  readonly reason: string
  /** False for HTTP/1.0. */
  readonly persists: boolean
  readonly fields: readonly Field[]
}

/** A message that is not passed on: the status and the sentence for the program that sent the request. */
export class HttpProblem extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/** Largest head, with the blank line at its end. */
export const headBytesMax = 32_768
/** No share: limits one message. */
const fieldsMax = 128

const token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
const requestLine = new RegExp(`^(${token}) ([\\x21-\\x7e]+) HTTP/1\\.([0-9])$`)
const statusLine = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?$/
const fieldLine = new RegExp(`^(${token}):[ \\t]*([\\t\\x20-\\x7e\\x80-\\xff]*)$`)

/** `head`: with its blank line. Throws HttpProblem. */
export function readRequestHead(head: Uint8Array): RequestHead {
  const [first = '', ...lines] = linesOf(head)
  const [, method, target, minor] = requestLine.exec(first) ?? []
  if (method === undefined || target === undefined) throw new HttpProblem(400, 'the request line is malformed')
  if (minor !== '1') throw new HttpProblem(505, 'only HTTP/1.1 is served')
  if (method === 'CONNECT' || method === 'TRACE') throw new HttpProblem(405, `${method} is not passed on`)
  if (!target.startsWith('/') && target !== '*') throw new HttpProblem(400, 'the target must begin with /')
  return { method, target, fields: fieldsOf(lines, 400) }
}

/** `head`: with its blank line. Throws HttpProblem of status 502. */
export function readResponseHead(head: Uint8Array): ResponseHead {
  const [first = '', ...lines] = linesOf(head)
  const [, minor, status, reason = ''] = statusLine.exec(first) ?? []
  if (status === undefined) throw new HttpProblem(502, 'the status line of the response is malformed')
  return { status: Number(status), reason, persists: minor === '1', fields: fieldsOf(lines, 502) }
}

export function writeRequestHead({ method, target, fields }: RequestHead): Uint8Array {
  return written(`${method} ${target} HTTP/1.1`, fields)
}

export function writeResponseHead({ status, reason, fields }: Omit<ResponseHead, 'persists'>): Uint8Array {
  return written(`HTTP/1.1 ${status} ${reason}`, fields)
}

/** Values of the fields with this name, which is in lower case. */
export function valuesOf(fields: readonly Field[], name: string): string[] {
  return fields.filter(field => field[0].toLowerCase() === name).map(([, value]) => value)
}

/** Elements of a list field, in lower case (RFC 9110 5.6.1). */
export function listOf(fields: readonly Field[], name: string): string[] {
  const elements = valuesOf(fields, name).flatMap(value => value.split(','))
  return elements.map(element => element.trim().toLowerCase()).filter(element => element !== '')
}

/** Fields of one connection (RFC 9110 7.6.1), and those that name another way to the host. */
const hopFields = [
  ...['alt-svc', 'connection', 'http2-settings', 'keep-alive', 'proxy-authenticate', 'proxy-authorization'],
  ...['proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'],
] as const

/** The fields without those of one connection and `others`. */
export function endToEnd(fields: readonly Field[], others: readonly string[]): Field[] {
  const dropped = new Set([...hopFields, ...others, ...listOf(fields, 'connection')].map(ofCgi))
  return fields.filter(([name]) => !dropped.has(ofCgi(name)))
}

/** The variable that servers of CGI's kind make of a field (RFC 3875 4.1.18): equal for `X-Key` and `x_key`. */
function ofCgi(name: string): string {
  return name.replace(/\W/g, '_').toUpperCase()
}

/** A field line, as trailers have them too. Throws HttpProblem of `status`. */
export function readField(line: string, status: number): Field {
  const [, name, value] = fieldLine.exec(line) ?? []
  if (name === undefined || value === undefined) throw new HttpProblem(status, 'a header field is malformed')
  return [name, value.replace(/[ \t]+$/, '')]
}

function fieldsOf(lines: readonly string[], status: number): Field[] {
  if (lines.length > fieldsMax) throw new HttpProblem(status, `there are more than ${fieldsMax} header fields`)
  return lines.map(line => readField(line, status))
}

/** A lone CR or LF stays in its line, where no pattern lets it pass. */
function linesOf(head: Uint8Array): string[] {
  return Buffer.from(head).toString('latin1').slice(0, -4).split('\r\n')
}

function written(first: string, fields: readonly Field[]): Uint8Array {
  return Buffer.from(`${[first, ...fields.map(([name, value]) => `${name}: ${value}`)].join('\r\n')}\r\n\r\n`, 'latin1')
}
