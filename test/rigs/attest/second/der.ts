// A second reader of certificates, for the comparison with src/attest, with which it shares nothing: DER (X.690) as a
// tree of tags, X.509 (RFC 5280) as far as AMD uses it (AMD 57230). Pure. Null stands for whatever cannot be read.

export type Node = { readonly tag: number; readonly whole: Uint8Array; readonly body: Uint8Array }

/** The elements that fill these bytes exactly. */
export function nodes(bytes: Uint8Array): Node[] | null {
  const found: Node[] = []
  let at = 0
  while (at < bytes.length) {
    const start = at
    const tag = bytes[at] ?? 0
    let size = bytes[at + 1] ?? -1
    at += 2
    if (size < 0 || (tag & 0x1f) === 0x1f) return null
    if (size >= 0x80) {
      const more = size & 0x7f
      if (more === 0 || more > 3) return null
      size = 0
      for (let i = 0; i < more; i += 1) size = size * 256 + (bytes[at + i] ?? 0)
      at += more
    }
    if (at + size > bytes.length) return null
    found.push({ tag, whole: bytes.subarray(start, at + size), body: bytes.subarray(at, at + size) })
    at += size
  }
  return found
}

export function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex')
}

export type Signed = {
  readonly tbs: Uint8Array
  readonly fields: readonly Node[]
  readonly isPss: boolean
  readonly signature: Uint8Array
}

/** SEQUENCE of what is signed, the algorithm, the signature; the same algorithm stands inside. */
export function signedOf(der: Uint8Array, algorithmAt: number): Signed | null {
  const outer = nodes(der)
  if (outer?.length !== 1 || outer[0]?.tag !== 0x30) return null
  const parts = nodes(outer[0].body)
  if (parts?.length !== 3) return null
  const [tbs, algorithm, bits] = parts
  if (tbs?.tag !== 0x30 || algorithm?.tag !== 0x30 || bits?.tag !== 0x03 || bits.body[0] !== 0) return null
  const fields = nodes(tbs.body)
  const inner = fields?.[algorithmAt]
  if (fields === null || inner === undefined || hexOf(inner.whole) !== hexOf(algorithm.whole)) return null
  return { tbs: tbs.whole, fields, isPss: isPss(algorithm.body), signature: bits.body.subarray(1) }
}

const sha384 = '0609608648016503040202'

/** RSASSA-PSS (RFC 4055): SHA-384, MGF1 with SHA-384, 48 bytes of salt; a trailer of 1 may be written out. */
function isPss(algorithm: Uint8Array): boolean {
  const [oid, parameters] = nodes(algorithm) ?? []
  if (oid === undefined || hexOf(oid.whole) !== '06092a864886f70d01010a' || parameters === undefined) return false
  const parts = new Map((nodes(parameters.body) ?? []).map(part => [part.tag, hexOf(part.body)]))
  const hash = parts.get(0xa0) ?? ''
  const mask = parts.get(0xa1) ?? ''
  const isHash = (text: string) => text.startsWith('30') && text.slice(4).startsWith(sha384)
  const isMask = mask.includes('06092a864886f70d010108') && mask.includes(sha384)
  return isHash(hash) && isMask && parts.get(0xa2) === '020130' && (parts.get(0xa3) ?? '020101') === '020101'
}

/** Milliseconds since 1970. UTCTime has two digits of the year: 50 to 99 are of the last century. */
export function timeOf(node: Node | undefined): number | null {
  const text = node === undefined ? '' : new TextDecoder().decode(node.body)
  const century = Number(text.slice(0, 2)) < 50 ? '20' : '19'
  const whole = node?.tag === 0x17 ? century + text : node?.tag === 0x18 ? text : ''
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(whole) ?? []
  return year === undefined ? null : Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`)
}

export type Extension = { readonly critical: boolean; readonly value: Uint8Array }

/** By the hexadecimal of the OID's body. */
export function extensionsOf(list: Node | undefined): Map<string, Extension> | null {
  const found = new Map<string, Extension>()
  for (const { body } of nodes(list?.body ?? new Uint8Array(0)) ?? []) {
    const parts = nodes(body) ?? []
    const [oid, ...rest] = parts
    const value = rest.at(-1)
    if (oid?.tag !== 0x06 || value?.tag !== 0x04) return null
    const flag = rest.length === 2 ? rest[0] : undefined
    if (found.has(hexOf(oid.body))) return null
    found.set(hexOf(oid.body), { critical: flag?.body[0] === 0xff, value: value.body })
  }
  return found
}
