// Seals and opens backups with age (age-encryption.org/v1). Effects: randomness.

import { Decrypter, Encrypter, generateX25519Identity, identityToRecipient } from 'age-encryption'
import { Fault, messageOf } from '../base/fault.ts'

/** age takes a passphrase alone, or any number of recipients. */
export type Seal = { readonly passphrase: string } | { readonly recipients: readonly string[] }
export type Key = { readonly passphrase: string } | { readonly identities: readonly string[] }

/** No share: the operator names the recipients. */
const recipientsMax = 32

/** Encrypts a backup. Throws Fault invalid_request for an invalid recipient. */
export async function seal(plain: ReadableStream<Uint8Array>, by: Seal): Promise<ReadableStream<Uint8Array>> {
  const encrypter = new Encrypter()
  if ('passphrase' in by) encrypter.setPassphrase(by.passphrase)
  else {
    if (by.recipients.length === 0 || by.recipients.length > recipientsMax)
      throw new Fault('invalid_request', `a backup has 1 to ${recipientsMax} recipients`)
    for (const recipient of by.recipients) {
      try {
        encrypter.addRecipient(recipient)
      } catch (error) {
        throw new Fault('invalid_request', `no age recipient: ${recipient.slice(0, 80)}: ${messageOf(error)}`)
      }
    }
  }
  return await encrypter.encrypt(plain)
}

/** The stream fails where the file was changed or cut short. Fault invalid_request: another key, or no sealed file. */
export async function unseal(sealed: ReadableStream<Uint8Array>, by: Key): Promise<ReadableStream<Uint8Array>> {
  const decrypter = new Decrypter()
  try {
    if ('passphrase' in by) decrypter.addPassphrase(by.passphrase)
    else for (const identity of by.identities) decrypter.addIdentity(identity)
    return await decrypter.decrypt(sealed)
  } catch (error) {
    // The words of the library quote no key.
    throw new Fault('invalid_request', `the backup does not open: ${messageOf(error)}`)
  }
}

/** A new pair: the identity opens, the recipient seals. X25519, which every release of age supports. */
export async function newIdentity(): Promise<{ readonly identity: string; readonly recipient: string }> {
  const identity = await generateX25519Identity()
  return { identity, recipient: await identityToRecipient(identity) }
}

/** Lines of an age key or recipients file: comments and empty lines are left out. */
export function keyLines(text: string): string[] {
  return text
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '' && !line.startsWith('#'))
}
