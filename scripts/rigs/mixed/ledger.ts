// The ledger of the mixed load, row by row: what each request has to have there, by what its client saw and what the
// upstream told. Pure.

import type { GatewayUsage, GatewayUsageRows } from '../../../src/contract/http/inference.ts'
import { EMBEDDING_MODEL } from '../gateway/embeddings-upstream.ts'
import { costOf, enduranceModel, prefixOf, type Row } from '../gateway/endurance.ts'
import { bodyOf, FAULT_STATUS, MIXED_KEYS, type Mixed, type SeenByClient } from './requests.ts'
import type { Behaviour, Told } from './upstream.ts'

export type MixedRequest = { readonly mixed: Mixed; readonly seen: SeenByClient; readonly told: Told }

/** A key's answers of GET /v1/usage, for the month and by model; null means refused. */
export type LedgerSums = { readonly month: GatewayUsage; readonly models: GatewayUsageRows } | null

export type MixedVerdict = {
  /** Compared with a row of their own, by id; or without one, as it must be. */
  readonly byId: number
  /** Their clients left before they knew an id: compared by key, outcome and counts. */
  readonly byCounts: number
  readonly withoutRow: number
  /** Each with what is wrong. */
  readonly problems: readonly string[]
}

type Expected = { readonly outcome: Row['outcome']; readonly source: string }
type Rule = {
  readonly status: number
  readonly whole: Expected
  readonly stream: Expected & { readonly status: number }
}

const failed = { outcome: 'failed', source: 'reported' } as const
const refusalRule = (status: number): Rule => ({ status, whole: failed, stream: { ...failed, status } })
const completed = (source: string): Rule => ({
  status: 200,
  whole: { outcome: 'completed', source },
  stream: { outcome: 'completed', source, status: 200 },
})
/** A stream has begun by then, and what it delivered is counted by estimate. */
const broken: Rule = { status: 502, whole: failed, stream: { outcome: 'failed', source: 'estimated', status: 200 } }

/** Response and ledger row for each behaviour of the upstream. */
const RULES = {
  good: completed('reported'),
  uncounted: completed('estimated'),
  implausible: completed('implausible'),
  'status 500': refusalRule(502),
  busy: refusalRule(429),
  refused: refusalRule(400),
  malformed: broken,
  cut: broken,
  silent: broken,
  left: {
    status: 499,
    whole: { outcome: 'aborted', source: 'estimated' },
    stream: { outcome: 'aborted', source: 'estimated', status: 200 },
  },
} as const satisfies Record<Behaviour, Rule>

type LedgerContext = { readonly keys: readonly string[]; readonly sums: readonly LedgerSums[] }

const problemsMax = 20

export function compareLedger(
  rows: readonly Row[],
  requests: readonly MixedRequest[],
  place: LedgerContext,
): MixedVerdict {
  const problems: string[] = []
  const left = new Map(rows.map(row => [row.id, row]))
  if (left.size !== rows.length) problems.push('an id stands twice in the ledger')
  const unknown: MixedRequest[] = []
  let [byId, withoutRow] = [0, 0]
  const note = (request: MixedRequest, what: string, row: Row | null) => {
    problems.push(`${what}: ${JSON.stringify({ ...request, told: { ...request.told, asked: undefined }, row })}`)
  }
  for (const request of requests) {
    const { seen, told } = request
    if (seen.id === null) {
      unknown.push(request)
      continue
    }
    const row = left.get(seen.id) ?? null
    left.delete(seen.id)
    if (told.times === 0) {
      withoutRow += 1
      if (row !== null) note(request, 'nobody was asked, and there is a row', row)
      else if (!isRefused(request)) note(request, 'it was not asked', null)
    } else {
      byId += 1
      const problem = row === null ? 'its row is missing' : problemOf(request, row, place)
      if (problem !== null) note(request, problem, row)
    }
  }
  const byCounts = matchUnknown(unknown, { left, place, note })
  for (const row of left.values()) problems.push(`a row of no request: ${JSON.stringify(row)}`)
  problems.push(...sumProblems(rows, place))
  return { byId, byCounts, withoutRow, problems: problems.slice(0, problemsMax) }
}

/** By its own fault, or by a limit or budget of its key. */
function isRefused({ mixed: { fault, keyAt }, seen: { status } }: MixedRequest): boolean {
  const isOverLimit = (status === 429 || status === 402) && isBounded(keyAt)
  if (fault !== null) return status === FAULT_STATUS[fault] || (fault !== 'no key' && isOverLimit)
  return isOverLimit
}

function isBounded(keyAt: number): boolean {
  const key = MIXED_KEYS[keyAt]
  const budgets = [key?.budgetTokens ?? null, key?.organizationBudgetTokens ?? null]
  return key?.requestsPerMinute !== null || budgets.some(budget => budget !== null && budget < 1e9)
}

/** A break may arrive together with the first event: then the stream never began. */
function expectedOf({ behaviour, kind }: Mixed, seen: SeenByClient): Expected & { readonly status: number } {
  const rule: Rule = RULES[behaviour]
  const isBegun = rule !== broken || seen.status === rule.stream.status
  return kind.stream && isBegun ? rule.stream : { ...rule.whole, status: rule.status }
}

