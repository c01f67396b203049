// A gateway in its own process for proofs over many requests, and its ledger row by row. Effects: a process, a
// directory.

import { Database } from 'bun:sqlite'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { PublicKeys } from '../../../src/attest/receipt/public-keys.ts'
import type { UsageOutcome } from '../../../src/store/directory/usage/usage.table.ts'
import { EMBEDDING_MODEL } from './embeddings-upstream.ts'

export const enduranceModel = 'tiny'
/** Nano-dollars of a token of the prompt, and of the completion. */
export const PRICE = { prompt: 150, completion: 600 } as const
/** After that an upstream has failed: longer than a busy machine holds up one that has not. */
export const silenceMs = 15_000

/** Bounds are those of the configuration where null. An organization is made by its first key. */
export type EnduranceKey = {
  readonly organizationId: string
  readonly organizationBudgetTokens: number | null
  readonly requestsPerMinute: number | null
  readonly budgetTokens: number | null
}

/** `flush`: writes the ledger. `state`: collects garbage, and says what is left. */
export type Order = 'flush' | 'state'
export type Ready = { readonly url: string; readonly keys: readonly string[]; readonly publicKeys: PublicKeys }

export type State = {
  readonly running: number
  /** Keys with budgets that something is reserved of. */
  readonly reserved: number
  readonly upstreamRunning: number
  readonly waiting: number
  /** Rows of the ledger. */
  readonly lost: number
  readonly heapBytes: number
  readonly objects: number
  readonly residentBytes: number
  readonly descriptors: number
}

export type Row = {
  readonly id: string
  readonly keyPrefix: string
  readonly organizationId: string
  readonly model: string
  readonly upstream: string
  readonly prompt: number
  readonly completion: number
  readonly costNanoUsd: number
  readonly outcome: UsageOutcome
  readonly source: string
}

export type EnduranceGateway = AsyncDisposable & {
  readonly url: string
  readonly pid: number
  readonly publicKeys: () => Promise<PublicKeys>
  /** In the order in which they were asked for. */
  readonly keys: readonly string[]
  readonly state: () => Promise<State>
  /** The whole ledger, in the order of its ids. */
  readonly rows: () => Promise<Row[]>
}

export function enduranceConfig(port: number): string {
  return `
[inference]
key_requests_per_minute = 1000000
key_tokens_per_minute = 1000000000
key_concurrency_max = 4096
first_byte_timeout_ms = ${silenceMs}
idle_timeout_ms = ${silenceMs}
eject_failures = 1000
[[inference.upstreams]]
name = "scripted"
url = "http://127.0.0.1:${port}/v1"
models = ["${enduranceModel}", "${EMBEDDING_MODEL}"]
embedding_models = ["${EMBEDDING_MODEL}"]
concurrency_max = 4096
${[enduranceModel, EMBEDDING_MODEL].map(priceTable).join('\n')}
`
}

/** Nano-dollars a token are thousandths of dollars a million. */
function priceTable(model: string): string {
  const usd = (nano: number) => (nano / 1_000).toFixed(3)
  return `[[inference.prices]]
model = "${model}"
prompt_usd_per_million = "${usd(PRICE.prompt)}"
completion_usd_per_million = "${usd(PRICE.completion)}"`
}

const startMs = 20_000
const answerMs = 60_000

export async function startEnduranceGateway(
  upstreamPort: number,
  keys: readonly EnduranceKey[],
): Promise<EnduranceGateway> {
  const dir = mkdtempSync(join(tmpdir(), 'srt-endurance-'))
  let next = Promise.withResolvers<unknown>()
  const program = join(import.meta.dir, 'endurance-program.ts')
  const child = Bun.spawn([process.execPath, program, dir, String(upstreamPort), JSON.stringify(keys)], {
    stdin: 'ignore',
    stdout: 'inherit',
    stderr: 'inherit',
    ipc: message => next.resolve(message),
    onExit: () => next.reject(new Error('the gateway has ended')),
  })
  const taken = async <Answer>(timeoutMs: number): Promise<Answer> => {
    const timer = setTimeout(() => next.reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
    try {
      return (await next.promise) as Answer
    } finally {
      clearTimeout(timer)
    }
  }
  const ask = <Answer>(order: Order): Promise<Answer> => {
    next = Promise.withResolvers()
    child.send(order)
    return taken<Answer>(answerMs)
  }
  const { url, keys: minted, publicKeys } = await taken<Ready>(startMs)
  return {
    url,
    pid: child.pid,
    keys: minted,
    publicKeys: async () => publicKeys,
    state: () => ask<State>('state'),
    rows: async () => {
      await ask('flush')
      return ledgerOf(join(dir, 'strongroom.db'))
    },
    [Symbol.asyncDispose]: async () => {
      next.promise.catch(() => {})
      child.kill('SIGKILL')
      await child.exited
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

function ledgerOf(file: string): Row[] {
  const db = new Database(file, { readonly: true })
  try {
    return db
      .query<Row, []>(
        `SELECT id, key_prefix AS keyPrefix, organization_id AS organizationId, model, upstream, prompt_tokens AS prompt,
           completion_tokens AS completion, cost_nano_usd AS costNanoUsd, outcome, tokens_source AS source FROM usage ORDER BY id`,
      )
      .all()
  } finally {
    db.close()
  }
}

/** The public part of a key. */
export function prefixOf(key: string): string {
  return key.split('_')[1] ?? ''
}

export function costOf({ prompt, completion }: Pick<Row, 'prompt' | 'completion'>): number {
  return prompt * PRICE.prompt + completion * PRICE.completion
}
