// Checks of the console's names. Pure.

import { isIP } from 'node:net'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

/** RFC 1123 2.1, without a wildcard: a browser requests one name. */
const DNS_NAME = /^(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

export function consoleProblems({ console: { names } }: Config): CrossProblem[] {
  return names.flatMap((name, index) =>
    isIP(name) !== 0 || DNS_NAME.test(name)
      ? []
      : [
          {
            field: `console.names.${index}`,
            message: `${JSON.stringify(name)} is not allowed; allowed: a DNS name in lowercase, or an IP address without brackets`,
          },
        ],
  )
}
