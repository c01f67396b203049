// Removes directories that others filled, with perhaps a million files or links to elsewhere. Effects: a child process,
// rm(1).
//
// rm(1) goes from directory to directory by descriptor (openat(2)), follows no link even if it is put there
// meanwhile, and stays on one file system. As a child process it does not block this thread.

import { run } from './command.ts'

/**
 * No effect if already removed. The next call removes what a timeout left. Faults: host.command_timeout,
 * host.command_failed.
 */
export async function removeForeignTree(path: string, timeoutMs: number): Promise<void> {
  await run(['rm', '--recursive', '--force', '--one-file-system', '--', path], { timeoutMs, outputBytesMax })
}

/** rm(1) complains once for each file that it cannot remove. */
const outputBytesMax = 65_536
