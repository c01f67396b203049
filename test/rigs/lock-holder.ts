// Another program on the host that holds the database's write lock, as a backup or a look-up by hand may. Effects: a
// process, which ends with its holder.

import { present } from '../../src/base/assert.ts'

export type LockHolder = {
  /** Returns once the lock is free and the process has ended. */
  readonly release: () => Promise<void>
  readonly [Symbol.asyncDispose]: () => Promise<void>
}

/** Resolves once the lock of the database at `path` is held. */
export async function holdLock(path: string): Promise<LockHolder> {
  const child = Bun.spawn([process.execPath, '-e', program, path], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const release = async () => {
    child.stdin.end()
    await child.exited
  }
  const { value } = await child.stdout.getReader().read()
  if (new TextDecoder().decode(present(value, 'the holder says when it holds the lock')) !== 'held\n') {
    await release()
    throw new Error('the lock was not taken')
  }
  return { release, [Symbol.asyncDispose]: release }
}

const goesMax = 3

/** The least time that `work` takes: a busy machine adds to any one go. A first go below the bound is enough. */
export async function leastMs(boundMs: number, work: () => unknown): Promise<number> {
  let least = Number.POSITIVE_INFINITY
  for (let go = 0; go < goesMax && least >= boundMs; go += 1) {
    const startedMs = performance.now()
    await work()
    least = Math.min(least, performance.now() - startedMs)
  }
  return least
}

const program = `
  const { Database } = require('bun:sqlite')
  const database = new Database(process.argv[1])
  database.run('PRAGMA busy_timeout = 10000')
  database.run('BEGIN IMMEDIATE')
  process.stdout.write('held\\n')
  for await (const _ of process.stdin);
  database.run('ROLLBACK')
  database.close()
`
