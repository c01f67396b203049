// Statements that only one process of a host may send. Pure.

import { directoryAway } from './failures.ts'
import type { Postgres } from './postgres.ts'

/**
 * Until the fleet has taken this process for the host, it acts as without the database: otherwise a copy of the host's
 * disk would use the host's budgets and shares, and calls for the host would go to the copy.
 */
export function actingFor(
  postgres: Pick<Postgres, 'query' | 'view'>,
  isMember: () => boolean,
): Pick<Postgres, 'query' | 'view'> {
  return {
    query: async (...statement) => {
      if (!isMember()) throw directoryAway(notTaken())
      return await postgres.query(...statement)
    },
    view: () => {
      const view = postgres.view()
      return isMember() ? view : { ...view, isReachable: false }
    },
  }
}

export function notTaken(): Error {
  return new Error('the fleet has not taken this process for the host since its start')
}
