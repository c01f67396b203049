// The options that say with what a backup is sealed and opened. Effects: reads the files that they name.

import { type Key, keyLines, type Seal } from '../../backup/seal.ts'
import { InputFault } from '../../terminal/exit.ts'
import { KIB, readTextInput } from '../../terminal/input-file.ts'

export type SealOptions = { recipient: string[]; recipientsFile?: string; passphraseFile?: string }
export type KeyOptions = { identityFile?: string; passphraseFile?: string }

const bytesMax = 64 * KIB
/** age's own advice is four or five random words. */
const passphraseCharsMin = 16

/** Returns the seal that the options name. Faults: InputFault. */
export function sealOf({ recipient, recipientsFile, passphraseFile }: SealOptions): Seal {
  const fromFile =
    recipientsFile === undefined
      ? []
      : keyLines(readTextInput({ path: recipientsFile, param: 'recipients-file', bytesMax }))
  const recipients = [...recipient, ...fromFile]
  if (passphraseFile !== undefined && recipient.length === 0 && recipientsFile === undefined)
    return { passphrase: passphraseOf(passphraseFile) }
  if (passphraseFile === undefined && recipients.length > 0) return { recipients }
  throw new InputFault('a backup holds every key of this appliance: say for whom it is sealed', {
    remedy:
      'give --recipient or --recipients-file (`strongroom backup-key` makes an identity and its recipient), or --passphrase-file',
  })
}

/** Returns the key that the options name. Faults: InputFault. */
export function keyOf({ identityFile, passphraseFile }: KeyOptions): Key {
  if (identityFile !== undefined && passphraseFile === undefined) {
    const identities = keyLines(readTextInput({ path: identityFile, param: 'identity-file', bytesMax }))
    return { identities }
  }
  if (identityFile === undefined && passphraseFile !== undefined) return { passphrase: passphraseOf(passphraseFile) }
  throw new InputFault('say what opens the backup: --identity-file or --passphrase-file', {
    remedy: 'give the one of the two that it was sealed for',
  })
}

function passphraseOf(path: string): string {
  const [line = ''] = readTextInput({ path, param: 'passphrase-file', bytesMax }).split('\n')
  const passphrase = line.trim()
  if (passphrase.length >= passphraseCharsMin) return passphrase
  throw new InputFault(`--passphrase-file ${path}: the first line has ${passphrase.length} characters`, {
    param: 'passphrase-file',
    remedy: `use at least ${passphraseCharsMin}, such as five random words: the file can be tried offline`,
  })
}
