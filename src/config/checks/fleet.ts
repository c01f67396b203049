// Contradictions in the table `fleet`. Pure.

import { isLocalDatabase, parseDatabaseUrl } from '../fleet/database-url.ts'
import { LISTENERS, listenOverlap, parseListen } from '../listen.ts'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

export function fleetProblems({ fleet, listen }: Pick<Config, 'fleet' | 'listen'>): CrossProblem[] {
  return [...databaseProblems(fleet), ...peerProblems(fleet, listen)]
}

function databaseProblems(fleet: Config['fleet']): CrossProblem[] {
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

function peerProblems(fleet: Config['fleet'], listen: Config['listen']): CrossProblem[] {
  const { database, peer_listen: own, peer_address: told } = fleet
  const field = 'fleet.peer_listen'
  if (own === '') return when(told !== '', { field: 'fleet.peer_address', message: 'needs peer_listen too' })
  if (database === '') return [{ field, message: 'needs database too' }]
  const address = parseListen(own)
  if (address === null) return [{ field, message: `${JSON.stringify(own)} is no address with a port` }]
  const taken = LISTENERS.find(name => {
    const other = parseListen(listen[name])
    return other !== null && listenOverlap(address, other)
  })
  const isOfAll = address.hostname === '0.0.0.0' || new URL(`http://${hostPart(own)}`).hostname === '[::]'
  return [
    ...when(taken !== undefined, { field, message: `${own} is taken by listen.${taken}; choose another port` }),
    ...when(told === '' && isOfAll, {
      field: 'fleet.peer_address',
      message: `is needed: ${own} does not say by which address other hosts reach this one`,
    }),
  ]
}

function hostPart(address: string): string {
  return address.slice(0, address.lastIndexOf(':'))
}

function when(wrong: boolean, problem: CrossProblem): CrossProblem[] {
  return wrong ? [problem] : []
}
