// Bytes and their text forms. Pure and portable: the runtime's own base64 and hexadecimal if it has them (over a
// hundred times as fast), otherwise methods that older browsers have too.

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

export function utf8(text: string): Uint8Array {
  return encoder.encode(text)
}

/** Throws TypeError on bytes that are not UTF-8. */
export function fromUtf8(bytes: Uint8Array): string {
  return decoder.decode(bytes)
}

/** Part of ECMAScript 2026; the types of older runtimes lack it. */
const { toHex: nativeToHex } = Uint8Array.prototype as { readonly toHex?: () => string }
const { fromHex: nativeFromHex } = Uint8Array as { readonly fromHex?: (text: string) => Uint8Array }

export function toHex(bytes: Uint8Array): string {
  return nativeToHex === undefined ? toHexPortably(bytes) : nativeToHex.call(bytes)
}

/** Exported for tests, whose runtime has its own. */
export function toHexPortably(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) text += byte.toString(16).padStart(2, '0')
  return text
}

/** Hexadecimal in either case, whole bytes. Null when the text is anything else. */
export function fromHex(text: string): Uint8Array | null {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(text)) return null
  return nativeFromHex === undefined ? fromHexPortably(text) : nativeFromHex.call(Uint8Array, text)
}

/** Exported for tests, like `toHexPortably`. Whole bytes of hexadecimal only. */
export function fromHexPortably(text: string): Uint8Array {
  return Uint8Array.from({ length: text.length / 2 }, (_, at) => Number.parseInt(text.slice(at * 2, at * 2 + 2), 16))
}

type NativeEncode = (options?: { readonly alphabet: 'base64url'; readonly omitPadding: true }) => string
type NativeDecode = (text: string, options: { readonly lastChunkHandling: 'strict' }) => Uint8Array
const { toBase64: nativeEncode } = Uint8Array.prototype as { readonly toBase64?: NativeEncode }
const { fromBase64: nativeDecode } = Uint8Array as { readonly fromBase64?: NativeDecode }

/** Standard base64 with padding. */
export function toBase64(bytes: Uint8Array): string {
  return nativeEncode === undefined ? toBase64Portably(bytes) : nativeEncode.call(bytes)
}

const chunkBytes = 0x2000

/** Exported for tests, whose runtime has its own. */
export function toBase64Portably(bytes: Uint8Array): string {
  let binary = ''
  for (let at = 0; at < bytes.length; at += chunkBytes)
    binary += String.fromCharCode(...bytes.subarray(at, at + chunkBytes))
  return btoa(binary)
}

/** Strict standard base64: canonical, padded. Null when the text is anything else. */
export function fromBase64(text: string): Uint8Array | null {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return null
  if (nativeDecode === undefined) return fromBase64Portably(text)
  try {
    return nativeDecode.call(Uint8Array, text, { lastChunkHandling: 'strict' })
  } catch {
    return null
  }
}

/** Exported for tests, like `toBase64Portably`. Base64's own characters only. */
export function fromBase64Portably(text: string): Uint8Array | null {
  let binary: string
  try {
    binary = atob(text)
  } catch {
    return null
  }
  const bytes = new Uint8Array(binary.length)
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at)
  return toBase64Portably(bytes) === text ? bytes : null
}

/** base64url without padding (RFC 4648 section 5). */
export function toBase64Url(bytes: Uint8Array): string {
  if (nativeEncode !== undefined) return nativeEncode.call(bytes, { alphabet: 'base64url', omitPadding: true })
  return toBase64Portably(bytes).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
}

/** Strict base64url without padding. Null when the text is anything else. */
export function fromBase64Url(text: string): Uint8Array | null {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) return null
  return fromBase64(
    text
      .replaceAll('-', '+')
      .replaceAll('_', '/')
      .padEnd(Math.ceil(text.length / 4) * 4, '='),
  )
}

export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/** Whether the contents are equal. Takes time that depends on the lengths only. */
export function equalConstantTime(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false
  let difference = 0
  for (let i = 0; i < a.length; i += 1) difference |= (a[i] ?? 0) ^ (b[i] ?? 0)
  return difference === 0
}
