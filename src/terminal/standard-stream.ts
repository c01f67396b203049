// Standard output and standard error of the program, and whether a descriptor is a terminal. The runtime's own streams
// take 8 ms to load, more than most commands work: one text is written without them. Effects: writes to descriptors.

import { fstatSync, writeSync } from 'node:fs'
import { utf8 } from '../base/bytes.ts'
import { systemErrorCode } from '../base/fault.ts'
import { resultOr } from '../base/result-or.ts'
import type { Io } from './io.ts'

type Name = 'stdout' | 'stderr'

const FDS = { stdout: 1, stderr: 2 } as const satisfies Record<Name, number>

/** A longer text waits in a stream for its reader, so that the program goes on meanwhile. */
const atOnceBytesMax = 64 * 1024

/**
 * The first text goes to the descriptor, every later one to the runtime's stream: who writes often must not be held up
 * by a reader that is slow. Resolves when the text is written, and after `onError`.
 */
export function standardStream(name: Name, onError: (error: unknown) => void): Io['stdout'] {
  let isFirst = true
  let stream: NodeJS.WriteStream | null = null
  const opened = () => {
    if (stream === null) {
      stream = process[name]
      stream.on('error', onError)
    }
    return stream
  }
  return async text => {
    const bytes = typeof text === 'string' ? utf8(text) : text
    let written = 0
    if (isFirst && bytes.length <= atOnceBytesMax) {
      isFirst = false
      try {
        written = writeSync(FDS[name], bytes)
      } catch (error) {
        // A reader that takes nothing now has a pipe that does not wait.
        if (systemErrorCode(error) !== 'EAGAIN') return onError(error)
      }
    }
    isFirst = false
    if (written === bytes.length) return
    await new Promise<void>(resolve => {
      opened().write(bytes.subarray(written), error => {
        if (error) onError(error)
        resolve()
      })
    })
  }
}

/** Major number of the devices of memory, such as /dev/null (Linux, admin-guide/devices.txt). */
const memoryMajor = 1

/** Terminals are character devices. The code that queries a terminal is loaded only for a stream that may be one. */
export async function isTerminal(fd: number): Promise<boolean> {
  const found = resultOr(() => fstatSync(fd), null)
  if (found === null || !found.isCharacterDevice() || found.rdev >>> 8 === memoryMajor) return false
  return (await import('node:tty')).isatty(fd)
}
