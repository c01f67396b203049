// Starts the broker: listeners, resolver, log. Effects: all of these, and its state file, which SIGHUP reads again.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { systemClock } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import { createLogger, type Logger } from '../base/log.ts'
import { matches } from '../contract/check.ts'
import { brokerPortFirst, type Reach, reachOf, resolverAddress } from '../contract/http/egress-policy.ts'
import { BrokerState } from '../contract/vm/orders/broker-state.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { carryConnection } from './connection.ts'
import { createEgressRing, serveLog } from './log.ts'
import { Names } from './names.ts'
import { serveResolver } from './resolver.ts'
import type { ServeTerminated } from './types.ts'
import { openUpstream, resolveName } from './upstream.ts'

export type BrokerSettings = {
  readonly stateFile: string
  /** All programs may read the log here. */
  readonly logSocket: string
  /** Only root's process may, for orders of the owner: no program takes its connections. */
  readonly ownerLogSocket: string
  /**
   * Gets the SHA-256 of the state in force, for the process of root. A program that reads it could guess secrets.
   */
  readonly inForceFile: string
  readonly resolverPort: number
  readonly serveTerminated: ServeTerminated
  /** Prepares certificates for the hosts of secrets, before the state is in force. */
  readonly certify: (hosts: readonly string[]) => void
  readonly openUpstream: typeof openUpstream
  readonly trueAddresses: typeof resolveName
  readonly firstBytesTimeoutMs: number
  readonly log: Logger
}

export function brokerSettings(): Omit<BrokerSettings, 'serveTerminated' | 'certify'> {
  const sink = (line: string) => void process.stderr.write(`${line}\n`)
  return {
    stateFile: '/run/strongroom/broker.json',
    logSocket: '/run/strongroom/broker/log.sock',
    ownerLogSocket: '/run/strongroom/broker/owner-log.sock',
    inForceFile: '/run/strongroom/broker/in-force',
    resolverPort: 53,
    openUpstream,
    trueAddresses: resolveName,
    firstBytesTimeoutMs: 30_000,
    log: createLogger({ level: 'info', sink, nowMs: systemClock.nowMs, name: 'broker' }),
  }
}

/** Connections of all programs. Share: programs of one VM, which belong to one owner. */
const connectionsMax = 512

type Broker = {
  /** Reads the state again. Connections that it no longer allows end. Rejects if the state cannot be served. */
  readonly reload: () => Promise<void>
  readonly close: () => void
}

type InForce = {
  readonly state: BrokerState
  readonly names: Names
  readonly secretsText: string
  /** SHA-256 of the file. */
  readonly sha256: string
}
type Open = { readonly host: string; readonly port: number }

