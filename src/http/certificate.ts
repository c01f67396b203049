// The certificate in service: the operator's files where configured, else one from the local authority. Effects: files, timer.
//
// A pair that cannot be used never replaces one that can: the old one stays and the reason is logged and journalled.

import { readFileSync, statSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf, wrapFault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { parseListen } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import { ensureDir, writeFileAtomic } from '../linux/files.ts'
import { type Authority, openAuthority } from './authority.ts'
import { isIssuedBy, readPair, sameNames, type TlsPair } from './pair.ts'

const dayMs = 86_400_000
const watchIntervalMs = 2_000
const renewIntervalMs = 3_600_000
/** An operator's certificate with less than this left is warned of at start and every day. */
const expiryWarnMs = 14 * dayMs

export type Tls = {
  readonly source: 'local' | 'operator'
  readonly current: () => TlsPair
  /** Called after every change with the new pair; what it throws is logged. */
  readonly onChange: (listener: (pair: TlsPair) => void) => void
  /** The authority that clients must trust; null while the operator's own certificate is served. */
  readonly caFile: string | null
  /** Reads the operator's files again, or renews the local certificate when it is due, now. For SIGHUP. Never throws. */
  readonly reload: () => Promise<void>
  readonly stop: () => void
}

export type TlsDeps = {
  readonly config: NamingConfig
  readonly stateDir: string
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  /** `tls.changed`, `tls.refused`, `tls.expiring`, for the journal. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

/**
 * Faults at start: config.invalid when the operator's files cannot be used, internal when the authority cannot.
 * Afterwards nothing throws: the pair that works stays.
 */
export async function createTls(deps: TlsDeps): Promise<Tls> {
  const { certificate_file: certificateFile } = deps.config.tls
  const source = certificateFile === '' ? await localSource(deps) : operatorSource(deps)
  const listeners: ((pair: TlsPair) => void)[] = []
  const stopping = new AbortController()
  let pair = source.first
  let running: Promise<void> = Promise.resolve()
  let warnedAtMs = Number.NEGATIVE_INFINITY

  const adopt = (next: TlsPair) => {
    if (next.fingerprint === pair.fingerprint && next.key === pair.key && next.cert === pair.cert) return
    pair = next
    warnedAtMs = Number.NEGATIVE_INFINITY
    const detail = { fingerprint: next.fingerprint, expires_at: new Date(next.notAfterMs).toISOString() }
    deps.log.info('certificate changed', detail)
    deps.onEvent('tls.changed', detail)
    for (const listener of listeners) {
      try {
        listener(next)
      } catch (error) {
        deps.log.error('certificate not taken over', { error })
      }
    }
  }
  const warn = () => {
    const nowMs = deps.clock.nowMs()
    if (pair.notAfterMs - nowMs > source.warnMs || Math.abs(nowMs - warnedAtMs) < dayMs) return
    warnedAtMs = nowMs
    const detail = { expires_at: new Date(pair.notAfterMs).toISOString(), expired: pair.notAfterMs <= nowMs }
    deps.log.warn('certificate expires', detail)
    deps.onEvent('tls.expiring', detail)
  }
  const look = (forced: boolean): Promise<void> => {
    // One look after the other: a SIGHUP during a renewal waits for it.
    running = running.then(async () => {
      try {
        const next = await source.look({ current: pair, forced })
        if (next !== null) adopt(next)
        warn()
      } catch (error) {
        deps.log.error('certificate not renewed', { error })
        deps.onEvent('tls.refused', { reason: messageOf(error) })
      }
    })
    return running
  }
  warn()
  void repeat(source.intervalMs, { clock: deps.clock, signal: stopping.signal }, () => look(false))
  return {
    source: source.kind,
    current: () => pair,
    onChange: listener => {
      listeners.push(listener)
    },
    caFile: source.caFile,
    reload: () => look(true),
    stop: () => stopping.abort(),
  }
}

type NamingConfig = Pick<Config, 'tls' | 'domain' | 'listen' | 'network'>

/** DNS names and addresses in a local certificate. Guests know the appliance by the gateway address. */
export function certificateNames({ tls, domain, listen, network }: NamingConfig): string[] {
  const address = parseListen(listen.instances)?.hostname ?? ''
  const specific = isIP(address) !== 0 && !['0.0.0.0', '::'].includes(address) ? [address] : []
  const own = [
    domain,
    `instances.${domain}`,
    `inference.${domain}`,
    'localhost',
    '127.0.0.1',
    '::1',
    network.gateway_v4,
  ]
  return [...new Set([...own, ...specific, ...tls.names])]
}

type Source = {
  readonly kind: Tls['source']
  readonly first: TlsPair
  readonly caFile: string | null
  readonly intervalMs: number
  readonly warnMs: number
  /** The pair to serve from now on, or null for no change. */
  readonly look: (now: { readonly current: TlsPair; readonly forced: boolean }) => Promise<TlsPair | null>
}

async function localSource(deps: TlsDeps): Promise<Source> {
  const { config, stateDir, clock } = deps
  const authority = await openAuthority({ stateDir, nowMs: clock.nowMs, random: deps.random })
  const dir = join(stateDir, 'tls')
  // Key and chain in one file, so that no crash parts them.
  const file = join(dir, 'server.pem')
  ensureDir(dir, { mode: 0o700 })
  const names = certificateNames(config)
  const renew = async (): Promise<TlsPair> => {
    const pair = await issuePair(authority, names, config.tls.validity_days)
    writeFileAtomic(file, `${pair.key}${pair.cert}`, { mode: 0o600 })
    return pair
  }
  const isDue = (pair: TlsPair): boolean => {
    const nowMs = clock.nowMs()
    const atEndOfAuthority = pair.notAfterMs >= authority.notAfterMs - 1000
    const left = pair.notAfterMs - nowMs
    // A wall clock that jumped back makes the certificate one of the future.
    return pair.notBeforeMs > nowMs || left <= 0 || (left < config.tls.renew_before_days * dayMs && !atEndOfAuthority)
  }
  const kept = readKept(file, authority, names)
  return {
    kind: 'local',
    first: kept === null || isDue(kept) ? await renew() : kept,
    caFile: authority.caFile,
    intervalMs: renewIntervalMs,
    // Renewal is on its way long before; being this late means that it keeps failing, or that the authority itself ends.
    warnMs: Math.min(expiryWarnMs, (config.tls.renew_before_days * dayMs) / 2),
    look: async ({ current }) => (isDue(current) ? await renew() : null),
  }
}

async function issuePair(authority: Authority, names: readonly string[], validityDays: number): Promise<TlsPair> {
  const issued = await authority.issue(names, validityDays)
  const verdict = readPair(issued.cert, issued.key)
  if (!verdict.ok) throw new Fault('internal', `local certificate: ${verdict.reason}`)
  return verdict.pair
}

/** The certificate of an earlier start when it is of this authority and for these names, else null. */
function readKept(file: string, authority: Authority, names: readonly string[]): TlsPair | null {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    return null
  }
  const certAt = text.indexOf('-----BEGIN CERTIFICATE-----')
  const verdict = readPair(text.slice(Math.max(certAt, 0)), text.slice(0, Math.max(certAt, 0)))
  if (!verdict.ok || !isIssuedBy(verdict.pair, authority)) return null
  return sameNames(verdict.pair.names, names) ? verdict.pair : null
}

function operatorSource({ config, clock, log, onEvent }: TlsDeps): Source {
  const { certificate_file: certificateFile, key_file: keyFile } = config.tls
  const read = () => readPair(readFileSync(certificateFile, 'utf8'), readFileSync(keyFile, 'utf8'))
  const stamp = () => `${stampOf(certificateFile)} ${stampOf(keyFile)}`
  let seen = stamp()
  let settling: string | null = null
  let first: TlsPair
  try {
    const verdict = read()
    if (!verdict.ok) throw new Error(verdict.reason)
    first = verdict.pair
  } catch (error) {
    const why = `tls.certificate_file ${certificateFile}, tls.key_file ${keyFile}`
    throw new Fault('config.invalid', wrapFault(error, why).message, { param: 'tls.certificate_file', cause: error })
  }
  const refuse = (reason: string): null => {
    log.warn('certificate refused, the old one stays', { reason, certificateFile, keyFile })
    onEvent('tls.refused', { reason, certificate_file: certificateFile })
    return null
  }
  return {
    kind: 'operator',
    first,
    caFile: null,
    intervalMs: watchIntervalMs,
    warnMs: expiryWarnMs,
    look: async ({ current, forced }) => {
      const now = stamp()
      if (now === seen && !forced) return null
      const verdict = readQuietly(read)
      // Two files are not replaced at once: what does not fit is judged when it has not changed for one interval.
      if (!verdict.ok && !forced && settling !== now) {
        settling = now
        return null
      }
      seen = now
      settling = null
      if (!verdict.ok) return refuse(verdict.reason)
      const nowMs = clock.nowMs()
      if (verdict.pair.notAfterMs <= nowMs && current.notAfterMs > nowMs) {
        return refuse(`the certificate expired at ${new Date(verdict.pair.notAfterMs).toISOString()}`)
      }
      return verdict.pair
    },
  }
}

function readQuietly(read: () => ReturnType<typeof readPair>): ReturnType<typeof readPair> {
  try {
    return read()
  } catch (error) {
    return { ok: false, reason: messageOf(error) }
  }
}

/** Changes whenever the file does, through symbolic links too. */
function stampOf(file: string): string {
  try {
    const { dev, ino, size, mtimeMs, ctimeMs } = statSync(file)
    return [dev, ino, size, mtimeMs, ctimeMs].join(':')
  } catch (error) {
    return String(Reflect.get(Object(error), 'code'))
  }
}

async function repeat(
  everyMs: number,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
  work: () => Promise<void>,
): Promise<void> {
  while (!signal.aborted) {
    try {
      await clock.sleep(everyMs, signal)
    } catch {
      return
    }
    await work()
  }
}
