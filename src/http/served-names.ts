// Which names the local certificates bear: those of the appliance together, each other name by itself, and for a while
// those from before a change of the domain. Clients refuse a leaf with a single name that their root does not permit,
// so a new name must not stand in the leaf of the earlier ones. Effects: one file.

import { isIP } from 'node:net'
import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'

const Former = Type.Object({ names: Type.Array(Type.String()), endsAtMs: Type.Number() })
const Stored = Type.Object({ own: Type.Array(Type.String()), former: Type.Union([Former, Type.Null()]) })

/** Names of before, which are served until the time. */
export type FormerNames = Static<typeof Former>

/** DNS names that need a leaf of their own: neither the domain nor below it. */
export function otherNames(names: readonly string[], domain: string): string[] {
  return names.filter(name => isIP(name) === 0 && !isBelow(plain(name), domain))
}

/**
 * Reads what an earlier start served, and remembers what this one does. `own`: names of the leaf of the appliance.
 * `served`: those of the stored certificate, for a state directory from before this file; null if there is none.
 */
export function followNames(
  file: string,
  now: {
    readonly own: readonly string[]
    readonly all: readonly string[]
    readonly served: readonly string[] | null
    readonly nowMs: number
    readonly overlapMs: number
  },
): FormerNames | null {
  const stored = readStored(file) ?? (now.served === null ? null : { own: [...now.served], former: null })
  const former = stored === null ? null : formerOf(stored, now)
  writeNames(file, { own: [...now.own], former })
  return former
}

export function writeNames(file: string, stored: Static<typeof Stored>): void {
  writeFileAtomic(file, `${JSON.stringify(stored)}\n`, { mode: 0o600 })
}

function formerOf(
  stored: Static<typeof Stored>,
  { all, nowMs, overlapMs }: Parameters<typeof followNames>[1],
): FormerNames | null {
  const domains = all.filter(name => isIP(name) === 0 && name !== 'localhost').map(plain)
  const isKept = (name: string) => name === 'localhost' || domains.some(domain => isBelow(plain(name), domain))
  const isChanged = stored.own.some(name => isIP(name) === 0 && !isKept(name))
  if (isChanged && overlapMs > 0) return { names: stored.own, endsAtMs: nowMs + overlapMs }
  return stored.former !== null && stored.former.endsAtMs > nowMs ? stored.former : null
}

/** Null if there is none, or another program has written it. */
function readStored(file: string): Static<typeof Stored> | null {
  try {
    const value: unknown = JSON.parse(readTextOrNull(file) ?? 'null')
    return Value.Check(Stored, value) ? value : null
  } catch {
    return null
  }
}

function isBelow(name: string, domain: string): boolean {
  return name === domain || name.endsWith(`.${domain}`)
}

function plain(name: string): string {
  return name.replace(/^\*\./, '')
}
