// OpenSSH public keys as supplied by customers: one line `type base64 [comment]`. Pure. Blobs: RFC 4253 6.6 (rsa), RFC
// 8709 4 (ed25519), RFC 5656 3.1 (ecdsa), OpenSSH PROTOCOL.u2f (sk-*). Accepts exactly what sshd would accept as a
// plain user key.

import { sha256 } from '../attest/hash.ts'
import { fromBase64, fromUtf8 } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import { publicKeyCharsMax } from '../contract/http/instance.ts'

/**
 * Returns the normalized line: `type base64` or `type base64 comment`, with single spaces. Fault invalid_request, param
 * public_key. The message never repeats the input.
 */
export function parsePublicKey(text: string): string {
  if (text.length > publicKeyCharsMax) refuse(`is longer than ${publicKeyCharsMax} characters`)
  refuseLookalikes(text)
  const line = withoutEnds(text)
  if (line === '') refuse('is empty')
  if (/[\r\n]/.test(line)) refuse('must be one key on one line')
  // Tabs may separate. All other control characters, and the two Unicode line breaks, are forbidden everywhere.
  if (/[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]/.test(line) || !line.isWellFormed()) refuse('has control characters')
  const [type = '', base64 = '', ...comment] = line.split(/[ \t]+/)
  const read = BLOBS[type as KeyType] as BlobReader | undefined
  if (!Object.hasOwn(BLOBS, type) || read === undefined) refuseType(type)
  const blob = fromBase64(base64)
  if (blob === null || blob.length === 0) refuse('is not canonical base64 after the key type')
  const reader = createReader(blob)
  if (reader.text() !== type) refuse('names one type and holds another')
  read(reader)
  reader.end()
  return [type, base64, ...comment].join(' ')
}

/** Returns the normalized line of a text that `parsePublicKey` has accepted. */
export function normalizedKey(text: string): string {
  return withoutEnds(text)
    .split(/[ \t]+/)
    .join(' ')
}

function withoutEnds(text: string): string {
  return text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, '')
}

/**
 * Returns SHA-256 of a key line's blob: OpenSSH's fingerprint, and SSHFP's type 2. Throws TypeError for a malformed
 * line.
 */
export function sshKeyDigest(line: string): Uint8Array {
  const blob = fromBase64(line.split(' ')[1] ?? '')
  if (blob === null || blob.length === 0) throw new TypeError('an SSH public key is `type base64`')
  return sha256(blob)
}

const rsaBitsMin = 1_024
const rsaBitsMax = 16_384

type KeyType =
  | 'ssh-ed25519'
  | 'ssh-rsa'
  | 'ecdsa-sha2-nistp256'
  | 'ecdsa-sha2-nistp384'
  | 'ecdsa-sha2-nistp521'
  | 'sk-ssh-ed25519@openssh.com'
  | 'sk-ecdsa-sha2-nistp256@openssh.com'

type BlobReader = (reader: Reader) => void

/** Content after the type string of each kind of blob. */
const BLOBS = {
  'ssh-ed25519': readEd25519,
  'ssh-rsa': readRsa,
  'ecdsa-sha2-nistp256': reader => readEcdsa(reader, 'nistp256'),
  'ecdsa-sha2-nistp384': reader => readEcdsa(reader, 'nistp384'),
  'ecdsa-sha2-nistp521': reader => readEcdsa(reader, 'nistp521'),
  'sk-ssh-ed25519@openssh.com': reader => {
    readEd25519(reader)
    readApplication(reader)
  },
  'sk-ecdsa-sha2-nistp256@openssh.com': reader => {
    readEcdsa(reader, 'nistp256')
    readApplication(reader)
  },
} as const satisfies Record<KeyType, BlobReader>

function readEd25519(reader: Reader): void {
  if (reader.bytes().length !== 32) refuse('has an Ed25519 point that is not 32 bytes')
}

function readRsa(reader: Reader): void {
  const exponent = reader.positive()
  const modulus = reader.positive()
  const bits = modulus.toString(2).length
  if (bits < rsaBitsMin)
    refuse(`is an RSA key of ${bits} bits; at least ${rsaBitsMin} are needed, 2048 or more advised`)
  if (bits > rsaBitsMax) refuse(`is an RSA key of more than ${rsaBitsMax} bits`)
  if ((modulus & 1n) === 0n) refuse('has an even RSA modulus')
  if (exponent <= 1n || (exponent & 1n) === 0n || exponent >= modulus) refuse('has an unusable RSA exponent')
}

