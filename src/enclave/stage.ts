// Boot stages on the serial console, which is the host's: fixed words only. Effects: writes to the console.

import * as fs from 'node:fs'

const console_ = '/dev/console'

/**
 * Writes one line, and ignores a failing console. Not written to standard output, where a library's output would
 * reach the host.
 */
export function showStage(stage: string): void {
  try {
    const fd = fs.openSync(console_, fs.constants.O_WRONLY | fs.constants.O_NOCTTY)
    try {
      fs.writeSync(fd, `strongroom: ${stage}\n`)
    } finally {
      fs.closeSync(fd)
    }
  } catch {
    // The log has it too.
  }
}
