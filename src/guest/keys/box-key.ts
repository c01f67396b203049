// The X25519 key of a boot, which claims are sealed to. Native: in JavaScript one operation takes 0.15 s under software
// emulation.

import { createPublicKey, diffieHellman, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { fromBase64 } from '../../base/bytes.ts'
import type { SealedClaim } from '../../contract/vm/agent.ts'
import { boxNonceBytes, openSecretBox } from './secret-box.ts'

export type BoxKey = {
  /** X25519 public key, standard base64. */
  readonly boxKey: string
  /** The plaintext, or null if the box was sealed to another key or changed on the way. */
  readonly openBox: (sealed: SealedClaim) => Uint8Array | null
  /** Runs the code of a claim once, so that it is loaded and compiled. */
  readonly warmUp: () => void
}

/** A new key pair, in the memory of this process alone. */
export function createBoxKey(): BoxKey {
  const { privateKey } = generateKeyPairSync('x25519')
  const open = (box: { ephemeralKey: Uint8Array; nonce: Uint8Array; ciphertext: Uint8Array }) => {
    const secret = sharedSecret(privateKey, box.ephemeralKey)
    return secret === null ? null : openSecretBox(secret, box.nonce, box.ciphertext)
  }
  return {
    boxKey: rawPublicKey(privateKey).toBase64(),
    openBox: sealed => {
      const ephemeralKey = fromBase64(sealed.ephemeralKey)
      const nonce = fromBase64(sealed.nonce)
      const ciphertext = fromBase64(sealed.box)
      if (ephemeralKey?.length !== 32 || nonce?.length !== boxNonceBytes || ciphertext === null) return null
      return open({ ephemeralKey, nonce, ciphertext })
    },
    warmUp: () => {
      const ephemeralKey = rawPublicKey(generateKeyPairSync('x25519').privateKey)
      open({ ephemeralKey, nonce: new Uint8Array(boxNonceBytes), ciphertext: new Uint8Array(2_048) })
    },
  }
}

function rawPublicKey(privateKey: KeyObject): Uint8Array {
  const { x } = privateKey.export({ format: 'jwk' })
  return Uint8Array.fromBase64(x ?? '', { alphabet: 'base64url' })
}

/** RFC 7748 section 6.1; null for a point of small order, with which anyone could compute the secret. */
function sharedSecret(privateKey: KeyObject, publicKey: Uint8Array): Uint8Array | null {
  try {
    const x = publicKey.toBase64({ alphabet: 'base64url', omitPadding: true })
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'X25519', x }, format: 'jwk' })
    return Uint8Array.from(diffieHellman({ privateKey, publicKey: key }))
  } catch {
    return null
  }
}
