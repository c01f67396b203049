// A gateway under test in an enclave. Settings of tests go into workload.json and the control snapshot; results come
// from the host's side: usage from its books, log and metrics over the channel. Effects: a host with one gateway VM;
// the next VM is started ahead.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { PublicKeys } from '../../../src/attest/receipt/public-keys.ts'
import { fromBase64Url } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import type { EnclaveReport } from '../../../src/contract/vm/enclave-responses.ts'
import { keptResponsesDefault } from '../../../src/contract/vm/kept-defaults.ts'
import type { GatewaySettings, WorkloadUpstream } from '../../../src/contract/vm/workload.ts'
import type { GatewayVmSession } from '../../../src/enclave-host/session.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { usageRecordOf } from '../../../src/inference/metering/vm-usage-ledger.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'
import { type NewGatewayKey, revokeGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { sumUsage, type UsageSum } from '../../../src/store/directory/usage/usage.query.ts'
import { setReceiptKey } from '../../../src/store/ledger/gateway-vm.query.ts'
import { newNonce } from '../gateway/attestation.ts'
import { type StoredGateway, samplesOf } from '../gateway/test-gateway.ts'
import { until } from '../until.ts'
import { EnclaveBench } from './enclave.ts'
import { EnclaveMachine } from './machine.ts'

export type EnclaveGatewayParts = {
  readonly upstreams: readonly UpstreamTarget[]
  readonly settings: Partial<GatewaySettings>
  /** A key that is to be there at once, as `bench.addKey` takes it. */
  readonly key?: Partial<NewGatewayKey>
}

/** Where the authority is whose certificates this process trusts: enclave-suite.ts. */
const authorityDir = process.env.STRONGROOM_TEST_AUTHORITY ?? ''

/** Set by enclave-suite.ts: how many processes serve the clients of each gateway. */
const { STRONGROOM_TEST_PROCESSES: processes } = process.env
const testProcesses = processes === undefined ? {} : { processes: Number(processes) }

/** A process needs half a second until it asks for its workload; so the next one is started while a test runs. */
let spare: EnclaveMachine | null = null

function takeMachine(): EnclaveMachine {
  const taken = spare ?? new EnclaveMachine()
  spare = new EnclaveMachine()
  return taken
}

export async function startEnclaveGateway(parts: EnclaveGatewayParts): Promise<StoredGateway> {
  if (authorityDir === '')
    throw new Error('no authority: start tests against the enclave by test/rigs/enclave/suite.ts')
  const machine = takeMachine()
  const bench = await EnclaveBench.start({
    authorityDir,
    newMachine: () => machine,
    gateway: { keptResponses: keptResponsesDefault, ...parts.settings, ...testProcesses },
    upstreams: parts.upstreams.map(workloadUpstream),
    upstreamKeys: Object.fromEntries(parts.upstreams.flatMap(({ name, key }) => (key === null ? [] : [[name, key]]))),
  })
  const { db } = bench.store.directory
  insertOrganization(db, { id: 'o2', slug: 'globex', nowMs: 1 })
  if (parts.key !== undefined) bench.addKey(parts.key)
  const heard: CapturedBytes = { 'from-guest': [], 'to-guest': [] }
  machine.watch((direction, bytes) => void heard[direction].push(bytes))
  const { vmId, session } = await bench.begin()
  const isReady = () => session.status?.state === 'ready' && session.status.revision > 0
  await until('the gateway is ready', 60_000, isReady).catch((error: Error) => {
    error.message += `\n${JSON.stringify({ status: session.status, log: session.log(0).slice(-10) })}\n${machine.output()}`
    throw error
  })
  setReceiptKey(bench.store.ledger.db, vmId, session.status?.receiptKey ?? '')
  const models = [...parts.upstreams.flatMap(upstream => upstream.models), bench.workload.worker?.model ?? '']
  return new EnclaveGateway({ bench, machine, vmId, session, heard, models })
}

/** Every byte that went over the channel. */
type CapturedBytes = Record<'from-guest' | 'to-guest', Uint8Array[]>

type Parts = {
  readonly bench: EnclaveBench
  readonly machine: EnclaveMachine
  readonly vmId: string
  readonly session: GatewayVmSession
  readonly heard: CapturedBytes
  readonly models: readonly string[]
}

const waitMs = 60_000

class EnclaveGateway implements StoredGateway {
  readonly url: string
  readonly models: readonly string[]
  readonly #parts: Parts
  readonly #lines: string[] = []
  #logFrom = 0
  #publicKeys: Promise<PublicKeys> | null = null

  constructor(parts: Parts) {
    this.#parts = parts
    this.url = parts.bench.url(parts.vmId)
    this.models = [...new Set(parts.models)]
  }

  get pid(): number {
    return this.#parts.machine.pid
  }

  /** All that the gateway has recorded by now is in the books by then. */
  async records(): Promise<readonly UsageRecord[]> {
    const { bench } = this.#parts
    const samples = samplesOf(await this.metrics())
    const of = (name: string) => samples.find(sample => sample.name === name)?.value ?? Number.NaN
    const recorded = of('strongroom_usage_records_total') + of('strongroom_usage_records_waiting')
    await until(`${recorded} rows are booked`, waitMs, () => bench.rows.length >= recorded)
    return bench.rows.map(usageRecordOf)
  }

  async log(): Promise<readonly string[]> {
    for (;;) {
      const { log } = await this.#report({ logFrom: this.#logFrom, metricsFrom: Number.MAX_SAFE_INTEGER })
      // Another call may have been faster.
      for (const { seq, line } of log) if (seq >= this.#logFrom) this.#lines.push(line)
      this.#logFrom = Math.max(this.#logFrom, (log.at(-1)?.seq ?? -1) + 1)
      if (log.length === 0) return this.#lines
    }
  }

  /** Taken anew where the host has asked for its own in between. */
  async metrics(): Promise<string> {
    let text = ''
    await until('the metrics are whole', waitMs, async () => {
      text = await this.#readMetrics()
      return text.split('\n').every(line => /^(?:# .*|\w+(?:\{.*\})? \S+)?$/.test(line))
    })
    return text
  }

  async #readMetrics(): Promise<string> {
    const logFrom = Number.MAX_SAFE_INTEGER
    for (let text = ''; ; ) {
      const { metrics, metricsChars } = await this.#report({ logFrom, metricsFrom: text.length })
      text += metrics
      if (metrics === '' || text.length >= metricsChars) return text
    }
  }

  /** As a relying party finds them in its receipts. Asked for once. */
  publicKeys(): Promise<PublicKeys> {
    this.#publicKeys ??= this.#askPublicKeys()
    return this.#publicKeys
  }

  async #askPublicKeys(): Promise<PublicKeys> {
    const response = await fetch(`${this.url}/attestation?nonce=${newNonce()}`)
    const document = (await response.json()) as { receipts: { receipt: { keys: Record<keyof PublicKeys, string> } }[] }
    const keys = document.receipts[0]?.receipt.keys
    const bytes = (name: keyof PublicKeys) => fromBase64Url(keys?.[name] ?? '') ?? new Uint8Array(0)
    return {
      ed25519: bytes('ed25519'),
      mldsa65: bytes('mldsa65'),
      x25519: bytes('x25519'),
      mlkem768: bytes('mlkem768'),
    }
  }

  async addKey(changes: Partial<NewGatewayKey> = {}): Promise<string> {
    const key = this.#parts.bench.addKey({ requestsPerMinute: null, concurrencyMax: null, ...changes })
    await this.#keysAreThere()
    return key
  }

  async revokeKey(key: string): Promise<void> {
    const [, prefix = ''] = key.split('_')
    revokeGatewayKey(this.#parts.bench.store.directory.db, { prefix, nowMs: systemClock.nowMs() })
    await this.#keysAreThere()
  }

  async usage(): Promise<UsageSum> {
    await this.records()
    const period = { organizationId: 'o1', startMs: 0, endMs: Number.MAX_SAFE_INTEGER }
    return sumUsage(this.#parts.bench.store.directory.db, period)
  }

  async traces(): Promise<Map<string, Uint8Array | string>> {
    const { bench, heard, session } = this.#parts
    const text = (direction: keyof CapturedBytes) => Buffer.concat(heard[direction]).toString()
    return new Map<string, Uint8Array | string>([
      ...readdirSync(bench.dir, { withFileTypes: true })
        .filter(dirent => dirent.isFile())
        .map(({ name }) => [name, readFileSync(join(bench.dir, name))] as const),
      ['log', (await this.log()).join('\n')],
      ['log of the host', bench.log.join('\n')],
      ['log as the host keeps it', JSON.stringify(session.log(0))],
      ['metrics', await this.metrics()],
      ['metrics as the host keeps them', session.metrics],
      ['what the VM said', text('from-guest')],
      ['what the VM was told', `${text('to-guest')}\n${piecesIn(text('to-guest'))}`],
    ])
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.bench[Symbol.asyncDispose]()
  }

  async #keysAreThere(): Promise<void> {
    const { bench, session } = this.#parts
    session.pushControl()
    await until('the keys are in force', waitMs, () => session.status?.revision === bench.control.current().revision)
  }

  #report(asked: { logFrom: number; metricsFrom: number }): Promise<EnclaveReport> {
    const { bench, vmId } = this.#parts
    return bench.engine.report(vmId, asked, waitMs)
  }
}

/** The documents that were handed over, without their base64. */
function piecesIn(lines: string): string {
  return [...lines.matchAll(/"bytes":"([^"]*)"/g)]
    .map(([, text = '']) => Buffer.from(text, 'base64').toString())
    .join('')
}

function workloadUpstream({
  unixSocket,
  key,
  models,
  embeddingModels,
  content,
  attestation,
  attestedKey,
  ...target
}: UpstreamTarget): WorkloadUpstream {
  if (attestation !== undefined || attestedKey !== undefined) throw new Error('evidence of upstreams: needsHost')
  if (unixSocket !== null) throw new Error('an upstream of a gateway VM has no UNIX socket: needsHost')
  const marked = embeddingModels.length === 0 ? {} : { embeddingModels: [...embeddingModels] }
  return { ...target, models: [...models], ...marked, content: [...content], hasKey: key !== null }
}
