// Signatures as ssh-keygen -Y sign makes them (PROTOCOL.sshsig of OpenSSH), by an Ed25519 key. Pure.

import { createHash, createPublicKey, verify } from 'node:crypto'
import { equalConstantTime, fromBase64, utf8 } from '../../base/bytes.ts'

export type SshSignature = {
  /** Armored, as ssh-keygen writes it. */
  readonly armored: string
  readonly message: string
  readonly namespace: string
  /** The only key that counts, in wire format. */
  readonly key: Uint8Array
}

const magic = 'SSHSIG'
const armorPattern = /^-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/=\n]+)-----END SSH SIGNATURE-----\n?$/
/** SubjectPublicKeyInfo of an Ed25519 key up to the key itself (RFC 8410 4). */
const ed25519Prefix = Buffer.from('302a300506032b6570032100', 'hex')
const ed25519Bytes = 32

export function isSignedBy({ armored, message, namespace, key }: SshSignature): boolean {
  const [, base64 = ''] = armorPattern.exec(armored) ?? []
  const blob = fromBase64(base64.replaceAll('\n', ''))
  if (blob === null || Buffer.from(blob.subarray(0, magic.length)).toString('latin1') !== magic) return false
  const fields = readStrings(blob.subarray(magic.length + 4))
  if (fields?.length !== 5 || new DataView(blob.buffer, blob.byteOffset).getUint32(magic.length) !== 1) return false
  const [signer, stated, reserved, hash, signature] = fields as [Buffer, Buffer, Buffer, Buffer, Buffer]
  const algorithm = hash.toString('latin1')
  if (!equalConstantTime(signer, key) || stated.toString('utf8') !== namespace) return false
  if (reserved.length > 0 || (algorithm !== 'sha256' && algorithm !== 'sha512')) return false
  const [signatureType, raw, ...more] = readStrings(signature) ?? []
  const [keyType, point] = readStrings(key) ?? []
  const types = [signatureType, keyType].map(type => type?.toString('latin1'))
  if (raw === undefined || point?.length !== ed25519Bytes || more.length > 0) return false
  if (types.some(type => type !== 'ssh-ed25519')) return false
  const digest = createHash(algorithm).update(message).digest()
  const signed = Buffer.concat([utf8(magic), ...[stated, reserved, hash, digest].map(sshString)])
  const publicKey = createPublicKey({ key: Buffer.concat([ed25519Prefix, point]), format: 'der', type: 'spki' })
  return verify(null, signed, publicKey, raw)
}

function sshString(bytes: Uint8Array): Buffer {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(bytes.length)
  return Buffer.concat([length, bytes])
}

/** Splits bytes into strings of RFC 4251 5; null if they do not end with one. */
export function readStrings(bytes: Uint8Array): Buffer[] | null {
  const rest = Buffer.from(bytes)
  const strings: Buffer[] = []
  let at = 0
  while (at < rest.length) {
    if (at + 4 > rest.length) return null
    const end = at + 4 + rest.readUInt32BE(at)
    if (end > rest.length) return null
    strings.push(rest.subarray(at + 4, end))
    at = end
  }
  return strings
}
