// Dumps of a fleet's directory, as `strongroom help fleet` has an operator make and restore them. Effects: a file of
// the server's user, statements to the database.

import { command, program } from './programs.ts'

/** A restore waits for locks of hosts, which may wait for one of its own: then it is repeated, as an operator would. */
const restoresMax = 10

/** `url`: of the role that owns the directory. */
export async function dumpDirectory(url: string, path: string): Promise<void> {
  await command([program('pg_dump'), '--schema=strongroom', `--file=${path}`, url])
}

export async function restoreDirectory(url: string, path: string): Promise<void> {
  const psql = '"$2" --quiet --single-transaction --set=ON_ERROR_STOP=1 "$3"'
  const line = `(echo 'DROP SCHEMA strongroom CASCADE;'; cat "$1") | ${psql}`
  for (let count = 1; ; count += 1) {
    try {
      await command(['sh', '-c', line, 'sh', path, program('psql'), url])
      return
    } catch (error) {
      if (count === restoresMax || !/deadlock detected|lock timeout/.test(String(error))) throw error
    }
  }
}
