// Notices when statements of a running daemon meet a damaged database. Effects: wraps the statements of a connection.

import type { Database } from 'bun:sqlite'
import { messageOf } from '../base/fault.ts'
import { storageCodeOf } from '../base/storage-failure.ts'

const METHODS = ['get', 'all', 'run', 'values', 'raw', 'iterate'] as const

/**
 * Every statement that `sqlite` prepares from now on notes its first failure for damage. The returned function has the
 * message of the first such failure; null if none was met. Failures are thrown on as they are.
 */
export function noticeDamage(sqlite: Database): () => string | null {
  let damage: string | null = null
  const noticed = <Result>(work: () => Result): Result => {
    try {
      return work()
    } catch (error) {
      if (damage === null && storageCodeOf(error) === 'store.corrupt') damage = messageOf(error)
      throw error
    }
  }
  const prepare = sqlite.prepare.bind(sqlite)
  sqlite.prepare = ((...args: Parameters<Database['prepare']>) => {
    const statement = noticed(() => prepare(...args))
    for (const method of METHODS) {
      const own: unknown = Reflect.get(statement, method)
      if (typeof own !== 'function') continue
      Reflect.set(statement, method, (...values: unknown[]) => noticed(() => Reflect.apply(own, statement, values)))
    }
    return statement
  }) as Database['prepare']
  const run = sqlite.run.bind(sqlite)
  sqlite.run = ((...args: Parameters<Database['run']>) => noticed(() => run(...args))) as Database['run']
  return () => damage
}
