// The operator's own certificate files, followed as they change. Effects: reads files.

import { readFileSync, statSync } from 'node:fs'
import { iso } from '../base/clock.ts'
import { Fault, messageOf, systemErrorCode, wrapFault } from '../base/fault.ts'
import { openAuthority } from './authority.ts'
import { certificateNames, expiryWarnMs, type Source, type TlsDeps } from './certificate-source.ts'
import { readPair, type TlsPair } from './pair.ts'

const watchIntervalMs = 2_000

export function operatorSource({ config, stateDir, clock, random, log, onEvent }: TlsDeps): Source {
  const { certificate_file: certificateFile, key_file: keyFile } = config.tls
  const read = () => readPair(readFileSync(certificateFile, 'utf8'), readFileSync(keyFile, 'utf8'))
  const stamp = () => `${stampOf(certificateFile)} ${stampOf(keyFile)}`
  let seen = stamp()
  let unsettled: string | null = null
  let first: TlsPair
  try {
    const verdict = read()
    if (!verdict.ok) throw new Error(verdict.reason)
    first = verdict.pair
  } catch (error) {
    const why = `tls.certificate_file ${certificateFile}, tls.key_file ${keyFile}`
    throw new Fault('config.file', wrapFault(error, why).message, { param: 'tls.certificate_file', cause: error })
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
    show: async pair => ({ first: pair, named: [] }),
    former: () => null,
    leaves: async () => null,
    stamp: () => JSON.stringify(certificateNames(config)),
    authorityEndsMs: null,
    intervalMs: watchIntervalMs,
    warnMs: expiryWarnMs,
    // The operator's certificate cannot sign, so a gateway VM gets its certificate from an authority of this appliance.
    authority: () =>
      openAuthority({ kind: 'clients', stateDir, names: certificateNames(config), nowMs: clock.nowMs, random }),
    check: async ({ current, forced }) => {
      const now = stamp()
      if (now === seen && !forced) return null
      const verdict = readQuietly(read)
      // Two files cannot be replaced atomically: a mismatched pair is refused once it stayed unchanged for an interval.
      if (!verdict.ok && !forced && unsettled !== now) {
        unsettled = now
        return null
      }
      seen = now
      unsettled = null
      if (!verdict.ok) return refuse(verdict.reason)
      const nowMs = clock.nowMs()
      if (verdict.pair.notAfterMs <= nowMs && current.notAfterMs > nowMs) {
        return refuse(`the certificate expired at ${iso(verdict.pair.notAfterMs)}`)
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

/** Changes with the file, also through symbolic links. */
function stampOf(file: string): string {
  try {
    const { dev, ino, size, mtimeMs, ctimeMs } = statSync(file)
    return [dev, ino, size, mtimeMs, ctimeMs].join(':')
  } catch (error) {
    return String(systemErrorCode(error))
  }
}
