// Boot stages on the serial console, which is the host's: fixed words of ours, and nothing else. Effects: writes to the console.

import * as fs from 'node:fs'

const console_ = '/dev/console'

/** One line. Standard output is not used for it: whatever a library prints must not reach the host. A console that fails stops nothing. */
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
