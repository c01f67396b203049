// The text of the configuration file, read and written again by commands that change it. Effects: that file.

import { mkdirSync, realpathSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { resultOr } from '../base/result-or.ts'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { AdvisedFault, InputFault } from '../terminal/exit.ts'

const modeDefault = 0o644
const permissions = 0o777

/** Returns the text of the file; "" if there is none. */
export function readConfigText(path: string): string {
  return readTextOrNull(path) ?? ''
}

/**
 * Replaces `before` by `after`. A link stays a link, and the file keeps owner and mode. Faults: conflict if another
 * program changed the file since it was read; invalid_request if this user may not write it.
 */
export function writeConfigText(path: string, { before, after }: { readonly before: string; readonly after: string }) {
  if (readConfigText(path) !== before) {
    throw new AdvisedFault('conflict', `${path} changed while this command ran; nothing was written`, {
      remedy: 'run the command again',
    })
  }
  const target = resultOr(() => realpathSync(path), path)
  const present = statSync(target, { throwIfNoEntry: false })
  const kept =
    present === undefined
      ? { mode: modeDefault }
      : { mode: present.mode & permissions, owner: { uid: present.uid, gid: present.gid } }
  try {
    mkdirSync(dirname(target), { recursive: true, mode: 0o755 })
    writeFileAtomic(target, after, kept)
  } catch (error) {
    const cause = error instanceof Fault ? error.cause : error
    if (!['EACCES', 'EPERM'].includes(systemErrorCode(cause) ?? '')) throw error
    throw new InputFault(messageOf(error), { remedy: 'run the command as root', cause: error })
  }
}
