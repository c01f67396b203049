// The owner's private keys, from PEM files. Effects: reads the named file. Messages never contain text of the file.

import { createPrivateKey, type KeyObject } from 'node:crypto'
import { resultOr } from '../../base/result-or.ts'
import { readP384Key } from '../../linux/keys/p384-key.ts'
import { inputFault, KIB, readTextInput } from '../../terminal/input-file.ts'

const keyBytesMax = 64 * KIB
const makeOne = 'openssl ecparam -name secp384r1 -genkey -noout -out FILE makes one'

/** Reads a key. Throws InputFault if it is not a private key, has a passphrase, or is not on P-384. */
export async function readSigningKey(path: string, param: string): Promise<CryptoKeyPair> {
  const input = { path, param, bytesMax: keyBytesMax }
  const pem = readTextInput(input)
  if (/^-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED/m.test(pem)) {
    throw inputFault(input, 'the key is encrypted', 'decrypt it to a file: openssl pkey -in FILE -out FILE')
  }
  const key = resultOr<KeyObject, null>(() => createPrivateKey(pem), null)
  if (key === null) throw inputFault(input, 'no private key in PEM', `name a private key; ${makeOne}`)
  const curve = key.asymmetricKeyType === 'ec' ? key.asymmetricKeyDetails?.namedCurve : key.asymmetricKeyType
  if (curve !== 'secp384r1') {
    throw inputFault(input, `the key is not on P-384 but ${curve ?? 'of another kind'}`, `${makeOne}`)
  }
  return (await readP384Key(pem)).keys
}
