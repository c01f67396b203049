// HPKE in base mode (RFC 9180 section 5.1.1) by the package `hpke`, over our KEMs and any AES-256-GCM: the suite, and
// the recipient's context. Pure: private keys are the caller's. The sender's context is hpke-sender.ts, which a gateway
// has no use for.

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { type AEAD, CipherSuite, type KDF, type KEM, type Key, type RecipientContext } from 'hpke'
import { type Decapsulate, KEMS, type KemName } from '../receipt/kem.ts'
import type { NewAesGcm } from './aes-gcm.ts'
import { aeadId, kdfId, LABELS, SIZES } from './protocol.ts'

export type Recipient = Pick<RecipientContext, 'Open' | 'Export'>

/** Rejects as `decapsulate` does. */
export async function setUpRecipient(
  kem: KemName,
  encapsulated: Uint8Array,
  { decapsulate, newAesGcm }: { readonly decapsulate: Decapsulate; readonly newAesGcm: NewAesGcm },
): Promise<Recipient> {
  const sharedSecret = await decapsulate(kem, encapsulated)
  const suite = suiteOf({ ...unusedKem(kem), Decap: async () => sharedSecret })
  return await suite(newAesGcm).SetupRecipient(keyInside('private'), encapsulated, { info: LABELS.request })
}

/** One direction of one message: the KEM that is given has what it gives. */
export function suiteOf(kem: KEM): (newAesGcm: NewAesGcm) => CipherSuite {
  return newAesGcm =>
    new CipherSuite(
      () => kem,
      () => hkdfSha256,
      () => aeadOf(newAesGcm),
    )
}

/** The package asks a KEM for key functions. Our keys never reach it; a suite is for one direction of one message. */
export function unusedKem(name: KemName): KEM {
  const { id, publicKeyBytes, encapsulatedBytes } = KEMS[name]
  return {
    id,
    type: 'KEM',
    name,
    Nsecret: SIZES.key,
    Nenc: encapsulatedBytes,
    Npk: publicKeyBytes,
    Nsk: SIZES.key,
    Encap: unused,
    Decap: unused,
    DeriveKeyPair: unused,
    GenerateKeyPair: unused,
    SerializePublicKey: unused,
    DeserializePublicKey: unused,
    SerializePrivateKey: unused,
    DeserializePrivateKey: unused,
  }
}

export function keyInside(type: 'public' | 'private'): Key {
  return { algorithm: { name: 'inside the KEM' }, extractable: false, type }
}

const hkdfSha256: KDF = {
  id: kdfId,
  type: 'KDF',
  name: 'HKDF-SHA256',
  Nh: 32,
  stages: 2,
  Extract: async (salt, ikm) => extract(sha256, ikm, salt),
  Expand: async (prk, info, lengthBytes) => expand(sha256, prk, info, lengthBytes),
  Derive: unused,
}

function aeadOf(newAesGcm: NewAesGcm): AEAD {
  return {
    id: aeadId,
    type: 'AEAD',
    name: 'AES-256-GCM',
    Nk: SIZES.key,
    Nn: SIZES.nonce,
    Nt: SIZES.tag,
    Seal: async (key, nonce, _aad, plaintext) => newAesGcm(key).seal(nonce, plaintext),
    Open: async (key, nonce, _aad, ciphertext) => newAesGcm(key).open(nonce, ciphertext),
  }
}

async function unused(): Promise<never> {
  throw new Error('invariant broken: a function of the KEM that EHBP does not use')
}
