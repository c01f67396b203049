// strongroom key new, gateway key new: a client draws its own key, offline. Effects: randomness,
// one new file.

import { systemRandom } from '../base/ids.ts'
import { type KeyTag, registrationLine } from '../contract/admin/key-registration.ts'
import { KEY_FORMATS } from '../http/bearer.ts'
import { writeNewSecret } from '../terminal/output-file.ts'
import { fields } from '../terminal/render.ts'
import type { Command } from './operator-run.ts'

const KINDS = {
  ca: { what: 'an API key for services A and C', command: 'strongroom key' },
  gw: { what: 'a key of the inference gateway', command: 'strongroom gateway key' },
} as const satisfies Record<KeyTag, unknown>

export function addNewKey(key: Command, tag: KeyTag): void {
  const { what, command } = KINDS[tag]
  key
    .command('new')
    .description(`for clients: make ${what} here, offline; the operator registers only its digest`)
    .option('--key-file <file>', 'a new file for the key, which only you can read; then the key is not printed')
    .examples(`${command} new --key-file key.txt`, `${command} new`)
    .runs(async (run, { keyFile }: { keyFile?: string }) => {
      const minted = KEY_FORMATS[tag].mint(systemRandom)
      const registration = registrationLine(tag, minted)
      const document = { prefix: minted.prefix, registration }
      if (keyFile === undefined) {
        const both = fields(run.paint, [
          ['key', minted.key],
          ['registration', registration],
        ])
        await run.result({ key: minted.key, ...document }, both)
        await run.hint('Keep the key to yourself. Nothing has stored it, and it cannot be shown again.')
      } else {
        writeNewSecret(keyFile, 'key-file', `${minted.key}\n`)
        await run.result({ ...document, key_file: keyFile }, `${registration}\n`)
        await run.hint(`The key is in ${keyFile}. Keep it to yourself.`)
      }
      await run.hint(
        `Give the operator the registration line only, for: ${command} add ORG ${tag}_${minted.prefix}_sha256_…`,
      )
    })
}
