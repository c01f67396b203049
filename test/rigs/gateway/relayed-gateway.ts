// A gateway of several processes: this one decides, relays serve clients over plain HTTP on a free port. Keys and
// ledger are narrow fakes, everything else is the service's. Effects: processes, a port.

import { CALLER, chatBody, KEY, LIMITS } from '../../../scripts/rigs/gateway/server.ts'
import { SpentRecords } from '../../../scripts/rigs/gateway/spent-records.ts'
import { postTo } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { gatewaySettings } from '../../../src/appliance/inference.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { keptResponsesDefault } from '../../../src/contract/vm/kept-defaults.ts'
import type { TraceSpan } from '../../../src/contract/vm/span.ts'
import type { GatewaySettings } from '../../../src/contract/vm/workload.ts'
import type { ServedTls } from '../../../src/http/serve.ts'
import { drawReceiptKeys, type ReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { createInferenceService, type InferenceService } from '../../../src/inference/service.ts'
import type { Caller } from '../../../src/inference/types.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'
import { openStore } from '../../../src/store/db.ts'
import { nonceStore } from '../../../src/store/ledger/nonce.query.ts'

export type RelayedGateway = AsyncDisposable & {
  readonly url: string
  readonly service: InferenceService
  readonly keys: ReceiptKeys
  readonly records: readonly UsageRecord[]
  readonly spans: readonly TraceSpan[]
  readonly lines: readonly string[]
  /** Processes of the relays. */
  readonly pids: () => readonly number[]
  readonly counts: () => { readonly running: number; readonly restarts: number }
  readonly drain: () => void
  readonly stop: (isGraceful: boolean) => Promise<void>
  readonly post: (path: string, body: unknown, init?: RequestInit) => Promise<Response>
  readonly chat: (body?: Record<string, unknown>, init?: RequestInit) => Promise<Response>
}

export type RelayedOptions = {
  readonly processes?: number
  readonly settings?: Partial<GatewaySettings>
  readonly caller?: Partial<Caller>
  readonly tls?: ServedTls
  readonly guestName?: string
}

export async function startRelayedGateway(
  upstreams: readonly UpstreamTarget[],
  { processes = 2, settings = {}, caller = {}, tls, guestName = 'guest.test' }: RelayedOptions = {},
): Promise<RelayedGateway> {
  const { padsStreams, ...limits } = LIMITS
  const [records, spans, lines]: [UsageRecord[], TraceSpan[], string[]] = [[], [], []]
  const spent = new SpentRecords()
  const keys = drawReceiptKeys(systemRandom)
  const store = openStore(':memory:')
  const service = createInferenceService({
    settings: {
      ...gatewaySettings(defaultConfig()),
      keptResponses: keptResponsesDefault,
      ...limits,
      padStreams: padsStreams ? 'on' : 'off',
      processes,
      ...settings,
    },
    upstreams,
    inside: new Set(),
    authenticate: headers => {
      if (headers.get('authorization') !== `Bearer ${KEY}`) {
        throw new Fault('unauthenticated', 'The API key is missing or invalid.')
      }
      return { ...CALLER, ...caller }
    },
    offerSpan: span => void spans.push(span),
    metering: {
      record: record => {
        records.push(record)
        spent.add(record)
      },
      counts: () => ({ written: records.length, lost: 0, waiting: 0 }),
    },
    spent,
    cost: () => () => 7n,
    nonces: nonceStore(store.ledger),
    mayDelete: null,
    workloads: {
      describe: () => {
        throw new Fault('attestation_unavailable', 'There is none here.')
      },
    },
    keys,
    tlsSpkiDigest: () => new Uint8Array(32),
    configurationDigest: new Uint8Array(32),
    workload: null,
    openEvidence: () => Promise.resolve({ kind: 'unavailable', reason: 'there is none here' }),
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: 'debug', sink: line => void lines.push(line), nowMs: Date.now }),
  })
  const server = await service.listen({ listen: { hostname: '127.0.0.1', port: 0 }, tls: tls ?? null, guestName })
  const url = `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${server.port}`
  const relays = () => server.relays?.() ?? { pids: [], running: 0, restarts: 0 }
  const post: RelayedGateway['post'] = (path, body, init) => postTo(url + path, KEY, body, init)
  let isStopped = false
  const stop = async (isGraceful: boolean) => {
    isStopped = true
    await server.stop(isGraceful)
    service.close()
    store.close()
  }
  return {
    url,
    service,
    keys,
    records,
    spans,
    lines,
    post,
    stop,
    drain: server.drain,
    pids: () => relays().pids,
    counts: relays,
    chat: (body = {}, init = {}) => post('/v1/chat/completions', chatBody(body), init),
    [Symbol.asyncDispose]: async () => {
      if (!isStopped) await stop(false)
    },
  }
}
