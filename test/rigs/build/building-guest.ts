// A build VM's side of the agent channel on a UNIX socket: states its build with its own keys, and otherwise follows
// the test.

import { sha256 } from '../../../src/attest/hash.ts'
import { NETWORK_POLICIES } from '../../../src/attest/provenance/network-policy.ts'
import { makeHybridKeys, portableSigner } from '../../../src/attest/receipt/hybrid-keys.ts'
import { newStatement, type StatementFields } from '../../../src/attest/receipt/new-statement.ts'
import { reportDataOf } from '../../../src/attest/receipt/statement.ts'
import { concat, fromHex, toBase64Url, toHex, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { AgentRequest, SimulatedLaunch } from '../../../src/contract/vm/agent.ts'
import type {
  AttestedStage,
  BuildAgentRequest,
  BuildEvidence,
  BuildProgress,
} from '../../../src/contract/vm/build-agent.ts'
import { listenAsGuest } from '../guest/socket.ts'

type Request = AgentRequest | BuildAgentRequest
export type VouchedRequest = Extract<BuildAgentRequest, { op: 'vouched' }>

export type BuildingGuestOptions = {
  readonly jobId: string
  /** Nonce of its order. */
  readonly nonce: Uint8Array
  /** Report of the guest's own device; null without a device. */
  readonly report: ((reportData: Uint8Array) => Promise<Uint8Array>) | null
  /** Launch as a guest's own device reports it. */
  readonly ownLaunch: SimulatedLaunch | null
}

export type BuildingGuest = Disposable & {
  readonly path: string
  /** As they came. */
  readonly requests: Request[]
  /** That it waits at. */
  stage: AttestedStage
  /** Changes what the guest states; it signs it all the same. */
  state: (fields: StatementFields) => StatementFields
  /** Changes what it has made of it. */
  send: (evidence: BuildEvidence) => unknown
}

export const provenanceBytes = utf8('provenance')
const provenanceDigest = sha256(provenanceBytes)
const sourceDigest = sha256(utf8('source tree'))
const empty = new Uint8Array()

/** Fields of a dispatch that no test here looks at. */
export const dispatchWords = {
  orderDigest: sha256(utf8('order')),
  fetchProxy: null,
  fetchMirror: null,
  fetchAuthoritiesDigest: null,
}

export function startBuildingGuest(path: string, options: BuildingGuestOptions): BuildingGuest {
  const keys = makeHybridKeys(systemRandom)
  const sign = portableSigner(keys.secretKeys, systemRandom)
  const requests: Request[] = []
  let dispatchDigest: Uint8Array = new Uint8Array(32)
  const reportOver = async (data: Uint8Array) =>
    options.report === null ? null : toBase64Url(await options.report(data))
  const evidenceOf = async (simulated: SimulatedLaunch | null): Promise<unknown> => {
    const launch = simulated ?? options.ownLaunch
    if (launch === null) throw new Error('a guest without a device needs to be told its launch')
    const { nonce, jobId } = options
    const common = {
      nonce,
      operatorKey: fromHex(launch.operatorKey) ?? empty,
      image: { name: 'builder', measurement: fromHex(launch.measurement) ?? empty },
      sourceDigest,
      networkPolicy: NETWORK_POLICIES.none,
    }
    const fields: StatementFields =
      self.stage === 'dispatch'
        ? { ...common, ...dispatchWords, kind: 'build-dispatch', jobId }
        : { ...common, kind: 'build', dispatchDigest, provenanceDigest }
    const statement = newStatement(self.state(fields), { publicKeys: keys.publicKeys, nowMs: Date.now() })
    if (self.stage === 'dispatch') dispatchDigest = sha256(statement)
    const signatures = await sign(statement)
    const { ed25519, mldsa65, x25519, mlkem768 } = keys.publicKeys
    const text = toBase64Url
    const hasWholeNonce = self.stage === 'completion' && nonce.length === 16
    return self.send({
      stage: self.stage,
      statement: text(statement),
      keys: { ed25519: text(ed25519), mldsa65: text(mldsa65), x25519: text(x25519), mlkem768: text(mlkem768) },
      signatures: { ed25519: text(signatures.ed25519), mldsa65: text(signatures.mldsa65) },
      report: await reportOver(reportDataOf(statement)),
      provenance: hasWholeNonce
        ? {
            sha256: toHex(provenanceDigest),
            report: await reportOver(concat(provenanceDigest, nonce, new Uint8Array(16))),
          }
        : null,
    })
  }
  const socket = listenAsGuest<Request>(path, async request => {
    requests.push(request)
    const { id } = request
    if (request.op === 'vouch') return { id, ok: true, vouched: await evidenceOf(request.simulated) }
    if (request.op !== 'progress') return { id, ok: true }
    const progress: BuildProgress = { lines: [], network: 'unused', waitsFor: self.stage, result: null }
    return { id, ok: true, progress }
  })
  const self: BuildingGuest = {
    path,
    requests,
    stage: 'dispatch',
    state: fields => fields,
    send: evidence => evidence,
    [Symbol.dispose]: () => socket[Symbol.dispose](),
  }
  return self
}
