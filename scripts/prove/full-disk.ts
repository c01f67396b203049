// A disk that is full, for a booted Debian whose files lie in memory: its file system is made small. Effects: mounts of
// the container's own.

import { readFileSync } from 'node:fs'
import type { BootedDebian } from '../rigs/booted/container.ts'

const leftBytes = 64 * 1_048_576

/** Until the returned function is called, 64 MiB are free for root and everybody. */
export function fillDisk({ root, scratch }: Pick<BootedDebian, 'root' | 'scratch'>): () => void {
  // The file system is mounted where nspawn is, the parent of the container's first process.
  const outer = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${root.split('/')[2]}/status`, 'utf8'))?.[1] ?? ''
  const run = (...argv: string[]): string => {
    const { exitCode, stdout, stderr } = Bun.spawnSync(['nsenter', `--target=${outer}`, '--mount', '--', ...argv])
    if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr}`)
    return stdout.toString()
  }
  const [sizeKib = '', usedKib = ''] =
    run('df', '--output=size,used', '-k', scratch).trim().split('\n').at(-1)?.trim().split(/\s+/) ?? []
  run('mount', '-o', `remount,size=${Number(usedKib) + leftBytes / 1024}k`, scratch)
  return () => void run('mount', '-o', `remount,size=${sizeKib}k`, scratch)
}
