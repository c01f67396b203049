// A claimed guest's side of the agent channel on a UNIX socket: it signs claim statements with its own keys, and
// otherwise does what a test says.

import { sampleDocument, sampleFields } from '../../../scripts/rigs/instances/sample-claim.ts'
import { makeHybridKeys, portableSigner } from '../../../src/attest/receipt/hybrid-keys.ts'
import { keysDigest } from '../../../src/attest/receipt/public-keys.ts'
import {
  encodeStatement,
  reportDataOf,
  type StatementOf,
  statementFormat,
} from '../../../src/attest/receipt/statement.ts'
import { fromBase64Url, fromHex, toBase64Url } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { AgentRequest, SimulatedLaunch } from '../../../src/contract/vm/agent.ts'
import type { GuestEvidence } from '../../../src/contract/vm/agent-responses.ts'
import { listenAsGuest } from './socket.ts'

type EvidenceRequest = Extract<AgentRequest, { op: 'evidence' }>

export type GuestOptions = {
  /** From the guest's own device; null if it has none. */
  readonly report: ((reportData: Uint8Array) => Promise<Uint8Array>) | null
  /** The launch facts of a guest with a device. */
  readonly ownLaunch: SimulatedLaunch | null
}

type ClaimedGuest = Disposable & {
  readonly path: string
  /** As they came. */
  readonly requests: AgentRequest[]
  /** Changes what the guest states; it signs it all the same. */
  state: (statement: StatementOf<'claim'>) => StatementOf<'claim'>
  /** Changes what it has made of it; null if it says nothing. */
  send: (evidence: GuestEvidence) => unknown
  /** Waited for before it answers. */
  gate: Promise<unknown>
}

const owner = { organization: 'acme', name: 'abcd1234', hostname: 'abcd1234.acme.agents.test' }
const digest = (fill: number) => new Uint8Array(32).fill(fill)

export function startClaimedGuest(path: string, options: GuestOptions): ClaimedGuest {
  const keys = makeHybridKeys(systemRandom)
  const requests: AgentRequest[] = []
  const evidenceOf = async ({ nonce, simulated }: EvidenceRequest): Promise<unknown> => {
    const launch = simulated ?? options.ownLaunch
    if (launch === null) throw new Error('a guest without a device needs to be told its launch')
    const statement = encodeStatement(
      self.state({
        format: statementFormat,
        kind: 'claim',
        scope: 'claim-only',
        nonce: fromBase64Url(nonce) ?? digest(0),
        issuedAt: Date.now(),
        keysDigest: keysDigest(keys.publicKeys),
        operatorKey: fromHex(launch.operatorKey) ?? digest(0),
        image: { name: 'instance', measurement: fromHex(launch.measurement) ?? digest(0) },
        ...owner,
        sshHostKeyDigest: digest(1),
        publicKeyDigest: digest(2),
        ...sampleFields(sampleDocument({ ...owner, publicKey: '' })),
        loginKeys: null,
        egressPolicy: null,
        secrets: null,
        published: null,
      }),
    )
    const signatures = await portableSigner(keys.secretKeys, systemRandom)(statement)
    const report = options.report === null ? null : await options.report(reportDataOf(statement))
    const { ed25519, mldsa65, x25519, mlkem768 } = keys.publicKeys
    const text = toBase64Url
    return self.send({
      statement: text(statement),
      keys: { ed25519: text(ed25519), mldsa65: text(mldsa65), x25519: text(x25519), mlkem768: text(mlkem768) },
      signatures: { ed25519: text(signatures.ed25519), mldsa65: text(signatures.mldsa65) },
      report: report === null ? null : text(report),
    })
  }
  const socket = listenAsGuest<AgentRequest>(path, async request => {
    requests.push(request)
    if (request.op !== 'evidence') return { id: request.id, ok: true }
    await self.gate
    const evidence = await evidenceOf(request)
    return evidence === null ? null : { id: request.id, ok: true, evidence }
  })
  const self: ClaimedGuest = {
    path,
    requests,
    state: statement => statement,
    send: evidence => evidence,
    gate: Promise.resolve(),
    [Symbol.dispose]: () => socket[Symbol.dispose](),
  }
  return self
}
