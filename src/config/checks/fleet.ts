// Contradictions in the table `fleet`. Pure.

import { isLocalDatabase, parseDatabaseUrl } from '../fleet/database-url.ts'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

export function fleetProblems({ fleet }: Pick<Config, 'fleet'>): CrossProblem[] {
  const { database, ca_file: caFile, password_file: passwordFile } = fleet
  if (database === '') {
    return [
      ...when(passwordFile !== '', { field: 'fleet.password_file', message: 'needs database too' }),
      ...when(caFile !== '', { field: 'fleet.ca_file', message: 'needs database too' }),
    ]
  }
  const field = 'fleet.database'
  const parsed = parseDatabaseUrl(database)
  if (!parsed.ok) return [{ field, message: parsed.problem }]
  const { address } = parsed
  const isSocket = address.host.startsWith('/')
  return [
    ...when(address.password !== null, { field, message: 'holds a password; put it into fleet.password_file' }),
    ...when(caFile === '' && !isLocalDatabase(address), {
      field: 'fleet.ca_file',
      message: `is needed: ${address.host} is another machine, and without TLS anybody on the way could read and change the directory`,
    }),
    ...when(caFile !== '' && isSocket, {
      field: 'fleet.ca_file',
      message: 'must be "": PostgreSQL has no TLS on a unix socket',
    }),
  ]
}

function when(wrong: boolean, problem: CrossProblem): CrossProblem[] {
  return wrong ? [problem] : []
}
