// The files stored from the key distribution service: their age and their problems. Effects: reads files of one
// directory.

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Product } from '../../attest/amd/product.ts'
import { chainRequest, crlRequest } from '../../attest/kds/request.ts'
import { decodeCrl } from '../../attest/x509/crl.ts'
import { iso } from '../../base/clock.ts'
import { resultOr } from '../../base/result-or.ts'
import { dayMs } from '../../base/time.ts'
import { collateralRemedy } from './collateral.ts'

/** Folder of the cache in the state directory. */
export const kdsDirName = 'kds'

/** Times in milliseconds since 1970; null if there is none. */
export type KeptCollateral = {
  readonly product: Product
  /** Certificates of keys that sign this host's reports, one per chip and TCB; the time of the newest. */
  readonly veks: { readonly count: number; readonly fetchedAtMs: number | null }
  readonly chainFetchedAtMs: number | null
  readonly crlFetchedAtMs: number | null
  /** When the CRL in force must be replaced. */
  readonly crlNextUpdateMs: number | null
}

/**
 * Returns the state of the stored files. Checks no signatures; the user of a file does that (kds.ts). Never throws: an
 * unreadable file counts as absent.
 */
export function keptCollateral(cacheDir: string, product: Product): KeptCollateral {
  const crl = crlRequest(product, 'vcek')
  const names = listOf(cacheDir).filter(name => name.startsWith(`vcek-${product}-`) && name.endsWith('.der'))
  const times = names.flatMap(name => timeOf(join(cacheDir, name)) ?? [])
  return {
    product,
    veks: { count: names.length, fetchedAtMs: times.length === 0 ? null : Math.max(...times) },
    chainFetchedAtMs: timeOf(join(cacheDir, chainRequest(product, 'vcek').file)),
    crlFetchedAtMs: timeOf(join(cacheDir, crl.file)),
    crlNextUpdateMs: nextUpdateOf(join(cacheDir, crl.file), crl.bodyBytesMax),
  }
}

export type CollateralProblem = {
  /** `bad`: no report of this host can be verified. `soon`: that will soon be so. */
  readonly kind: 'bad' | 'soon'
  readonly text: string
  readonly remedy: string
}

/** A CRL is requested every 6 hours; AMD's are in force for months. */
const renewalLateMs = 2 * dayMs
const endingMs = 14 * dayMs

/**
 * Returns the first problem; null if there is none. A VEK arrives with the first report, so its absence is not a
 * problem.
 */
export function collateralProblem(kept: KeptCollateral, nowMs: number): CollateralProblem | null {
  const { chainFetchedAtMs, crlFetchedAtMs, crlNextUpdateMs } = kept
  const problem = (kind: CollateralProblem['kind'], text: string) => ({ kind, text, remedy: collateralRemedy })
  if (chainFetchedAtMs === null || crlFetchedAtMs === null) {
    const missing = [...(chainFetchedAtMs === null ? ['chain'] : []), ...(crlFetchedAtMs === null ? ['CRL'] : [])]
    return problem('bad', `${missing.join(' and ')} could not be fetched yet`)
  }
  if (crlNextUpdateMs === null) return problem('bad', 'the CRL cannot be read')
  if (crlNextUpdateMs <= nowMs) return problem('bad', `the CRL ended at ${iso(crlNextUpdateMs)}`)
  if (crlNextUpdateMs - nowMs < endingMs) return problem('soon', `the CRL ends at ${iso(crlNextUpdateMs)}`)
  if (nowMs - crlFetchedAtMs > renewalLateMs)
    return problem('soon', `the CRL has not been renewed since ${iso(crlFetchedAtMs)}`)
  return null
}

function listOf(directory: string): string[] {
  return resultOr(() => readdirSync(directory), [])
}

function timeOf(path: string): number | null {
  return statSync(path, { throwIfNoEntry: false })?.mtime.getTime() ?? null
}

function nextUpdateOf(path: string, bytesMax: number): number | null {
  const read = () => decodeCrl(new Uint8Array(readFileSync(path))).nextUpdateMs
  return resultOr(() => (statSync(path).size > bytesMax ? null : read()), null)
}
