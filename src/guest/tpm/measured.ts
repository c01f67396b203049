// The agent's TPM measurements: facts of this boot that every program of the VM can read. Effects: reads two small
// files.

import { utf8 } from '../../base/bytes.ts'
import { readTextOrNull } from '../../linux/files.ts'
import type { GuestPaths } from '../paths.ts'
import type { Measured } from './event-log.codec.ts'

/** The command line without its LF, which names the image's root hash; then the image's name. */
export function measuredIn({ commandLine, imageFile }: Pick<GuestPaths, 'commandLine' | 'imageFile'>): Measured {
  return {
    commandLine: utf8((readTextOrNull(commandLine) ?? '').trimEnd()),
    image: utf8(readTextOrNull(imageFile) ?? ''),
  }
}
