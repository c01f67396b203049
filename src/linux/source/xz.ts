// Decodes xz (The .xz File Format 1.2.1) with the program xz(1), because Bun has no decoder. Effects:
// a process.

import { plainEnv } from '../command.ts'
import { SourceFailure } from './failure.ts'

/** The decoder needs 65 MiB for what `xz -9` writes. */
const memoryMiB = 128
const program = ['xz', '--decompress', '--format=xz', '--stdout', '--quiet', '--threads=1']

/** Yields the content. `unprivileged` is a prefix of the command line. SourceFailure. */
export async function* unxz(
  packed: AsyncIterable<Uint8Array>,
  unprivileged: readonly string[],
): AsyncGenerator<Uint8Array> {
  const PATH = process.env.PATH ?? plainEnv.PATH
  if (Bun.which('xz', { PATH }) === null) {
    throw new SourceFailure('source: xz is not installed here; install xz-utils, or send a tar.gz or tar.zst')
  }
  const child = Bun.spawn([...unprivileged, ...program, `--memlimit-decompress=${memoryMiB}MiB`], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'ignore',
    env: { ...plainEnv, PATH },
  })
  const feed = async () => {
    for await (const part of packed) {
      child.stdin.write(part)
      await child.stdin.flush()
    }
    await child.stdin.end()
  }
  // If the input cannot be read, the decoder would wait for more of it.
  const feeding = feed().catch(cause => {
    child.kill('SIGKILL')
    return cause
  })
  try {
    yield* child.stdout
    if ((await child.exited) !== 0) {
      const why = `damaged xz, or one that needs more than ${memoryMiB} MiB of memory`
      throw new SourceFailure(`source: ${why}; pack it again with \`xz -9\` at most`, { cause: await feeding })
    }
  } finally {
    child.kill('SIGKILL')
    await child.exited
  }
}
