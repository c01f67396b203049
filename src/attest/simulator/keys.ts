// Keys of the simulated platform: how callers create and store them. Pure: this module creates no key.
//
// AMD's authorities have RSA keys of 4096 bits. Generating one takes seconds, so the appliance generates its own once
// and stores them. Tests use 2048 bits, which the verifier accepts too. The certificates' text does not depend on the
// size.

/** Parameters for `generateKey` of WebCrypto, extractable, for ['sign', 'verify']. */
export const SIMULATED_AUTHORITY_ALGORITHM = {
  name: 'RSA-PSS',
  hash: 'SHA-384',
  modulusLength: 4096,
  publicExponent: new Uint8Array([1, 0, 1]),
} as const

export const SIMULATED_VEK_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-384' } as const

/** Signers: three authorities, and one key each for VCEK and VLEK. */
const SIMULATED_KEY_NAMES = ['ark', 'ask', 'asvk', 'vcek', 'vlek'] as const

export type SimulatedKeyName = (typeof SIMULATED_KEY_NAMES)[number]
export type SimulatedKeys = Readonly<Record<SimulatedKeyName, CryptoKeyPair>>

/** PKCS #8 and SubjectPublicKeyInfo, DER. Secret, although a simulated key protects nothing of value. */
export type StoredSimulatedKeys = Readonly<
  Record<SimulatedKeyName, { readonly pkcs8: Uint8Array; readonly spki: Uint8Array }>
>

/** Exports the keys. Throws WebCrypto's error if a key is not extractable. */
export async function exportSimulatedKeys(keys: SimulatedKeys): Promise<StoredSimulatedKeys> {
  return await forEachKey(async name => ({
    pkcs8: new Uint8Array(await crypto.subtle.exportKey('pkcs8', keys[name].privateKey)),
    spki: new Uint8Array(await crypto.subtle.exportKey('spki', keys[name].publicKey)),
  }))
}

/** Imports the keys. Throws WebCrypto's error if the bytes are not such keys. */
export async function importSimulatedKeys(stored: StoredSimulatedKeys): Promise<SimulatedKeys> {
  return await forEachKey(async name => {
    const algorithm =
      name === 'vcek' || name === 'vlek' ? SIMULATED_VEK_ALGORITHM : { name: 'RSA-PSS', hash: 'SHA-384' }
    const { pkcs8, spki } = stored[name]
    return {
      privateKey: await crypto.subtle.importKey('pkcs8', new Uint8Array(pkcs8), algorithm, true, ['sign']),
      publicKey: await crypto.subtle.importKey('spki', new Uint8Array(spki), algorithm, true, ['verify']),
    }
  })
}

async function forEachKey<T>(make: (name: SimulatedKeyName) => Promise<T>): Promise<Record<SimulatedKeyName, T>> {
  const [ark, ask, asvk, vcek, vlek] = await Promise.all([
    make('ark'),
    make('ask'),
    make('asvk'),
    make('vcek'),
    make('vlek'),
  ])
  return { ark, ask, asvk, vcek, vlek }
}