/** Null if the row is what it must be. */
function problemOf({ mixed, seen, told }: MixedRequest, row: Row, { keys }: LedgerContext): string | null {
  const { kind } = mixed
  const expected = expectedOf(mixed, seen)
  const model = kind.api === 'embeddings' ? EMBEDDING_MODEL : enduranceModel
  if (seen.status !== null && seen.status !== expected.status) return `status ${seen.status}, not ${expected.status}`
  if (row.keyPrefix !== prefixOf(keys[mixed.keyAt] ?? '')) return 'another key'
  if (row.organizationId !== MIXED_KEYS[mixed.keyAt]?.organizationId) return 'another organization'
  if (row.model !== model || row.upstream !== 'scripted') return 'another model or upstream'
  if (row.costNanoUsd !== costOf(row)) return `a cost that is not ${costOf(row)}`
  if (row.outcome !== expected.outcome || row.source !== expected.source)
    return `not ${expected.outcome} ${expected.source}`
  if (told.times > 1 && mixed.behaviour !== 'cut') return 'it was asked more than once'
  if (seen.isWhole !== (row.outcome === 'completed')) return 'client and ledger do not agree whether it is whole'
  if (seen.isWhole && (seen.completion ?? row.completion) !== row.completion) return 'the client was told other tokens'
  if (seen.isWhole && (seen.prompt ?? row.prompt) !== row.prompt)
    return 'the client was told other tokens of the prompt'
  return countProblem({ mixed, told }, row)
}

const streamedMax = 600

function countProblem({ mixed, told }: Pick<MixedRequest, 'mixed' | 'told'>, row: Row): string | null {
  const { reported } = told
  if (mixed.behaviour === 'good') {
    const isSame = row.prompt === reported?.prompt && row.completion === reported.completion
    return isSame ? null : 'not what the upstream told'
  }
  if (row.source === 'reported') return row.prompt === 0 && row.completion === 0 ? null : 'a failure that is charged'
  const estimate = Math.ceil(bodyOf(mixed).length / 4)
  if (isTranslated(mixed) ? row.prompt < 1 || row.prompt > 2 * estimate : row.prompt !== estimate)
    return `prompt ${estimate}`
  const isSilent = mixed.behaviour === 'left' && !mixed.kind.stream
  const isLikely = isSilent ? row.completion === 0 : row.completion > 0 && row.completion <= streamedMax
  return isLikely ? null : 'an estimate that cannot be'
}

/** A translation has a size of its own. */
function isTranslated({ kind: { api } }: Mixed): boolean {
  return api === 'responses' || api === 'messages'
}

type Unmatched = {
  readonly left: Map<string, Row>
  readonly place: LedgerContext
  readonly note: (request: MixedRequest, what: string, row: Row | null) => void
}

/** Each request takes one fitting row: exact counts first, then by ascending largest count. */
function matchUnknown(requests: readonly MixedRequest[], { left, place, note }: Unmatched): number {
  let matched = 0
  const widthOf = ({ mixed }: MixedRequest) => (isTranslated(mixed) ? bodyOf(mixed).length : 0)
  for (const request of requests.toSorted((a, b) => widthOf(a) - widthOf(b))) {
    const row = left.values().find(candidate => problemOf(request, candidate, place) === null)
    if (row === undefined) {
      note(request, request.mixed.behaviour === 'left' ? 'its row is missing' : 'it has no response', null)
      continue
    }
    matched += 1
    left.delete(row.id)
  }
  return matched
}

/** Each key's answers are the sums of its rows, and no budget is passed. */
function sumProblems(rows: readonly Row[], { keys, sums }: LedgerContext): string[] {
  const problems: string[] = []
  const tokensOf = (some: readonly Row[]) => some.reduce((sum, { prompt, completion }) => sum + prompt + completion, 0)
  for (const [at, key] of keys.entries()) {
    const own = rows.filter(row => row.keyPrefix === prefixOf(key))
    const { organizationId, budgetTokens, organizationBudgetTokens } = MIXED_KEYS[at] ?? {}
    const shared = rows.filter(row => row.organizationId === organizationId)
    const budgets = [
      [tokensOf(own), budgetTokens],
      [tokensOf(shared), organizationBudgetTokens],
    ] as const
    for (const [used, budget] of budgets) {
      if (typeof budget === 'number' && used > budget)
        problems.push(`key ${at}: ${used} tokens of a budget of ${budget}`)
    }
    const told = sums[at]
    if (told == null) continue
    const byModel = Map.groupBy(own, row => row.model)
    if (told.models.rows.length !== byModel.size) problems.push(`key ${at} has used ${byModel.size} models`)
    for (const [name, some, sum] of [
      ['key', own, told.month.key],
      ['organization', shared, told.month.organization],
      ...told.models.rows.map(row => [`model ${row.model} of key`, byModel.get(row.model ?? '') ?? [], row] as const),
    ] as const) {
      const isSame = sum?.requests === some.length && sum.prompt_tokens + sum.completion_tokens === tokensOf(some)
      if (!isSame)
        problems.push(
          `${name} ${at} is told ${JSON.stringify(sum)}, and has ${some.length} rows, ${tokensOf(some)} tokens`,
        )
    }
  }
  return problems
}
