// What a command sees of the terminal it was started from. Types only, so that nothing below main touches `process` unasked.

export type Io = {
  /** Resolves when the text is on its way; never rejects, a reader that has gone ends the program. */
  readonly stdout: (text: string | Uint8Array) => Promise<void>
  readonly stderr: (text: string) => Promise<void>
  readonly stdoutIsTerminal: boolean
  readonly stderrIsTerminal: boolean
  readonly env: { readonly [name: string]: string | undefined }
  /** Calls `listener` once per signal instead of the signal ending the program. */
  readonly onSignal: (signal: 'SIGINT' | 'SIGTERM' | 'SIGHUP', listener: () => void) => void
}
