// The process and its terminal as commands see them. Types only: commands print through Io, never by `process`.

export type Io = {
  /** Resolves when the text is written. Never rejects: when the reader has gone, the program ends. */
  readonly stdout: (text: string | Uint8Array) => Promise<void>
  readonly stderr: (text: string) => Promise<void>
  readonly stdoutIsTerminal: boolean
  readonly stderrIsTerminal: boolean
  /** A line that a person types after this prompt; null at the end of input. Absent without a terminal. */
  readonly ask?: (prompt: string) => Promise<string | null>
  readonly env: { readonly [name: string]: string | undefined }
  /** Calls `listener` once per signal instead of the signal ending the program. The returned function removes it. */
  readonly onSignal: (signal: 'SIGINT' | 'SIGTERM' | 'SIGHUP', listener: () => void) => () => void
}
