// Certificates by ACME, one for each name and key: ordered one at a time, renewed in time, tried again after failures.
// They stand beside the leaves of the local authority, which are served by a name while it has none. Effects: files,
// network, timers.

import { join } from 'node:path'
import { fromBase64Url, toBase64Url } from '../../base/bytes.ts'
import { type Clock, iso, pause } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { dayMs } from '../../base/time.ts'
import type { ChallengeType } from '../../config/acme.ts'
import type { NamedCertificate } from '../pair.ts'
import { verifyChain } from './chain.verify.ts'
import { Challenges, type ChallengesDeps } from './challenges.ts'
import type { PlaceOrder } from './order.ts'
import { askAgainMs, firstAskMs, renewAtMs, renewWithinMs, retryAtMs } from './renewal.plan.ts'
import { type AskRenewal, certificateId } from './renewal-info.ts'
import { type Ordered, type Row, readRows, readStored, writeRows } from './rows.ts'
import { AcmeFailure } from './transport.ts'

export type AcmeDeps = {
  readonly dir: string
  readonly names: { readonly host: readonly string[]; readonly gateway: readonly string[] }
  /** New certificates within 7 days for published ports; 0 for none. */
  readonly publishedPerWeek: number
  readonly challengeFor: (name: string) => ChallengeType
  /** Key of this host, and how it signs a request for a name. */
  readonly host: { readonly spkiSha256: string; readonly request: (name: string) => Uint8Array }
  readonly placeOrder: PlaceOrder
  readonly askRenewal: AskRenewal
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

/** Request for a published port of an instance. `csr`: PKCS #10, DER, by the key. */
export type PublishRequest = {
  readonly name: string
  readonly organizationId: string
  readonly csr: Uint8Array
}

/** `chain`: PEM. Both are null while the first order is under way. */
export type Issued = { readonly chain: string | null; readonly problem: string | null }

/** A name for the operator. */
export type AcmeName = {
  readonly name: string
  readonly holder: 'host' | 'gateway'
  readonly expiresAtMs: number | null
  /** Next order: a renewal, or the next attempt after a failure. Null if one is due or under way. */
  readonly nextAtMs: number | null
  readonly failure: Row['failure']
}

/** A gateway's VM and its predecessor. No share: keys of this appliance's gateway VMs. */
const gatewayKeysMax = 2
/**
 * New keys of gateways' VMs within a day: one that is started again and again must not use up what
 * a server allows.
 * No share: beyond it a gateway VM gets the local authority's certificate.
 */
const gatewayKeysPerDayMax = 12
/** Published ports with a certificate, of all instances. Share: an organization has at most half of them. */
const publishedMax = 128
const dnsNameCharsMax = 253
export const closedPublishing =
  'the operator has not opened published ports: tls.acme.directory and tls.acme.published_per_week of strongroom.toml'
/** Also notices a clock that was set. */
const checkMs = 600_000

export class AcmeCertificates {
  readonly #deps: AcmeDeps
  readonly #file: string
  readonly #publishedFile: string
  readonly #listeners: (() => void)[] = []
  readonly #stopping = new AbortController()
  /** One for each of the two runs: no order for a tenant holds up those of the gateway. */
  readonly #wake = { own: new AbortController(), instances: new AbortController() }
  #rows: Row[]
  /** Stamp of the chains when the listeners were last called. */
  #shown = ''
  #settled = Promise.withResolvers<void>()
  #running: Promise<void> | null = null
  /** New certificates for published ports, of the last 7 days. */
  #ordered: Ordered[]
  /** When each new key of a gateway's VM came, of the last day. */
  #newKeysAtMs: number[] = []

  constructor(deps: AcmeDeps) {
    this.#deps = deps
    this.#file = join(deps.dir, 'certificates.json')
    this.#publishedFile = join(deps.dir, 'published.json')
    const { names, host } = deps
    const isOurs = ({ holder, name, spkiSha256 }: Row) =>
      holder !== 'instance' && names[holder].includes(name) && (holder === 'gateway' || spkiSha256 === host.spkiSha256)
    const kept = readRows(this.#file).filter(isOurs)
    const published = readStored(this.#publishedFile)
    this.#ordered = published.ordered
    const missing = names.host.filter(name => !kept.some(row => row.holder === 'host' && row.name === name))
    const ofInstances = deps.publishedPerWeek === 0 ? [] : published.rows.filter(row => row.holder === 'instance')
    const added = missing.map(name => newRow({ name, holder: 'host', spkiSha256: host.spkiSha256 }))
    this.#rows = [...kept, ...added, ...ofInstances]
    this.#shown = this.#stamp(isServedHere)
  }

  /** Names for which a gateway's VM is to send requests. */
  get gatewayNames(): readonly string[] {
    return this.#deps.names.gateway
  }

  /** From now on orders are placed. */
  start(challenges: Pick<ChallengesDeps, 'domain' | 'httpListen' | 'showTexts'>): void {
    if (this.#running !== null) return
    const shared = new Challenges(challenges)
    this.#running = Promise.all([this.#run(shared, 'own'), this.#run(shared, 'instances')]).then(() => {})
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    for (const wake of Object.values(this.#wake)) wake.abort()
    await this.#running
  }

  /** Called when other chains are to be served. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** Chains of a key that may be served now. */
  chainsFor(spkiSha256: string): NamedCertificate[] {
    const nowMs = this.#deps.clock.nowMs()
    return this.#rows.flatMap(row => {
      if (row.spkiSha256 !== spkiSha256) return []
      const verdict = this.#verdictOf(row, nowMs)
      return verdict?.ok === true ? [{ serverName: row.name, cert: verdict.pem }] : []
    })
  }

  /** Changes with every chain that a gateway's VM is to serve. */
  gatewayStamp(): string {
    return this.#stamp(row => row.holder === 'gateway')
  }

  /** Takes the requests of a gateway's VM, for one key. */
  takeRequests(spkiSha256: string, requests: readonly { readonly name: string; readonly csr: Uint8Array }[]): void {
    const askedAtMs = this.#deps.clock.nowMs()
    if (!this.#rows.some(row => row.spkiSha256 === spkiSha256) && !this.#mayAddKey(askedAtMs)) return
    for (const { name, csr } of requests) {
      if (!this.#deps.names.gateway.includes(name)) continue
      const found = this.#rows.find(row => row.name === name && row.spkiSha256 === spkiSha256)
      const row = found ?? newRow({ name, holder: 'gateway', spkiSha256 })
      if (found === undefined) this.#rows.push(row)
      row.csr = toBase64Url(csr)
      row.askedAtMs = askedAtMs
    }
    const keys = Map.groupBy(
      this.#rows.filter(row => row.holder === 'gateway'),
      row => row.spkiSha256,
    )
    const newest = [...keys]
      .map(([key, rows]) => ({ key, atMs: Math.max(...rows.map(row => row.askedAtMs)) }))
      .sort((a, b) => b.atMs - a.atMs)
      .slice(0, gatewayKeysMax)
      .map(({ key }) => key)
    this.#rows = this.#rows.filter(row => row.holder !== 'gateway' || newest.includes(row.spkiSha256))
    this.#save()
    this.#wake.own.abort()
  }

  /** Takes the request for a published port; its VM repeats it. The result is what there is at the moment. */
  publish(asked: PublishRequest & { readonly spkiSha256: string }): Issued {
    const nowMs = this.#deps.clock.nowMs()
    const { name, organizationId, spkiSha256, csr } = asked
    const found = this.#rowOf(name)
    if (found?.spkiSha256 === spkiSha256) return this.issued(asked)
    // The same name has another key, because its owner has published it again.
    this.#rows = this.#rows.filter(row => row !== found)
    this.#tellSettled()
    const problem = this.#whyNotPublished(asked, nowMs)
    if (problem !== null) return { chain: null, problem }
    const row = { ...newRow({ name, holder: 'instance', spkiSha256 }), organizationId, csr: toBase64Url(csr) }
    this.#rows.push(row)
    this.#ordered.push({ organizationId, atMs: nowMs })
    this.#save()
    this.#wake.instances.abort()
    return { chain: null, problem: null }
  }

  /** Returns the result so far for a name and key that `publish` took. */
  issued({ name, spkiSha256 }: { readonly name: string; readonly spkiSha256: string }): Issued {
    const found = this.#rowOf(name)
    if (found?.spkiSha256 !== spkiSha256) return { chain: null, problem: null }
    const verdict = this.#verdictOf(found, this.#deps.clock.nowMs())
    const refused = found.failure === null ? null : `no certificate: ${found.failure.detail}`.slice(0, 512)
    return verdict?.ok === true ? { chain: verdict.pem, problem: null } : { chain: null, problem: refused }
  }

  #rowOf(name: string): Row | undefined {
    return this.#rows.find(row => row.holder === 'instance' && row.name === name)
  }

  /** Forgets published ports of which this is true: of instances that have ended, and those that owners unpublished. */
  forgetPublished(isGone: (name: string) => boolean): void {
    const living = this.#rows.filter(row => isServedHere(row) || !isGone(row.name))
    if (living.length === this.#rows.length) return
    this.#rows = living
    this.#tellSettled()
    this.#save()
  }

  #whyNotPublished({ name, organizationId }: PublishRequest, nowMs: number): string | null {
    const { publishedPerWeek: perWeek } = this.#deps
    if (perWeek === 0) return closedPublishing
    // The file could not be read again with a longer one.
    if (name.length > dnsNameCharsMax)
      return `the host name is longer than ${dnsNameCharsMax} characters: take a shorter --name`
    this.#ordered = this.#ordered.filter(({ atMs }) => Math.abs(nowMs - atMs) < 7 * dayMs)
    const isOwn = (entry: { readonly organizationId?: string | undefined }) => entry.organizationId === organizationId
    const living = this.#rows.filter(row => row.holder === 'instance')
    if (living.length >= publishedMax) return `this host has ${publishedMax} published ports, the most`
    if (living.filter(isOwn).length >= publishedMax / 2)
      return 'your organization has half of the published ports of this host'
    if (this.#ordered.length >= perWeek)
      return `the operator allows ${perWeek} new certificates in 7 days (tls.acme.published_per_week)`
    const share = Math.max(Math.floor(perWeek / 2), 1)
    if (this.#ordered.filter(isOwn).length < share) return null
    return `your organization had ${share} new certificates within 7 days, its share`
  }

  #mayAddKey(nowMs: number): boolean {
    this.#newKeysAtMs = this.#newKeysAtMs.filter(atMs => Math.abs(nowMs - atMs) < dayMs)
    if (this.#newKeysAtMs.length >= gatewayKeysPerDayMax) {
      const detail = { count: gatewayKeysPerDayMax }
      this.#deps.log.warn('no certificate by ACME for another gateway VM: so many new ones had one today', detail)
      return false
    }
    this.#newKeysAtMs.push(nowMs)
    return true
  }

  /** Resolves once no first order for this key is due or under way, or after `timeoutMs`. */
  async settled(spkiSha256: string, timeoutMs: number): Promise<void> {
    const { clock } = this.#deps
    const ended = new AbortController()
    const late = pause(clock, timeoutMs, ended.signal).then(() => true)
    const isOpen = () =>
      this.#rows.some(row => row.spkiSha256 === spkiSha256 && row.chain === null && row.retryAtMs <= clock.nowMs())
    while (isOpen()) if (await Promise.race([late, this.#settled.promise.then(() => false)])) break
    ended.abort()
  }

  #tellSettled(): void {
    this.#settled.resolve()
    this.#settled = Promise.withResolvers()
  }

  /** Failures are tried again now, unless the server has named a time. */
  retryNow(): void {
    for (const row of this.#rows) {
      if (row.failure !== null && row.failure.type !== RATE_LIMITED) row.retryAtMs = 0
    }
    for (const wake of Object.values(this.#wake)) wake.abort()
  }

  view(): AcmeName[] {
    const nowMs = this.#deps.clock.nowMs()
    const { host, gateway } = this.#deps.names
    const newest = this.#rows.toSorted((a, b) => b.askedAtMs - a.askedAtMs)
    const all = [
      ...host.map(name => ({ name, holder: 'host' as const })),
      ...gateway.map(name => ({ name, holder: 'gateway' as const })),
    ]
    return all.map(({ name, holder }) => {
      const row = newest.find(row => row.name === name && row.holder === holder)
      if (row === undefined) return { name, holder, expiresAtMs: null, nextAtMs: null, failure: null }
      const verdict = this.#verdictOf(row, nowMs)
      const dueMs = dueAtMs(row)
      return {
        name,
        holder,
        expiresAtMs: verdict?.ok === true ? verdict.notAfterMs : null,
        nextAtMs: dueMs <= nowMs ? null : dueMs,
        failure: row.failure,
      }
    })
  }

  async #run(challenges: Challenges, lane: 'own' | 'instances'): Promise<void> {
    const { clock } = this.#deps
    const { signal } = this.#stopping
    while (!signal.aborted) {
      const nowMs = clock.nowMs()
      const rows = this.#rows.filter(row => isServedHere(row) === (lane === 'own'))
      // A VM that waits for its first certificate comes first.
      const [due] = rows
        .filter(row => dueAtMs(row) <= nowMs)
        .sort((a, b) => rank(a) - rank(b) || dueAtMs(a) - dueAtMs(b))
      if (due !== undefined) {
        await this.#order(due, challenges)
        this.#tellSettled()
      }
      const asked = due === undefined ? rows.find(row => infoAtMs(row, nowMs) <= nowMs) : undefined
      if (asked !== undefined) await this.#ask(asked)
      this.#tellOfChange()
      if (due !== undefined || asked !== undefined) continue
      const wake = new AbortController()
      this.#wake[lane] = wake
      const nextMs = Math.min(...rows.flatMap(row => [dueAtMs(row), infoAtMs(row, nowMs)]), nowMs + checkMs)
      await pause(clock, Math.max(nextMs - nowMs, 1), AbortSignal.any([signal, wake.signal]))
    }
  }

  /** Follows the server's suggestion when to renew. Without one, the time stays as it is. */
  async #ask(row: Row): Promise<void> {
    const { askRenewal, clock, log } = this.#deps
    const verdict = this.#verdictOf(row, clock.nowMs())
    const id = row.chain === null ? null : certificateId(row.chain)
    const info = id === null ? null : await askRenewal(id, this.#stopping.signal)
    if (this.#stopping.signal.aborted) return
    const { nowMs, draw } = this.#now()
    row.infoAtMs = askAgainMs(info?.retryAfterMs ?? null, nowMs)
    row.isSuggested = info !== null
    if (info !== null && verdict?.ok === true) {
      const atMs = renewWithinMs(info.window, { ...verdict, renewAtMs: row.renewAtMs }, draw)
      if (atMs !== row.renewAtMs)
        log.info('the ACME server suggests a renewal', { name: row.name, renews_at: iso(Math.max(atMs, nowMs)) })
      row.renewAtMs = atMs
    }
    this.#save()
  }

  async #order(row: Row, challenges: Challenges): Promise<void> {
    const { host, placeOrder, challengeFor, clock, log, onEvent } = this.#deps
    const { name, holder, spkiSha256 } = row
    const detail = { name, holder }
    const mayName = row.isSuggested === true && row.isReplacesRefused !== true
    const id = mayName && row.chain !== null ? certificateId(row.chain) : null
    try {
      const csr = holder === 'host' ? host.request(name) : (fromBase64Url(row.csr) ?? new Uint8Array(0))
      const order = { name, challenge: challengeFor(name), csr, ...(id === null ? {} : { replaces: id }) }
      const text = await placeOrder(order, challenges, this.#stopping.signal)
      const verdict = verifyChain(text, { name, spkiSha256, nowMs: clock.nowMs() })
      if (!verdict.ok) throw new AcmeFailure(`the certificate is refused: ${verdict.reason}`, NO_PROBLEM)
      row.chain = verdict.pem
      row.renewAtMs = renewAtMs(verdict, this.#now())
      row.failures = 0
      row.failure = null
      row.retryAtMs = 0
      row.infoAtMs = firstAskMs(clock.nowMs())
      row.isSuggested = false
      row.isReplacesRefused = false
      const expires = { ...detail, expires_at: iso(verdict.notAfterMs), renews_at: iso(row.renewAtMs) }
      log.info('certificate by ACME', expires)
      onEvent('tls.acme_issued', expires)
    } catch (error) {
      if (this.#stopping.signal.aborted) return
      const { type, retryAfterMs } = error instanceof AcmeFailure ? error : NO_PROBLEM
      const now = this.#now()
      row.failures += 1
      // The server may refuse the name of what it replaces, by any error (RFC 9773 5).
      if (id !== null && type !== RATE_LIMITED) row.isReplacesRefused = true
      row.failure = { atMs: now.nowMs, type, detail: messageOf(error).slice(0, 512) }
      row.retryAtMs = retryAtMs({ failures: row.failures, retryAfterMs }, now)
      const failed = { ...detail, type, reason: row.failure.detail, retry_at: iso(row.retryAtMs) }
      log.warn('no certificate by ACME', failed)
      onEvent('tls.acme_failed', failed)
    }
    this.#save()
  }

  #now(): { nowMs: number; draw: number } {
    const [byte = 0] = this.#deps.random(1)
    return { nowMs: this.#deps.clock.nowMs(), draw: byte / 256 }
  }

  #tellOfChange(): void {
    const shown = this.#stamp(isServedHere)
    if (shown === this.#shown) return
    this.#shown = shown
    for (const listener of this.#listeners) {
      try {
        listener()
      } catch (error) {
        this.#deps.log.error('the new certificates are not served', { error })
      }
    }
  }

  #stamp(isMeant: (row: Row) => boolean): string {
    const nowMs = this.#deps.clock.nowMs()
    const shown = this.#rows.filter(isMeant).map(row => {
      const verdict = this.#verdictOf(row, nowMs)
      return [row.name, row.spkiSha256, verdict?.ok === true ? verdict.fingerprint : '']
    })
    return JSON.stringify(shown.sort())
  }

  #verdictOf({ chain, name, spkiSha256 }: Row, nowMs: number) {
    return chain === null ? null : verifyChain(chain, { name, spkiSha256, nowMs })
  }

  #save(): void {
    const [own, ofInstances] = [true, false].map(is => this.#rows.filter(row => isServedHere(row) === is))
    writeRows(this.#file, own ?? [])
    if (this.#deps.publishedPerWeek > 0) writeRows(this.#publishedFile, ofInstances ?? [], this.#ordered)
  }
}

const RATE_LIMITED = 'urn:ietf:params:acme:error:rateLimited'
const NO_PROBLEM = { type: null, retryAfterMs: null } as const

function newRow({ name, holder, spkiSha256 }: Pick<Row, 'name' | 'holder' | 'spkiSha256'>): Row {
  const none = { csr: '', chain: null, renewAtMs: 0, failures: 0, failure: null, retryAtMs: 0, askedAtMs: 0 }
  return { name, holder, spkiSha256, ...none }
}

function dueAtMs(row: Row): number {
  return Math.max(row.chain === null ? 0 : row.renewAtMs, row.retryAtMs)
}

/** Never further ahead than a day, because a clock may have been set. */
function infoAtMs(row: Row, nowMs: number): number {
  if (row.chain === null) return Number.POSITIVE_INFINITY
  const atMs = row.infoAtMs ?? 0
  return atMs > nowMs + dayMs ? nowMs : atMs
}

function rank(row: Row): number {
  return row.holder === 'gateway' && row.chain === null ? 0 : 1
}

function isServedHere({ holder }: Row): boolean {
  return holder !== 'instance'
}
