// The agent's handler for each request of the host. Effects only through its deps.

import type { Logger } from '../base/log.ts'
import { createSerial } from '../base/work/serial.ts'
import { type AgentRequest, agentProtocol } from '../contract/vm/agent.ts'
import type { Claiming } from './claim.ts'
import type { EgressNotice } from './egress/notice.ts'
import type { Evidence } from './evidence.ts'
import type { Identity } from './identity.ts'
import type { Networking } from './network.ts'
import type { Idle } from './orders/idle.ts'
import type { Publishing } from './orders/publish.ts'
import { createHandler, type HandleLine, type Outcome, tooMany } from './requests.ts'
import type { Snapshots } from './snapshots/snapshot.ts'
import { ok, parseRequest } from './wire.codec.ts'

type AgentDeps = {
  readonly version: string
  /** Pending until the host key exists. */
  readonly identity: Promise<Identity>
  readonly networking: Networking
  readonly claiming: Claiming
  readonly evidence: Evidence
  readonly egress: EgressNotice
  readonly idle: Idle
  readonly snapshots: Snapshots
  readonly publishing: Publishing
  readonly log: Logger
}

type Change = Exclude<AgentRequest, { op: 'hello' | 'snapshot' }>

/** Queued changes; a correct host sends fewer. */
const changesMax = 8

export function createAgent(deps: AgentDeps): HandleLine {
  const { version, identity, networking, claiming, evidence, egress, idle, snapshots, publishing, log } = deps
  const changes = createSerial()

  const hello = async (): Promise<Outcome> => {
    const { bootId, boxKey, sshHostKey } = await identity
    const platform = await evidence.platform()
    const claimId = claiming.record()?.claimId ?? null
    return {
      ok: true,
      hello: { protocol: agentProtocol, version, bootId, boxKey, sshHostKey, claimId, platform },
    } as const
  }

  const idleAnswer = (minutes: number | null, isSnapshotLost?: true): Outcome => {
    const isIdle = claiming.record() !== null && idle.isOver(minutes)
    const isDue = !isIdle && idle.isSnapshotDue(isSnapshotLost)
    const published = publishing.requests()
    const due = isDue ? { isSnapshotDue: true as const } : {}
    return { ok: true, isIdle, ...due, ...(published.length === 0 ? {} : { published }) }
  }

  const change = async (request: Change): Promise<Outcome> => {
    switch (request.op) {
      case 'network':
        return networking.apply(request.network, { claimed: claiming.record() !== null })
      case 'claim': {
        const claimed = await claiming.claim(request.sealed, await identity)
        if (!claimed.ok) return claimed
        const { sshHostKey } = await identity
        const key = claiming.record()?.document.claim.inference.key ?? null
        return { ok: true, claimed: { claimId: claimed.claimId, sshHostKey, key } } as const
      }
      case 'evidence':
        return evidence.make(request, claiming.record())
      case 'receipt':
        return evidence.keep(request.receipt)
      case 'egress':
        egress.take(request.egress)
        return ok
      case 'idle':
        return idleAnswer(request.minutes, request.isSnapshotLost)
      case 'certificate':
        return publishing.take(request)
      case 'restore':
        return snapshots.fetch(request.from, request.pipe, claiming.record())
      case 'shutdown':
        return ok
    }
  }

  const answer = async (request: AgentRequest): Promise<Outcome> => {
    if (request.op === 'hello') return await hello()
    // Takes minutes, so other requests do not wait for it.
    if (request.op === 'snapshot')
      return await idle.counted(() => snapshots.send(request.to, claiming.record(), request.ifChanged))
    if (changes.size() >= changesMax) return tooMany
    const outcome = await changes.run(() => change(request))
    // Asked every minute.
    if (outcome.ok && request.op !== 'idle') log.info('request done', { op: request.op })
    return outcome
  }

  return createHandler({ parse: parseRequest, answer, log })
}