function readEcdsa(reader: Reader, name: keyof typeof CURVES): void {
  if (reader.text() !== name) refuse('names one curve and holds another')
  const curve = CURVES[name]
  const point = reader.bytes()
  if (point.length !== 1 + 2 * curve.sizeBytes || point[0] !== 4) refuse('has a curve point that is not uncompressed')
  const x = toInteger(point.subarray(1, 1 + curve.sizeBytes))
  const y = toInteger(point.subarray(1 + curve.sizeBytes))
  if (!isKeyPoint(curve, x, y)) refuse('has a point that is not on its curve')
}

/**
 * Validates a point like OpenSSH's sshkey_ec_validate_public: on the curve, and no coordinate tiny or at the very end
 * of the field.
 */
function isKeyPoint(curve: Curve, x: bigint, y: bigint): boolean {
  const half = curve.order.toString(2).length / 2
  if (x.toString(2).length <= half || y.toString(2).length <= half) return false
  if (x >= curve.order - 1n || y >= curve.order - 1n) return false
  return (y * y - (x * x * x - 3n * x + curve.b)) % curve.p === 0n
}

/** Reads the application string of a security key, usually `ssh:`. Like OpenSSH, accepts any text without NUL. */
function readApplication(reader: Reader): void {
  if (reader.text().includes('\0')) refuse('has a NUL in its application')
}

type Curve = { readonly sizeBytes: number; readonly p: bigint; readonly b: bigint; readonly order: bigint }

/** Domain parameters (NIST SP 800-186 3.2.1); a = -3 and cofactor 1 on all three. */
const CURVES = {
  nistp256: {
    sizeBytes: 32,
    p: 0xffffffff00000001000000000000000000000000ffffffffffffffffffffffffn,
    b: 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn,
    order: 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n,
  },
  nistp384: {
    sizeBytes: 48,
    p: 0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffffn,
    b: 0xb3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aefn,
    order: 0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n,
  },
  nistp521: {
    sizeBytes: 66,
    p: (1n << 521n) - 1n,
    b: 0x51953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00n,
    order:
      0x1fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409n,
  },
} as const satisfies Record<string, Curve>

type Reader = {
  /** Returns the next length-prefixed string (RFC 4251 5). */
  readonly bytes: () => Uint8Array
  readonly text: () => string
  /** Returns the next mpint. Rejects negative, zero and padded ones. */
  readonly positive: () => bigint
  readonly end: () => void
}

function createReader(blob: Uint8Array): Reader {
  const view = new DataView(blob.buffer, blob.byteOffset, blob.byteLength)
  let at = 0
  const bytes = (): Uint8Array => {
    if (at + 4 > blob.length) refuse('is cut short')
    const end = at + 4 + view.getUint32(at)
    if (end > blob.length) refuse('is cut short')
    const field = blob.subarray(at + 4, end)
    at = end
    return field
  }
  return {
    bytes,
    text: () => {
      const field = bytes()
      try {
        return fromUtf8(field)
      } catch {
        return refuse('has text that is not UTF-8')
      }
    },
    positive: () => {
      const field = bytes()
      const [first = 0, second = 0] = field
      const padded = first === 0 && second < 0x80
      if (field.length === 0 || first >= 0x80 || padded) refuse('has a number that is not a canonical positive mpint')
      return toInteger(field)
    },
    end: () => {
      if (at !== blob.length) refuse('has bytes after the key')
    },
  }
}

function toInteger(bytes: Uint8Array): bigint {
  return BigInt(`0x${bytes.toHex()}`)
}

/** Rejects other things that people paste instead of a public key, each with a remedy. */
function refuseLookalikes(text: string): void {
  if (/-----BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File/.test(text)) {
    refuse('is a private key; treat it as disclosed, make a new pair, and send the content of the .pub file')
  }
  if (/-----BEGIN |---- BEGIN /.test(text)) {
    refuse('is in another format; `ssh-keygen -i` converts it to OpenSSH')
  }
}

function refuseType(type: string): never {
  if (type === 'ssh-dss') refuse('is a DSA key, which is no longer safe; make an ssh-ed25519 key')
  if (/^[a-z0-9@.-]+-cert-v0[01]@openssh\.com$/.test(type)) refuse('is a certificate; send the plain public key')
  return refuse(`does not begin with a known key type (${Object.keys(BLOBS).join(', ')}); options are not allowed`)
}

function refuse(why: string): never {
  throw new Fault('invalid_request', `public_key ${why}`, { param: 'public_key' })
}
