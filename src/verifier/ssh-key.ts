// SSH public keys in OpenSSH's format, and the only form of a known_hosts line that a relying party accepts. Pure;
// throws Malformed. Blobs: RFC 4253 section 6.6 (a string that names the type, then the rest), RFC 8709 section 4.
// Lines: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.

import { sha256 } from '../attest/hash.ts'
import { wellFormed } from '../attest/malformed.ts'
import { fromBase64, toBase64, utf8 } from '../base/bytes.ts'

export type SshKey = {
  readonly type: string
  /** The key in wire format. */
  readonly blob: Uint8Array
  /** SHA-256 of the blob, as in statements, SSHFP records of type 2, and OpenSSH's output. */
  readonly digest: Uint8Array
  /** In OpenSSH's format: `SHA256:` and base64 without padding. */
  readonly fingerprint: string
}

/** A line that names exactly one host and its Ed25519 key. */
export type KnownHost = {
  readonly hostname: string
  readonly key: SshKey
  /** Line for known_hosts(5) without a line end, built from the two fields above. */
  readonly line: string
}

const hostKeyType = 'ssh-ed25519'
const ed25519BlobBytes = 4 + hostKeyType.length + 4 + 32
const typePattern = /^[a-z0-9][a-z0-9@.-]{0,63}$/

/** Reads `type base64`, with an optional comment. */
export function readSshKey(line: string): SshKey {
  const text = line.replace(/\r?\n$/, '')
  wellFormed(!/[\x00-\x08\x0a-\x1f\x7f]/.test(text), 'SSH key: more than one line, or control characters')
  const [type = '', base64 = ''] = text.trim().split(/[ \t]+/)
  return keyOf(type, base64, 'SSH key')
}

/**
 * Reads exactly `hostname ssh-ed25519 base64`: other forms of known_hosts would trust more than this key for this host.
 */
export function readKnownHost(line: string, hostname: string): KnownHost {
  const what = 'known_hosts'
  wellFormed(!/[\r\n]/.test(line), `${what}: more than one line`)
  wellFormed(!line.startsWith('@'), `${what}: a marker, such as @cert-authority`)
  const [host = '', type = '', base64 = '', ...more] = line.split(' ')
  wellFormed(!/[*?!,|]/.test(host), `${what}: a pattern, a list or a hash instead of a host name`)
  wellFormed(host === hostname, `${what}: the host ${JSON.stringify(host)} is not ${JSON.stringify(hostname)}`)
  wellFormed(type === hostKeyType, `${what}: the key type ${JSON.stringify(type)} is not ${hostKeyType}`)
  wellFormed(more.length === 0, `${what}: something follows the key`)
  const key = keyOf(type, base64, what)
  wellFormed(key.blob.length === ed25519BlobBytes, `${what}: ${key.blob.length} bytes are no Ed25519 key`)
  return { hostname, key, line: `${hostname} ${hostKeyType} ${toBase64(key.blob)}` }
}

function keyOf(type: string, base64: string, what: string): SshKey {
  wellFormed(typePattern.test(type), `${what}: does not begin with a key type`)
  const blob = fromBase64(base64)
  wellFormed(blob !== null && blob.length > 4, `${what}: not canonical base64 after the key type`)
  const name = utf8(type)
  const length = new DataView(blob.buffer, blob.byteOffset).getUint32(0)
  const named = blob.subarray(4, 4 + name.length)
  const isNamed = length === name.length && named.length === name.length && named.every((byte, at) => byte === name[at])
  wellFormed(isNamed, `${what}: names one key type and holds another`)
  const digest = sha256(blob)
  return { type, blob, digest, fingerprint: `SHA256:${toBase64(digest).replaceAll('=', '')}` }
}
