// A command at a terminal of its own (pty(7)), typed to as a person does. Effects: a process.

import { until } from './until.ts'

export type Typed = {
  readonly type: (text: string) => void
  /** Waits until this was printed after all that was waited for before. */
  readonly printed: (text: string, timeoutMs: number) => Promise<void>
  /** All of it so far, without control sequences. */
  readonly screen: () => string
  /** With all output read; 128 + signal number. */
  readonly exited: Promise<number>
  readonly kill: () => void
}

export const CTRL_C = '\x03'
export const CTRL_D = '\x04'

export function atTerminal(argv: readonly string[]): Typed {
  const decoder = new TextDecoder()
  const closed = Promise.withResolvers<void>()
  let output = ''
  let seen = 0
  const child = Bun.spawn([...argv], {
    terminal: {
      cols: 120,
      rows: 40,
      data: (_terminal, chunk) => {
        output += decoder.decode(chunk, { stream: true })
      },
      exit: () => closed.resolve(),
    },
  })
  let isOver = false
  const exited = Promise.all([child.exited, closed.promise]).then(([exitCode]) => {
    isOver = true
    return exitCode
  })
  const screen = () => output.replaceAll(/\x1b\[[0-9;]*[A-Za-z]/g, '').replaceAll('\r', '')
  return {
    type: text => void child.terminal?.write(text),
    printed: (text, timeoutMs) =>
      until(`${JSON.stringify(text)} is printed`, timeoutMs, () => {
        const at = screen().indexOf(text, seen)
        if (at !== -1) seen = at + text.length
        else if (isOver) throw new Error(`it ended with ${child.exitCode}: ${screen()}`)
        return at !== -1
      }),
    screen,
    exited,
    kill: () => child.kill('SIGKILL'),
  }
}
