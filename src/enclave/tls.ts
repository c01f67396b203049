// This VM's TLS key, which never leaves it, and the certificates that the host gets for it. Effects: the host, a timer.
//
// A certificate authority can certify another key, too. The gateway's receipt names this key and so binds it.

import { generateKeyPairSync } from 'node:crypto'
import { toBase64Url } from '../base/bytes.ts'
import { type Clock, iso, pause } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { certificateRequest } from '../http/acme/request.ts'
import { type NamedCertificate, readPair, type TlsPair } from '../http/pair.ts'
import type { ServedTls } from '../http/serve.ts'
import type { HostRequests } from './host-requests.ts'

export type CertificateAnswer = {
  readonly clients: string
  readonly guests: string
  readonly named: readonly NamedCertificate[]
  /** Names for which the host requires requests. */
  readonly requests: readonly string[]
  /** Null for a host of a release without them. */
  readonly stamp: string | null
}

export type EnclaveTlsDeps = {
  readonly hostRequests: Pick<HostRequests, 'ask'>
  readonly clock: Clock
  readonly log: Logger
}

/** The host calls an authority, which may be the operator's. */
const askTimeoutMs = 60_000
const retryMs = 5_000
const checkIntervalMs = 3_600_000

export class EnclaveTls implements ServedTls {
  readonly #deps: EnclaveTlsDeps
  readonly #key: string
  readonly #listeners: (() => void)[] = []
  #held: CertifiedKey
  /** Stamp of the host's newest certificates; null if it has named none. */
  #newestStamp: string | null = null
  #changed = new AbortController()

  private constructor(key: string, held: CertifiedKey, deps: EnclaveTlsDeps) {
    this.#deps = deps
    this.#key = key
    this.#held = held
  }

  /** Returns a new, certified key; retries until it is. Rejects when the signal is aborted. */
  static async open(deps: EnclaveTlsDeps, signal: AbortSignal): Promise<EnclaveTls> {
    const key = newKey()
    for (;;) {
      signal.throwIfAborted()
      try {
        return new EnclaveTls(key, await certified(deps, key, []), deps)
      } catch (error) {
        deps.log.warn('there is no certificate yet; requesting one from the host', { error, retryMs })
        await pause(deps.clock, retryMs, signal)
      }
    }
  }

  current(): TlsPair {
    return this.#held.pair
  }

  guestCertificate(): string {
    return this.#held.guests
  }

  named(): readonly NamedCertificate[] {
    return this.#held.named
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** The host has certificates of this stamp. */
  follow(stamp: string): void {
    this.#newestStamp = stamp
    if (stamp !== this.#held.stamp) this.#changed.abort()
  }

  /**
   * Renews the certificates, for the same key, in the last third of their lifetime, and when the host has new ones;
   * until the signal is aborted.
   */
  async keepFresh(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    let waitMs = this.#isFollowed() ? checkIntervalMs : retryMs
    while (!signal.aborted) {
      this.#changed = new AbortController()
      await pause(clock, waitMs, AbortSignal.any([signal, this.#changed.signal]))
      waitMs = checkIntervalMs
      if (signal.aborted || (this.#isFollowed() && !this.#isDue(clock.nowMs()))) continue
      try {
        this.#held = await certified(this.#deps, this.#key, this.#held.requests)
        for (const listener of this.#listeners) listener()
        log.info('certificates renewed', { fingerprint: this.#held.pair.fingerprint })
        // The host's certificates changed again in the meantime.
        if (!this.#isFollowed()) waitMs = retryMs
      } catch (error) {
        log.error('the certificates were not renewed; retrying within the hour', { error })
      }
    }
  }

  #isFollowed(): boolean {
    return this.#newestStamp === null || this.#newestStamp === this.#held.stamp
  }

  #isDue(nowMs: number): boolean {
    const { notBeforeMs, notAfterMs } = this.#held.pair
    return notAfterMs - nowMs < (notAfterMs - notBeforeMs) / 3 || notBeforeMs > nowMs
  }
}

type CertifiedKey = Omit<CertificateAnswer, 'clients'> & { readonly pair: TlsPair }

/** A private P-256 key as PKCS #8, PEM. */
function newKey(): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
}

/**
 * `names`: names for which the host requires requests. Fault attest.unavailable: no answer, or certificates that are
 * for another key or not valid now.
 */
async function certified(deps: EnclaveTlsDeps, key: string, names: readonly string[]): Promise<CertifiedKey> {
  const first = await ask(deps, key, names)
  if (first.requests.join() === names.join()) return first
  try {
    return await ask(deps, key, first.requests)
  } catch (error) {
    // The host's own authority has signed the first ones, which serve meanwhile.
    deps.log.warn('no certificates for the names that the host has named', { error })
    return first
  }
}

async function ask(
  { hostRequests, clock }: EnclaveTlsDeps,
  key: string,
  names: readonly string[],
): Promise<CertifiedKey> {
  const requestOf = (name: string | null) => toBase64Url(certificateRequest(name, key))
  const requests = names.map(name => ({ name, csr: requestOf(name) }))
  const csr = requestOf(null)
  const more = requests.length === 0 ? {} : { requests }
  const want = { kind: 'certificate', csr, byName: true, follows: true, ...more } as const
  const { clients, ...answer } = (await hostRequests.ask(want, askTimeoutMs)) as CertificateAnswer
  const usable = (cert: string, whose: string): TlsPair => {
    const verdict = readPair(cert, key)
    const problem = verdict.ok ? whyUntimely(verdict.pair, clock.nowMs()) : verdict.reason
    if (verdict.ok && problem === null) return verdict.pair
    throw new Fault('attest.unavailable', `certificate for ${whose}: ${problem}`)
  }
  usable(answer.guests, 'instances')
  for (const { serverName, cert } of answer.named) usable(cert, serverName)
  return { ...answer, pair: usable(clients, 'clients') }
}

function whyUntimely({ notBeforeMs, notAfterMs }: TlsPair, nowMs: number): string | null {
  if (nowMs < notBeforeMs) return `it is not valid before ${iso(notBeforeMs)}; here it is ${iso(nowMs)}`
  return nowMs < notAfterMs ? null : `it has ended at ${iso(notAfterMs)}`
}
