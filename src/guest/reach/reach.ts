// Restricts programs of this VM to the destinations of its owner's policy: packet filter, broker, name resolution.
// Effects: the packet filter, the broker, files of /etc and /run.
//
// One file is the state: the broker's own, which only root writes. Without it nothing is restricted.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { utf8 } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import type { Clock } from '../../base/clock.ts'
import { matches } from '../../contract/check.ts'
import {
  EgressPolicy,
  egressPolicyProblem,
  egressPolicyText,
  openPolicy,
  reachOf,
  resolverAddress,
  slotsFor,
} from '../../contract/http/egress-policy.ts'
import type { Network } from '../../contract/vm/network.ts'
import { BrokerState } from '../../contract/vm/orders/broker-state.ts'
import { orderedBytesMax, type Secret } from '../../contract/vm/orders/secret.ts'
import { factsOf } from '../../contract/vm/orders/secret-facts.ts'
import type { run } from '../../linux/command.ts'
import { ensureDir, type Owner, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { type ClaimNames, hosts } from '../claim.plan.ts'
import type { Daemon } from '../daemon.ts'
import { resolvConf } from '../network.plan.ts'
import { recordedNetwork } from '../network.ts'
import type { GuestPaths } from '../paths.ts'
import { jsonOf, ok, type Refusal, refuse } from '../wire.codec.ts'

export type Reach = {
  /** The state in force; null without one. */
  readonly state: () => BrokerState | null
  /** Canonical text of the policy; null if nothing is restricted. */
  readonly policyText: () => string | null
  /**
   * Changes the policy, the secrets or both, and waits so long until the broker serves it. If it fails, what the new
   * state does not allow is refused.
   */
  readonly change: (change: ReachChange, claim: ClaimNames, waitMs: number) => Promise<{ readonly ok: true } | Refusal>
  /** Call it once, first: sets filter and broker as the state of an earlier agent, which may have died in a change. */
  readonly restore: () => Promise<void>
  /** Removes what a claim left that was never completed. */
  readonly reset: () => Promise<void>
}

export type ReachChange = { readonly policy?: unknown; readonly secrets?: readonly Secret[] }

export type ReachDeps = {
  readonly paths: GuestPaths
  readonly system: Owner
  /** Group of the broker. */
  readonly brokerGid: number
  /** The program that sets the packet filter. */
  readonly reachProgram: string
  readonly broker: Daemon
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly run: typeof run
}

const pollMs = 50
const filterBounds = { timeoutMs: 30_000, outputBytesMax: 65_536 } as const

export function createReach({ paths, system, brokerGid, reachProgram, broker, clock, run }: ReachDeps): Reach {
  const state = () => {
    const read = jsonOf(readTextOrNull(paths.brokerState) ?? 'null')
    return matches(BrokerState, read) ? read : null
  }

  const setFilter = ({ policy, slots }: Pick<BrokerState, 'policy' | 'slots'>) =>
    run([reachProgram, policy.default, ...slots.map(String)], filterBounds)

  /** For the machine, and for private roots, which have a copy of /etc. */
  const writeNames = (name: 'hosts' | 'resolv.conf', content: string) => {
    ensureDir(paths.sharedEtc, { mode: 0o755, owner: system })
    for (const path of [paths.etc, paths.sharedEtc]) {
      writeFileAtomic(`${path}/${name}`, content, { mode: 0o644, owner: system })
    }
  }

  return {
    state,
    policyText: () => {
      const policy = state()?.policy
      return policy === undefined || policy.default === 'allow' ? null : egressPolicyText(policy)
    },
    change: async (change, claim, waitMs) => {
      const before = state()
      const policy = change.policy ?? before?.policy ?? openPolicy
      if (!matches(EgressPolicy, policy)) {
        return refuse(
          'bad_request',
          'egress: not a policy of { "default": "refuse" | "allow", "allow": [{ "host", "port" }] }',
        )
      }
      const problem = egressPolicyProblem(policy)
      if (problem !== null) return refuse('bad_request', problem)
      const secrets = [...(change.secrets ?? before?.secrets ?? [])]
      const tooLong = statementProblem(policy, secrets)
      if (tooLong !== null) return refuse('bad_request', tooLong)
      const reach = reachOf(policy, secrets)
      const network = recordedNetwork(paths)
      const slots = slotsFor(reach.ports, before?.slots ?? [])
      const next: BrokerState = { version: 1, policy, slots, secrets, ...namesOf(network, claim) }
      const text = JSON.stringify(next)
      const isOpen = policy.default === 'allow'
      const isBroker = !isOpen || secrets.length > 0
      try {
        // The statement has the policy of the state. At no time it promises more than the filter and the broker refuse.
        if (!isOpen) await setFilter(next)
        writeFileAtomic(paths.brokerState, text, { mode: 0o640, owner: { ...system, gid: brokerGid } })
        if (isBroker && !broker.signal('SIGHUP')) broker.start()
        if (isOpen) await setFilter(next)
      } catch (error) {
        await setFilter(state() ?? next).catch(() => {})
        throw error
      }
      writeNames('hosts', `${hosts(claim)}${isOpen ? hostLines(reach.addresses) : ''}`)
      writeNames('resolv.conf', isOpen && network !== null ? resolvConf(network) : `nameserver ${resolverAddress}\n`)
      if (!isBroker) {
        await broker.stop()
        return ok
      }
      const isServed = () => readTextOrNull(paths.brokerInForce) === createHash('sha256').update(text).digest('hex')
      const untilMs = clock.monotonicMs() + waitMs
      while (!isServed() && clock.monotonicMs() < untilMs) await clock.sleep(pollMs)
      return waitMs === 0 || isServed()
        ? ok
        : refuse('failed', 'the broker does not serve it yet; send the order again')
    },
    restore: async () => {
      const before = state()
      if (before === null) return
      await setFilter(before)
      if (before.policy.default === 'allow' && before.secrets.length === 0) return
      broker.signal('SIGHUP')
      broker.start()
    },
    reset: async () => {
      await broker.stop()
      if (readTextOrNull(paths.brokerState) === null) return
      await run([reachProgram, 'allow'], filterBounds)
      const network = recordedNetwork(paths)
      if (network !== null) writeNames('resolv.conf', resolvConf(network))
      fs.rmSync(paths.brokerState)
    },
  }
}

/** Returns the fields for the resolver of the broker. */
function namesOf(network: Network | null, { inference: { address, baseUrl } }: ClaimNames) {
  return {
    resolvers: network?.resolvers ?? [],
    v4: network?.address !== undefined,
    v6: network?.v6 !== undefined,
    gateway: baseUrl === '' || address !== null ? null : new URL(baseUrl).hostname,
  }
}

/** The evidence of an instance whose statement is too long would be refused, and so would every further order. */
function statementProblem(policy: EgressPolicy, secrets: readonly Secret[]): string | null {
  const texts = [egressPolicyText(policy), ...secrets.map(secret => canonicalJson(factsOf(secret)))]
  const sizeBytes = texts.reduce((sum, text) => sum + utf8(text).length + textHeadBytes, 0)
  if (sizeBytes <= orderedBytesMax) return null
  return `statement: destinations and secrets have ${sizeBytes} bytes in it, at most ${orderedBytesMax}; name fewer destinations, or remove secrets`
}

/** CBOR (RFC 8949 3). */
const textHeadBytes = 3

/** hosts(5): with an open policy names resolve as ever, but for those of secrets. */
function hostLines(addresses: ReadonlyMap<string, string>): string {
  return [...addresses].map(([name, address]) => `${address} ${name}\n`).join('')
}
