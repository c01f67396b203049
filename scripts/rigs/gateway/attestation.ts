// A gateway's attestation for tests: real store, simulated platform with the keys of all tests, HTTP on a free port.

import { mkdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { fromBase64Url } from '../../../src/base/bytes.ts'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger, silentLogger } from '../../../src/base/log.ts'
import { ATTESTED_WORKLOADS } from '../../../src/contract/http/attestation.ts'
import { encodeAllowlist } from '../../../src/contract/vm/allowlist.ts'
import { openSimulatedHost, type SimulatedHost } from '../../../src/host/simulated-host.ts'
import {
  type AdmittedWorkloads,
  createAttester,
  type DescribeWorkloads,
  type EvidenceOrigin,
  type GpuSource,
} from '../../../src/inference/attestation/attester.ts'
import { createAttestationEndpoint } from '../../../src/inference/attestation/endpoint.ts'
import { createNonceLedger } from '../../../src/inference/attestation/nonces.ts'
import { makeReceiptKeys, type ReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { allowlistOf } from '../../../src/inference/attestation/workloads.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { nonceStore } from '../../../src/store/ledger/nonce.query.ts'
import { readAllowlist } from '../../../src/verifier/allowlist.ts'
import type { GatewayQuestion } from '../../../src/verifier/gateway.ts'
import { allPins } from '../../../src/verifier/pins.ts'
import { readSimulatedRoot } from '../../../src/verifier/simulated-root.ts'
import { keepSimulatedPlatform } from '../launch/simulated-keys.ts'

export const imageDigest = new Uint8Array(32).fill(5)

const candidates = ATTESTED_WORKLOADS.map((workload, at) => ({
  workload,
  imageDigest: new Uint8Array(32).fill(at + 1),
  command: ['/usr/bin/strongroom', 'serve', `--part=${at}`],
}))
/** The allowlist's file, whose digest is in the receipts. */
export const allowlistText = encodeAllowlist(allowlistOf(candidates))

export const workloads: AdmittedWorkloads = {
  workloads: candidates.map(candidate => ({ ...candidate, target: candidate.workload })),
  allowlistDigest: new Uint8Array(Bun.CryptoHasher.hash('sha256', allowlistText)),
}

const path = join(tmpdir(), `srt-attestation-${process.pid}`)
process.on('exit', () => rmSync(path, { recursive: true, force: true }))

/**
 * A directory per process, made at the first call. Test files of one process share it; each calls `clearRig` at its
 * end.
 */
export function rigDir(): string {
  mkdirSync(path, { recursive: true })
  return path
}

export function clearRig(): void {
  host = null
  rmSync(path, { recursive: true, force: true })
}

let host: Promise<SimulatedHost> | null = null
let keys: ReceiptKeys | null = null

export function simulatedHost(): Promise<SimulatedHost> {
  host ??= openHost()
  return host
}

async function openHost(): Promise<SimulatedHost> {
  const stateDir = rigDir()
  await keepSimulatedPlatform(stateDir)
  return openSimulatedHost({ stateDir, nowMs: systemClock.nowMs, random: systemRandom })
}

export function receiptKeys(): ReceiptKeys {
  keys ??= makeReceiptKeys(systemRandom)
  return keys
}

export type Available = Extract<EvidenceOrigin, { kind: 'available' }>

export async function simulatedOrigin(): Promise<Available> {
  const { operatorKey, measurementOf, evidence } = await simulatedHost()
  const measurement = measurementOf(imageDigest)
  return {
    kind: 'available',
    hostData: null,
    platform: 'simulated',
    image: { name: 'gateway', measurement },
    operatorKey,
    evidence: (reportData, hostData) => evidence({ measurement, reportData, hostData }),
  }
}

export type RigOptions = {
  readonly database?: string
  readonly origin?: EvidenceOrigin
  readonly describeWorkloads?: DescribeWorkloads
  readonly clock?: Clock
  readonly callersMax?: number
  readonly timeoutMs?: number
  readonly noncesMax?: number
  readonly gapMs?: number
  readonly tlsSpkiDigest?: Uint8Array
  readonly keys?: ReceiptKeys
  readonly configurationDigest?: Uint8Array
  readonly gpus?: GpuSource
  /** Lines of warnings and worse go here. */
  readonly logged?: string[]
}

export type Rig = Disposable & {
  readonly store: Store
  readonly endpoint: (request: Request, address?: string) => Promise<Response>
  readonly url: string
  /** GET /attestation with this query and these headers. */
  readonly get: (query: string, headers?: Record<string, string>) => Promise<{ status: number; body: string }>
}

export const retentionMs = 10 * 60_000
export const tlsSpkiDigest = new Uint8Array(32).fill(9)
/** The gateway's configuration, whose digest is in its statement. */
export const configurationText = '{"schemaVersion":1}\n'
export const configurationDigest = new Uint8Array(Bun.CryptoHasher.hash('sha256', configurationText))

export async function openRig(options: RigOptions = {}): Promise<Rig> {
  const clock = options.clock ?? systemClock
  const store = openStore(options.database ?? ':memory:')
  const respond = createAttestationEndpoint({
    nonces: createNonceLedger({
      store: nonceStore(store.ledger),
      clock,
      mayDelete: null,
      retentionMs,
      countMax: options.noncesMax ?? 1000,
    }),
    attester: createAttester({
      origin: options.origin ?? (await simulatedOrigin()),
      describeWorkloads: options.describeWorkloads ?? (() => workloads),
      keys: options.keys ?? receiptKeys(),
      tlsSpkiDigest: () => options.tlsSpkiDigest ?? tlsSpkiDigest,
      configurationDigest: options.configurationDigest ?? configurationDigest,
      gpus: options.gpus ?? null,
      clock,
      callersMax: options.callersMax ?? 16,
      gapMs: options.gapMs ?? 0,
      timeoutMs: options.timeoutMs ?? 30_000,
    }),
    log:
      options.logged === undefined
        ? silentLogger
        : createLogger({ level: 'warn', sink: line => void options.logged?.push(line), nowMs: clock.nowMs }),
  })
  const endpoint = (request: Request, address = '127.0.0.1') => respond(request, () => address)
  const server = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: request => endpoint(request) })
  const url = `http://127.0.0.1:${server.port}`
  return {
    store,
    endpoint,
    url,
    get: async (query, headers = {}) => {
      const response = await fetch(`${url}/attestation${query}`, { headers })
      return { status: response.status, body: await response.text() }
    },
    [Symbol.dispose]: () => {
      void server.stop(true)
      store.close()
    },
  }
}