/** Rejects if the state is malformed, or the resolver's port is taken. */
export async function serveBroker(settings: BrokerSettings): Promise<Broker> {
  const { log } = settings
  const ring = createEgressRing(systemClock.nowMs)
  const open = new Map<Socket, Open>()
  const listeners = new Listeners((client, port) => accept(client, port), log)
  let inForce = read(settings.stateFile, null)

  const accept = (client: Socket, port: number) => {
    const host = inForce.names.nameOf(client.localAddress ?? '')
    const refused = refusalOf({ host, port, names: inForce.names, count: open.size })
    if (host === null || refused !== null) {
      if (refused !== null)
        ring.add({ verdict: 'refused', host: host ?? client.localAddress ?? '', port, reason: refused })
      client.destroy()
      return
    }
    open.set(client, { host, port })
    client.setKeepAlive(true, keepAliveMs)
    const secrets = inForce.state.secrets.filter(secret => secret.host === host && secret.port === port)
    const openHost = (host: string, port: number) => settings.openUpstream(inForce.state, host, port)
    void carryConnection({ client, host, port, secrets }, { ...settings, openUpstream: openHost, egressLog: ring })
      .catch(error => log.error('a connection failed', { reason: messageOf(error) }))
      .finally(() => open.delete(client))
  }

  const apply = async () => {
    const { state, sha256 } = inForce
    settings.certify([...new Set(state.secrets.map(({ host }) => host))])
    await listeners.set(state.slots)
    log.info('policy in force', { default: state.policy.default, rules: reachIn(state).rules.length })
    // After the listeners: then root's process answers the order.
    return () => writeFileAtomic(settings.inForceFile, sha256, { mode: 0o600 })
  }
  const first = await apply()
  const resolver = await serveResolver(
    { address: resolverAddress, port: settings.resolverPort },
    {
      addressOf: name => inForce.names.addressOf(name),
      gateway: () => inForce.state.gateway,
      trueAddresses: (name, type) => settings.trueAddresses(inForce.state, name, type),
      egressLog: ring,
      log,
    },
  )
  const served = [await serveLog(settings.logSocket, 0o666, ring), await serveLog(settings.ownerLogSocket, 0o600, ring)]
  first()
  return {
    reload: async () => {
      const before = inForce
      inForce = read(settings.stateFile, before.names)
      const hasNewSecrets = before.secretsText !== inForce.secretsText
      for (const [client, { host, port }] of open) {
        if (!inForce.names.allows(host, port) || (hasNewSecrets && hasSecret(before, host))) client.destroy()
      }
      const done = await apply()
      done()
    },
    close: () => {
      for (const server of served) server.close()
      resolver.close()
      void listeners.set([])
      for (const client of open.keys()) client.destroy()
    },
  }
}

const keepAliveMs = 60_000

type Arrival = { readonly host: string | null; readonly port: number; readonly names: Names; readonly count: number }

function refusalOf({ host, port, names, count }: Arrival): string | null {
  if (host === null) return 'no name stands for this address now; resolve the name again'
  if (count >= connectionsMax) return `${connectionsMax} connections are open`
  return names.allows(host, port) ? null : 'the policy does not list this port of the host'
}

function hasSecret({ state }: InForce, host: string): boolean {
  return state.secrets.some(secret => secret.host === host)
}

function read(file: string, before: Names | null): InForce {
  const bytes = readFileSync(file)
  const state: unknown = JSON.parse(bytes.toString())
  if (!matches(BrokerState, state)) throw new Error(`${file}: not a state of the broker`)
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  return { state, names: new Names(reachIn(state), before), secretsText: JSON.stringify(state.secrets), sha256 }
}

function reachIn({ policy, secrets }: BrokerState): Reach {
  return reachOf(policy, secrets)
}

/** A listener for each allowed port. Root's filter leads connections to a synthetic address there. */
class Listeners {
  readonly #accept: (client: Socket, port: number) => void
  readonly #log: Logger
  readonly #servers = new Map<number, Server>()
  #slots: readonly number[] = []

  constructor(accept: (client: Socket, port: number) => void, log: Logger) {
    this.#accept = accept
    this.#log = log
  }

  /** Listens for these slots and no others. Rejects if a listener cannot be opened. */
  async set(slots: readonly number[]): Promise<void> {
    this.#slots = slots
    for (const [slot, server] of this.#servers) {
      if ((slots[slot] ?? 0) !== 0) continue
      server.close()
      this.#servers.delete(slot)
    }
    for (const [slot, port] of slots.entries()) {
      if (port !== 0 && !this.#servers.has(slot)) await this.#open(slot)
    }
  }

  #open(slot: number): Promise<void> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, client => {
      client.on('error', () => {})
      const port = this.#slots[slot] ?? 0
      if (port === 0) client.destroy()
      else this.#accept(client, port)
    })
    this.#servers.set(slot, server)
    return new Promise((resolve, reject) => {
      server.once('error', reject)
      server.listen(brokerPortFirst + slot, '0.0.0.0', () => {
        server.on('error', error => this.#log.error('listener', { reason: messageOf(error) }))
        resolve()
      })
    })
  }
}
