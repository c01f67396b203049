// Removing directories whose content others made: perhaps a million files, or links to elsewhere. Effects: a child process, rm(1).
//
// rm(1) goes from directory to directory by descriptor (openat(2)) and follows no link, also when one is put there meanwhile. It works
// beside us, so that nobody waits for it, and stays on one file system.

import { run } from './command.ts'

/**
 * No effect if already removed. What is left when the time is over goes with the next call.
 * Faults: host.command_timeout, host.command_failed.
 */
export async function removeForeignTree(path: string, timeoutMs: number): Promise<void> {
  await run(['rm', '--recursive', '--force', '--one-file-system', '--', path], { timeoutMs, outputBytesMax })
}

/** rm(1) complains once for each file that it cannot remove. */
const outputBytesMax = 65_536
