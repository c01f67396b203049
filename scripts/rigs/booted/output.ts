// A command of the rig, run to its end with its output. Effects: a process.

export type Executed = { readonly exitCode: number; readonly stdout: string; readonly stderr: string }

/** Ended by SIGTERM after `timeoutMs`. */
export async function outputOf(argv: readonly string[], stdin: string, timeoutMs: number): Promise<Executed> {
  const child = Bun.spawn([...argv], { stdin: Buffer.from(stdin), stdout: 'pipe', stderr: 'pipe', timeout: timeoutMs })
  const [stdout, stderr, exitCode] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { exitCode, stdout, stderr }
}
