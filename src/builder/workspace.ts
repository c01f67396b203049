// Directories of a build on the scratch disk, each writable by one user. Effects: files, cp(1) and chown(1).

import * as fs from 'node:fs'
import { run } from '../linux/command.ts'
import { removeForeignTree } from '../linux/tree.ts'

const copyTimeoutMs = 10 * 60_000
const outputBytesMax = 65_536

/** Creates an empty directory for this user only. */
export function makeDir(path: string, uid: number): string {
  fs.mkdirSync(path, { mode: 0o700 })
  fs.chownSync(path, uid, uid)
  return path
}

/** Copies files for this user, keeping times and modes. Follows no link. */
export async function copyFor(uid: number, from: string, to: string): Promise<string> {
  await run(['cp', '--archive', '--no-target-directory', '--', from, to], { timeoutMs: copyTimeoutMs, outputBytesMax })
  await giveTo(uid, to)
  return to
}

export async function giveTo(uid: number, path: string): Promise<void> {
  const argv = ['chown', '--recursive', '--no-dereference', '-P', `${uid}:${uid}`, '--', path]
  await run(argv, { timeoutMs: copyTimeoutMs, outputBytesMax })
}

/** Makes files readable and directories searchable for every user, because archives may not. Follows no link. */
export async function openToAll(path: string): Promise<void> {
  await run(['chmod', '--recursive', 'a+rX', '--', path], { timeoutMs: copyTimeoutMs, outputBytesMax })
}

export async function remove(path: string): Promise<void> {
  await removeForeignTree(path, copyTimeoutMs)
}
