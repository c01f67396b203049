// The program of a relay: serves clients on the gateway's address and requests every decision from its owner.
// Effects: a listening socket, upstreams, child processes that check schemas. It holds no state beyond a request and
// ends when its owner does.

import { present } from '../../base/assert.ts'
import { fromHex } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { systemRandom } from '../../base/ids.ts'
import { createLogger } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import { checkHost } from '../../http/head.ts'
import { receiptKeysOf } from '../attestation/receipt-keys.ts'
import { createResponseSealer } from '../attestation/response-sealer.ts'
import { startSigning } from '../attestation/signing.ts'
import { createEncryption } from '../encryption/encryption.ts'
import { createCors } from '../gateway/cors.ts'
import { createFront, type GatewayFetch, pathOf } from '../gateway/front.ts'
import { gatewayHandler } from '../gateway/handler.ts'
import { createCacheSalt, createMeteredRoutes } from '../gateway/metered.ts'
import { servedModels } from '../gateway/models.ts'
import { errorResponse, isServerFailure } from '../gateway/responses.ts'
import { RouteTable } from '../gateway/routes.ts'
import { type StartSchemaProcess, startOwnSchemaProcess } from '../schema-check/child.ts'
import { createTracer } from '../traces/tracer.ts'
import { UpstreamClient } from '../upstream/client.ts'
import { Channel } from './channel.ts'
import { forwardedRequest, forwardedResponse } from './forward.ts'
import { Link, type RelayTarget } from './link.ts'
import { type Listening, listenWith } from './listen.ts'
import type { FromOwner, FromRelay, RelayTls, Setup } from './wire.ts'

/** Descriptor at which the owner has placed the socket. */
export const channelFd = 3
/** Interval between two reports of what streams have delivered. */
const progressMs = 1_000
const lastWaitMs = 20
/** No share: limits one process of ours. */
const lastWaitsMax = 50

/** Serves until the owner sends stop or ends; then the process ends. */
export async function runRelay(startSchemaProcess = startOwnSchemaProcess): Promise<never> {
  // Ignored, because the owner decides when a relay ends.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {})
  const ended = Promise.withResolvers<never>()
  let relay: Relay | null = null
  const channel: Channel<FromRelay, FromOwner> = await Channel.open(channelFd, {
    onMessage: message => {
      if (message.kind === 'setup') relay = begin(message, { channel, startSchemaProcess })
      else relay?.handleMessage(message)
    },
    onClose: () => process.exit(0),
  })
  return await ended.promise
}

/** Starts serving. If it cannot, ends the process with a message that gives the reason. */
function begin(
  setup: Setup,
  { channel, startSchemaProcess }: { channel: Channel<FromRelay, FromOwner>; startSchemaProcess: StartSchemaProcess },
): Relay {
  const send = (message: FromRelay) => channel.send(message)
  try {
    return new Relay(setup, { send, startSchemaProcess })
  } catch (error) {
    relayLog(send).error('the relay cannot serve', { error })
    channel.close()
    process.exit(1)
  }
}

class Relay {
  readonly #send: (message: FromRelay) => void
  readonly #link: Link
  readonly #tls: FollowedTls | null
  readonly #server: Listening
  readonly #close: () => void
  #isDraining: boolean

