// The query of GET /v1/usage. Pure.

import { Fault } from '../../base/fault.ts'
import { USAGE_GROUPS } from '../../contract/http/usage-groups.ts'
import { type UsageDays, usageDaysOf, usageGroupsOf } from '../../contract/http/usage-rows.ts'

export const USAGE_FORMATS = ['json', 'csv'] as const
/** The rows are those of one key. */
export const usageByDefault = 'model,day'
const PARAMETERS = ['from', 'to', 'by', 'format'] as const
/** Longest part of a client's own text that an error message repeats. */
const echoCharsMax = 64
type Parameter = (typeof PARAMETERS)[number]

export type UsageRowsRequest = {
  readonly days: UsageDays
  readonly by: ReadonlySet<(typeof USAGE_GROUPS)[number]>
  readonly format: (typeof USAGE_FORMATS)[number]
}

/**
 * Reads the query. Null if it requests the sums of the month. Defaults: the current month (UTC), by day and model, as
 * JSON. Throws Fault invalid_request.
 */
export function readUsageRequest({ url }: Pick<Request, 'url'>, today: string): UsageRowsRequest | null {
  // Not `new URL`: it throws for the URL of a request without a Host header.
  const [, query = ''] = /\?([^#]*)/.exec(url) ?? []
  const given = new Map<Parameter, string>()
  for (const [name, value] of new URLSearchParams(query)) {
    const known = PARAMETERS.find(kind => kind === name)
    if (known === undefined) throw unknownParameter(name.slice(0, echoCharsMax))
    if (given.has(known)) throw refusal(known, `Send ${known} once.`)
    given.set(known, value)
  }
  if (given.size === 0) return null
  const to = given.get('to') ?? today
  const formatName = given.get('format') ?? 'json'
  const format = USAGE_FORMATS.find(kind => kind === formatName)
  if (format === undefined) throw refusal('format', `The format is one of ${USAGE_FORMATS.join(', ')}.`)
  return {
    days: usageDaysOf({ from: given.get('from') ?? `${to.slice(0, 8)}01`, to }),
    by: usageGroupsOf(given.get('by') ?? usageByDefault, USAGE_GROUPS),
    format,
  }
}

function unknownParameter(name: string): Fault {
  return refusal(name, `Unknown parameter ${JSON.stringify(name)}; the parameters are ${PARAMETERS.join(', ')}.`)
}

function refusal(param: string, message: string): Fault {
  return new Fault('invalid_request', message, { param })
}