export type Sample = Disposable & {
  readonly rig: Rig
  readonly origin: Available
  readonly nonce: string
  readonly answer: string
}

/** A gateway that has answered once, for this nonce. */
export async function openSample(): Promise<Sample> {
  const [origin, nonce] = [await simulatedOrigin(), newNonce()]
  const rig = await openRig({ origin })
  const { body: answer } = await rig.get(`?nonce=${nonce}`)
  return { rig, origin, nonce, answer, [Symbol.dispose]: () => rig[Symbol.dispose]() }
}

/** Expectations of a relying party that trusts the simulation and pins everything else. */
export async function gatewayQuestion(nonce: string, changes: Partial<GatewayQuestion> = {}): Promise<GatewayQuestion> {
  const { rootFile, operatorKey, measurementOf } = await simulatedHost()
  return {
    nonce: fromBase64Url(nonce) ?? new Uint8Array(),
    asOf: systemClock.nowMs(),
    ageMsMax: 60_000,
    roots: [readSimulatedRoot(new Uint8Array(await Bun.file(rootFile).bytes()))],
    policy: { ...strictPolicy(), measurements: [measurementOf(imageDigest)], idKeyDigest: operatorKey },
    pins: allPins,
    crl: undefined,
    allowlist: readAllowlist(new TextEncoder().encode(allowlistText)),
    tlsSpkiDigest,
    configurationDigest,
    ...changes,
  }
}

export function newNonce(): string {
  return systemRandom(32).toBase64({ alphabet: 'base64url', omitPadding: true })
}