  constructor(setup: Setup, { send, startSchemaProcess }: Pick<RelayParts, 'send' | 'startSchemaProcess'>) {
    this.#send = send
    this.#isDraining = setup.isDraining
    this.#tls = setup.tls === null ? null : new FollowedTls(setup.tls)
    const upstreams: readonly RelayTarget[] = setup.upstreams.map(target => ({ ...target }))
    this.#link = new Link({ send, upstreams, clock: systemClock })
    const { fetch, close } = composeRelay(setup, { send, startSchemaProcess, link: this.#link, upstreams })
    this.#close = close
    const handler = gatewayHandler({ fetch, isDraining: () => this.#isDraining }, setup.settings)
    const { listen, settings } = setup
    this.#server = listenWith(handler, {
      listen,
      tls: this.#tls,
      guestName: setup.tls?.guestName ?? '',
      isShared: true,
      settings,
      log: relayLog(send),
    })
    setInterval(() => this.#link.reportProgress(), progressMs)
    send({ kind: 'listening' })
  }

  handleMessage(message: Exclude<FromOwner, Setup>): void {
    switch (message.kind) {
      case 'reply':
        this.#link.handleReply(message.to, { value: message.value })
        break
      case 'refusal':
        this.#link.handleReply(message.to, { fault: message.fault })
        break
      case 'tls':
        this.#tls?.follow(message.tls)
        break
      case 'drain':
        this.#isDraining = true
        break
      case 'ping':
        this.#send({ kind: 'pong' })
        break
      case 'stop':
        void this.#stop(message.isGraceful)
        break
    }
  }

  /** Stops serving. Reports the cost of its requests before it ends. */
  async #stop(isGraceful: boolean): Promise<void> {
    await this.#server.stop(isGraceful)
    for (let waits = 0; this.#link.size > 0 && waits < lastWaitsMax; waits += 1) await systemClock.sleep(lastWaitMs)
    this.#close()
    process.exit(0)
  }
}

type RelayParts = {
  readonly send: (message: FromRelay) => void
  readonly startSchemaProcess: StartSchemaProcess
  readonly link: Link
  readonly upstreams: readonly RelayTarget[]
}

function composeRelay(
  setup: Setup,
  { send, startSchemaProcess, link, upstreams }: RelayParts,
): { fetch: GatewayFetch; close: () => void } {
  const { settings } = setup
  const limits = { ...settings, padsStreams: setup.padsStreams }
  const [clock, random, log] = [systemClock, systemRandom, relayLog(send).unit('gateway')]
  const deadlines = createDeadlines(clock)
  const inside = new Set(setup.inside)
  const attested = upstreams.filter(target => target.attestation !== undefined).map(({ name }) => name)
  const seeds = hexOf(setup.receiptSeeds)
  const keys = { ...receiptKeysOf(seeds), seeds }
  const signing = startSigning({ keys, clock, log: log.unit('receipts') })
  const onRead = (suite: keyof typeof counts, outcome: keyof (typeof counts)['xwing']) =>
    send({ kind: 'counted', suite, outcome })
  const encryption = createEncryption({
    keys,
    random,
    onRead,
    // One memory for all relays, because the same body may reach each of them.
    checkReplay: ({ request, epoch, mark }) => link.ask('checkReplay', { id: request, epoch, mark }),
  })
  const { counts } = encryption
  const upstream = new UpstreamClient({
    deadlines,
    timeouts: { connectMs: limits.connectTimeoutMs, firstByteMs: limits.firstByteTimeoutMs },
  })
  const metered = createMeteredRoutes({
    startSchemaProcess,
    clock,
    random,
    log,
    deadlines,
    limits,
    upstreams,
    upstream,
    enter: link.enter,
    router: link,
    models: servedModels(upstreams, inside, settings.fallbacks),
    cacheSalt: createCacheSalt(hexOf(setup.cacheSecret)),
    beginTrace:
      settings.traces === undefined
        ? null
        : createTracer({ settings: settings.traces, offer: span => link.offerSpan(span), clock, random }),
    sealer: createResponseSealer({ keys, signing, clock, random, inside, attested: new Set(attested) }),
    keptReceipts: { retentionMs: setup.keptReceiptsMs, keep: (id, { text }) => link.keepReceipt(id, text) },
    responses: link.responses(setup.keepsResponses),
  })
  const routes = new RouteTable(metered.routes)
  const serve = createFront({
    encryption,
    clock,
    random,
    log,
    cors: createCors(settings.corsOrigins ?? []),
    dialectOf: path => routes.find(path)?.route.dialect ?? null,
    dispatch: (request, path, received) => {
      checkHost(request.headers)
      return present(routes.find(path), 'only paths with a route come here').route.respond(request, {
        ...received,
        item: '',
      })
    },
  })
  const forward: GatewayFetch = async (request, address) => {
    try {
      return forwardedResponse(await link.ask('forward', forwardedRequest(request, address()), request.signal))
    } catch (error) {
      if (isServerFailure(error)) log.error('request failed', { error })
      return errorResponse(error, {})
    }
  }
  return {
    // The owner answers all other requests, encryption and refusals included, so that this is done in one place.
    fetch: (request, address) =>
      request.method === 'POST' && routes.find(pathOf(request.url)) !== null
        ? serve(request, address)
        : forward(request, address),
    close: () => {
      upstream.close()
      signing.close()
      metered.close()
    },
  }
}

function relayLog(send: (message: FromRelay) => void) {
  return createLogger({ level: 'debug', sink: line => send({ kind: 'log', line }), nowMs: systemClock.nowMs })
}

function hexOf(text: string): Uint8Array {
  return present(fromHex(text), 'the owner writes hexadecimal')
}

/** The owner's TLS key and certificates, as received from it. */
class FollowedTls {
  #now: RelayTls
  readonly #listeners: (() => void)[] = []

  constructor(first: RelayTls) {
    this.#now = first
  }

  current(): { readonly cert: string; readonly key: string } {
    return this.#now
  }

  guestCertificate(): string {
    return this.#now.guests
  }

  named(): RelayTls['named'] {
    return this.#now.named
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  follow(next: RelayTls): void {
    this.#now = next
    for (const listener of this.#listeners) listener()
  }
}
