// The public half out of an unencrypted OpenSSH private key file. Pure.
// Format: openssh-portable PROTOCOL.key, section 1; strings and integers as in RFC 4251 section 5.

import { fromBase64, fromUtf8, toBase64 } from '../../base/bytes.ts'

/** `ssh-ed25519 AAAA…` without a comment, or null when the text is no whole ed25519 private key file. */
export function sshPublicKeyOf(privateKeyFile: string): string | null {
  const body = privateKeyFile.match(
    /^-----BEGIN OPENSSH PRIVATE KEY-----\n([\s\S]*)\n-----END OPENSSH PRIVATE KEY-----\n?$/,
  )?.[1]
  const bytes = body === undefined ? null : fromBase64(body.replaceAll('\n', ''))
  if (bytes === null || fromAscii(bytes.subarray(0, magic.length)) !== magic) return null
  const read = reader(bytes.subarray(magic.length))
  const cipher = read.string()
  read.string() // key derivation function
  read.string() // its options
  const count = read.uint32()
  const publicKey = read.string()
  const privateSection = read.string()
  if (cipher === null || fromAscii(cipher) !== 'none' || count !== 1 || privateSection === null) return null
  if (publicKey?.length !== publicKeyBytes || sshKeyType(publicKey) !== 'ssh-ed25519') return null
  return `ssh-ed25519 ${toBase64(publicKey)}`
}

/** The key type that an SSH public key blob names first, or null. */
export function sshKeyType(blob: Uint8Array): string | null {
  const type = reader(blob).string()
  return type === null ? null : fromAscii(type)
}

const magic = 'openssh-key-v1\0'
/** RFC 8709 section 4: two strings, of 11 and 32 bytes. */
const publicKeyBytes = 51

function fromAscii(bytes: Uint8Array): string | null {
  return bytes.every(byte => byte < 0x80) ? fromUtf8(bytes) : null
}

/** Reads forward; null once the bytes run out. */
function reader(bytes: Uint8Array) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let at = 0
  const uint32 = (): number | null => {
    if (at + 4 > bytes.length) return null
    at += 4
    return view.getUint32(at - 4)
  }
  const string = (): Uint8Array | null => {
    const length = uint32()
    if (length === null || at + length > bytes.length) return null
    at += length
    return bytes.subarray(at - length, at)
  }
  return { uint32, string }
}
