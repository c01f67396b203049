// What the guest answers to each request of the host. Effects only through what it is given.

import { messageOf } from '../base/fault.ts'
import { type Logger, redact } from '../base/log.ts'
import { type AgentRequest, type AgentResponse, agentProtocol } from '../contract/agent.ts'
import type { Claiming } from './claim.ts'
import type { Identity } from './identity.ts'
import type { Networking } from './network.ts'
import { ok, type Refusal, refuse } from './refusal.ts'
import { parseRequest, type ReceivedLine } from './wire.codec.ts'

export type Agent = {
  /** Never rejects. Null: nothing that could be answered. `next` is to be done once the answer has left. */
  readonly answer: (line: ReceivedLine) => Promise<{ response: AgentResponse; next: 'go_on' | 'power_off' } | null>
}

export type AgentDeps = {
  readonly version: string
  /** May still be in the making. */
  readonly identity: Promise<Identity>
  readonly networking: Networking
  readonly claiming: Claiming
  readonly log: Logger
}

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never
type Answer = WithoutId<Extract<AgentResponse, { ok: true }>> | Refusal
type Change = Exclude<AgentRequest, { op: 'hello' }>

/** Changes are made one after the other; more than this many at once is a host gone wrong. */
const waitingMax = 8

export function createAgent({ version, identity, networking, claiming, log }: AgentDeps): Agent {
  let last: Promise<unknown> = Promise.resolve()
  let waiting = 0

  const inTurn = async (change: () => Promise<Answer>): Promise<Answer> => {
    if (waiting >= waitingMax) return refuse('failed', 'too many requests at once')
    waiting += 1
    const turn = last.then(change).finally(() => {
      waiting -= 1
    })
    last = turn.catch(() => {})
    return turn
  }

  const hello = async (): Promise<Answer> => {
    const { bootId, boxKey, sshHostKey } = await identity
    const claimId = claiming.claimId()
    return { ok: true, hello: { protocol: agentProtocol, version, bootId, boxKey, sshHostKey, claimId } } as const
  }

  const change = async (request: Change): Promise<Answer> => {
    switch (request.op) {
      case 'network':
        return networking.apply(request.network, { claimed: claiming.claimId() !== null })
      case 'claim': {
        const claimed = await claiming.claim(request.sealed, await identity)
        if (!claimed.ok) return claimed
        const { sshHostKey } = await identity
        return { ok: true, claimed: { claimId: claimed.claimId, sshHostKey } } as const
      }
      case 'shutdown':
        return ok
    }
  }

  const perform = async (request: AgentRequest): Promise<Answer> => {
    try {
      const answer = await (request.op === 'hello' ? hello() : inTurn(() => change(request)))
      if (!answer.ok) log.warn('request refused', { op: request.op, code: answer.code, reason: answer.message })
      else if (request.op !== 'hello') log.info('request done', { op: request.op })
      return answer
    } catch (error) {
      const reason = redact(messageOf(error))
      log.error('request failed', { op: request.op, reason })
      return refuse('failed', reason)
    }
  }

  return {
    answer: async line => {
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
      const answer = await perform(parsed.request)
      return { response: { id, ...answer }, next: op === 'shutdown' && answer.ok ? 'power_off' : 'go_on' }
    },
  }
}
