// Bytes and their text forms. Pure.

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true })

export function utf8(text: string): Uint8Array {
  return encoder.encode(text)
}

/** Throws TypeError on bytes that are not UTF-8. */
export function fromUtf8(bytes: Uint8Array): string {
  return decoder.decode(bytes)
}

export function toHex(bytes: Uint8Array): string {
  return bytes.toHex()
}

export function fromHex(text: string): Uint8Array {
  return Uint8Array.fromHex(text)
}

/** Standard base64 with padding. */
export function toBase64(bytes: Uint8Array): string {
  return bytes.toBase64()
}

/** Strict standard base64: canonical, padded. Null when the text is anything else. */
export function fromBase64(text: string): Uint8Array | null {
  let bytes: Uint8Array
  try {
    bytes = Uint8Array.fromBase64(text, { lastChunkHandling: 'strict' })
  } catch {
    return null
  }
  return bytes.toBase64() === text ? bytes : null
}

/** Equal contents, in time that depends on the lengths only. */
export function equalConstantTime(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false
  let difference = 0
  for (let i = 0; i < a.length; i += 1) difference |= (a[i] ?? 0) ^ (b[i] ?? 0)
  return difference === 0
}
