// The database in the configuration, with the password and the authority from their files. Effects: reads files.

import { readFileSync, statSync } from 'node:fs'
import { hostname } from 'node:os'
import { Fault, messageOf } from '../base/fault.ts'
import { resultOr } from '../base/result-or.ts'
import { parseDatabaseUrl } from '../config/fleet/database-url.ts'
import type { Config } from '../config/schema.ts'
import type { PostgresTarget } from './driver.ts'

const fileBytesMax = 1_048_576

/** Returns the database; null if this host is not in a fleet. Faults: `config.file`, `config.invalid`. */
export function fleetTarget({ fleet }: Pick<Config, 'fleet'>): PostgresTarget | null {
  if (fleet.database === '') return null
  const parsed = parseDatabaseUrl(fleet.database)
  if (!parsed.ok) throw new Fault('config.invalid', `fleet.database ${parsed.problem}`, { param: 'fleet.database' })
  const password = passwordIn(fleet.password_file)
  const caPem = readNamed('fleet.ca_file', fleet.ca_file)
  if (caPem !== null && !caPem.includes('-----BEGIN CERTIFICATE-----')) {
    throw new Fault('config.file', `${fleet.ca_file} holds no PEM certificate`, { param: 'fleet.ca_file' })
  }
  return {
    ...parsed.address,
    password: password ?? parsed.address.password,
    caPem,
    applicationName: `strongroom ${fleetName({ fleet })}`,
  }
}

/** Returns this host's name in the fleet. Fault `config.invalid` if the system's host name is not a valid one. */
export function fleetName({ fleet }: Pick<Config, 'fleet'>): string {
  if (fleet.name !== '') return fleet.name
  const [label = ''] = hostname().toLowerCase().split('.')
  if (/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(label)) return label
  const message = `the host name ${JSON.stringify(hostname())} is no name for a host of the fleet: set fleet.name`
  throw new Fault('config.invalid', message, { param: 'fleet.name' })
}

/** Null if no file is named. While the file cannot be read, the last password counts. */
function passwordIn(path: string): (() => string | null) | null {
  const read = () => readNamed('fleet.password_file', path)?.replace(/\r?\n$/, '') ?? null
  let last = read()
  if (last === null) return null
  return () => {
    last = resultOr(read, last)
    return last
  }
}

function readNamed(field: string, path: string): string | null {
  if (path === '') return null
  try {
    // Check before opening, because opening a FIFO would block.
    if (!statSync(path).isFile()) throw new Error(`${path} is not a regular file`)
    if (statSync(path).size > fileBytesMax) throw new Error(`${path} is larger than ${fileBytesMax} bytes`)
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new Fault('config.file', `${field}: ${messageOf(error)}`, { param: field, cause: error })
  }
}
