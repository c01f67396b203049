// Mixed load for a while: all APIs, good and failing upstreams, clients that leave, keys at their limits and budgets;
// and then the ledger row by row, beside what clients saw and what the upstream says that it told. Effects: a gateway,
// an upstream, requests.

import { type EnduranceGateway, type State, silenceMs, startEnduranceGateway } from '../gateway/endurance.ts'
import { startScriptedUpstream } from '../gateway/scripted-upstream.ts'
import { until } from '../until.ts'
import { compareLedger, type LedgerSums, type MixedVerdict } from './ledger.ts'
import { FAULTS, KINDS, type Kind, MIXED_KEYS, type Mixed, type SeenByClient, send } from './requests.ts'
import { type Behaviour, createMixedUpstream } from './upstream.ts'

export type MixedPlan = { readonly ms: number; readonly note: (line: string) => void }

export type MixedOutcome = {
  readonly requests: number
  readonly seconds: number
  /** Responses by status; `left` where the client was gone before. */
  readonly statuses: Readonly<Record<string, number>>
  readonly rows: number
  readonly byOutcome: Readonly<Record<string, number>>
  readonly bySource: Readonly<Record<string, number>>
  readonly late: State
  readonly verdict: MixedVerdict
}

const clients = 24
/** Shares of all requests: most are good, and slow behaviours are rare. */
const BEHAVIOURS: readonly Behaviour[] = [
  ...Array<Behaviour>(24).fill('good'),
  ...Array<Behaviour>(5).fill('left'),
  'uncounted',
  'uncounted',
  'implausible',
  'status 500',
  'busy',
  'refused',
  'malformed',
  'cut',
]
/** One of so many falls silent. */
const silentOf = 1_201
/** One of so many is wrong in itself. */
const faultyOf = 29

export async function runMixedLoad({ ms, note }: MixedPlan): Promise<MixedOutcome> {
  const all: Mixed[] = []
  const upstream = createMixedUpstream(serial => all[serial]?.behaviour ?? 'good')
  await using scripted = startScriptedUpstream(upstream.answer)
  await using gateway = await startEnduranceGateway(scripted.port, MIXED_KEYS)
  const seen = new Map<number, SeenByClient>()
  const startedMs = performance.now()
  const endMs = startedMs + ms
  const client = async () => {
    while (performance.now() < endMs) {
      const mixed = drawn(all.length)
      all.push(mixed)
      const { asked } = upstream.told(mixed.serial)
      seen.set(mixed.serial, await send(gateway, mixed, asked.promise))
      if (all.length % 10_000 === 0)
        note(`${all.length} requests, ${Math.round((performance.now() - startedMs) / 1000)} s`)
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  await until('the upstream is free', 2 * silenceMs, () => scripted.busy() === 0)
  await until('nothing runs', 60_000, async () => (await gateway.state()).running === 0)
  const seconds = Math.round((performance.now() - startedMs) / 1000)
  const late = await gateway.state()
  const rows = await gateway.rows()
  const requests = all.map(mixed => ({
    mixed,
    seen: seen.get(mixed.serial) ?? neverSeen,
    told: upstream.told(mixed.serial),
  }))
  const verdict = compareLedger(rows, requests, { keys: gateway.keys, sums: await sumsOf(gateway) })
  return {
    requests: all.length,
    seconds,
    statuses: counted(requests, ({ seen: { status } }) => String(status ?? 'left')),
    rows: rows.length,
    byOutcome: counted(rows, row => row.outcome),
    bySource: counted(rows, row => row.source),
    late,
    verdict,
  }
}

const neverSeen: SeenByClient = { status: null, id: null, prompt: null, completion: null, isWhole: false }

/** Derives a request from its number by coprime steps, so that all kinds meet all behaviours and keys. */
function drawn(serial: number): Mixed {
  const kind = KINDS[serial % KINDS.length] ?? (KINDS[0] as Kind)
  const drawnBehaviour = BEHAVIOURS[(serial * 7) % BEHAVIOURS.length] ?? 'good'
  const wanted = serial % silentOf === silentOf - 1 ? 'silent' : drawnBehaviour
  const fault = serial % faultyOf === faultyOf - 1 ? (FAULTS[serial % FAULTS.length] ?? null) : null
  return {
    serial,
    kind,
    behaviour: fitting(wanted, kind),
    fault,
    keyAt: (serial * 5 + (serial >> 5)) % MIXED_KEYS.length,
  }
}

/** Some behaviours are of completions alone. */
function fitting(behaviour: Behaviour, { api }: Kind): Behaviour {
  const isForAll = ['good', 'status 500', 'busy', 'refused', 'malformed'].includes(behaviour)
  return api !== 'embeddings' || isForAll ? behaviour : 'good'
}

/** The gateway's own answers to each key about the running month. */
async function sumsOf({ url, keys }: EnduranceGateway): Promise<LedgerSums[]> {
  const sums: LedgerSums[] = []
  for (const key of keys) {
    const headers = { authorization: `Bearer ${key}` }
    const answers = await Promise.all(['', '?by=model'].map(query => fetch(`${url}/v1/usage${query}`, { headers })))
    const [month, models] = await Promise.all(answers.map(answer => answer.json()))
    // A key at its rate is not told either.
    const isTold = answers.every(answer => answer.status === 200)
    sums.push(isTold ? ({ month, models } as NonNullable<LedgerSums>) : null)
  }
  return sums
}

function counted<T>(all: readonly T[], nameOf: (item: T) => string): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const item of all) counts[nameOf(item)] = (counts[nameOf(item)] ?? 0) + 1
  return counts
}
