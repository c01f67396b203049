// The agent's handler for each request of the host. Effects only through its deps.

import { messageOf } from '../base/fault.ts'
import { type Logger, redact } from '../base/log.ts'
import { createSerial } from '../base/work/serial.ts'
import { type AgentRequest, type AgentResponse, agentProtocol } from '../contract/vm/agent.ts'
import type { Claiming } from './claim.ts'
import type { Evidence } from './evidence.ts'
import type { Identity } from './identity.ts'
import type { Networking } from './network.ts'
import { ok, parseRequest, type ReceivedLine, type Refusal, refuse } from './wire.codec.ts'

type Agent = {
  /** Handles a line. Never rejects. Null: no response. The caller does `next` once the response is sent. */
  readonly handle: (line: ReceivedLine) => Promise<{ response: AgentResponse; next: 'go_on' | 'power_off' } | null>
}

type AgentDeps = {
  readonly version: string
  /** Pending until the host key exists. */
  readonly identity: Promise<Identity>
  readonly networking: Networking
  readonly claiming: Claiming
  readonly evidence: Evidence
  readonly log: Logger
}

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never
type Outcome = WithoutId<Extract<AgentResponse, { ok: true }>> | Refusal
type Change = Exclude<AgentRequest, { op: 'hello' }>

/** Queued changes; a correct host sends fewer. */
const changesMax = 8
/** Requests in progress; more are refused. */
const requestsMax = 64

export function createAgent({ version, identity, networking, claiming, evidence, log }: AgentDeps): Agent {
  const changes = createSerial()
  let requests = 0

  const hello = async (): Promise<Outcome> => {
    const { bootId, boxKey, sshHostKey } = await identity
    const platform = await evidence.platform()
    const claimId = claiming.record()?.claimId ?? null
    return {
      ok: true,
      hello: { protocol: agentProtocol, version, bootId, boxKey, sshHostKey, claimId, platform },
    } as const
  }

  const change = async (request: Change): Promise<Outcome> => {
    switch (request.op) {
      case 'network':
        return networking.apply(request.network, { claimed: claiming.record() !== null })
      case 'claim': {
        const claimed = await claiming.claim(request.sealed, await identity)
        if (!claimed.ok) return claimed
        const { sshHostKey } = await identity
        return { ok: true, claimed: { claimId: claimed.claimId, sshHostKey } } as const
      }
      case 'evidence':
        return evidence.make(request, claiming.record())
      case 'receipt':
        return evidence.keep(request.receipt)
      case 'shutdown':
        return ok
    }
  }

  const perform = async (request: AgentRequest): Promise<Outcome> => {
    if (requests >= requestsMax) return refuse('failed', 'too many requests at once')
    requests += 1
    try {
      if (request.op === 'hello') return await hello()
      const isFull = changes.size() >= changesMax
      const outcome = isFull ? refuse('failed', 'too many requests at once') : await changes.run(() => change(request))
      if (outcome.ok) log.info('request done', { op: request.op })
      else log.warn('request refused', { op: request.op, code: outcome.code, reason: outcome.message })
      return outcome
    } catch (error) {
      const reason = redact(messageOf(error))
      log.error('request failed', { op: request.op, reason })
      return refuse('failed', reason)
    } finally {
      requests -= 1
    }
  }

  return {
    handle: async line => {
      if (line.kind === 'dropped') {
        log.warn('line dropped', { reason: line.reason })
        return null
      }
      const parsed = parseRequest(line.text)
      if (parsed === null) {
        log.warn('line dropped', { reason: 'no_request' })
        return null
      }
      if (parsed.kind === 'refused') {
        return { response: { id: parsed.id, ...refuse('bad_request', parsed.message) }, next: 'go_on' }
      }
      const { id, op } = parsed.request
      const outcome = await perform(parsed.request)
      return { response: { id, ...outcome }, next: op === 'shutdown' && outcome.ok ? 'power_off' : 'go_on' }
    },
  }
}
