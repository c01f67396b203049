// Release files of Debian's archives: when a suite was last changed, and which one it is. Pure.
// https://wiki.debian.org/DebianRepository/Format, "Release" files. Their signatures are apt's to check; what is here
// decides about time.

import { type Static, Type } from '@sinclair/typebox'
import { ImageFault } from './image-fault.ts'

/** State of the archive that a lock was made from, with the suite that was asked for. */
export const LockedRelease = Type.Object(
  {
    archive: Type.Union([Type.Literal('debian'), Type.Literal('debian-security')]),
    suite: Type.String({ pattern: '^[a-z][a-z-]*$', maxLength: 64 }),
    codename: Type.String({ pattern: '^[a-z][a-z-]*$', maxLength: 64 }),
    /** `Date` of the Release file, ISO 8601 in UTC. */
    date: Type.String({ pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$' }),
  },
  { additionalProperties: false },
)
export type LockedRelease = Static<typeof LockedRelease>

export type Release = LockedRelease & { readonly validUntil: string | null }

/** Reads an InRelease or a Release file of this suite. Throws release_refused: another suite's, or without a date. */
export function readRelease(text: string, { archive, suite }: Pick<LockedRelease, 'archive' | 'suite'>): Release {
  const fields = signedPart(text)
  const codename = field(fields, 'Codename') ?? ''
  if (codename !== suite && field(fields, 'Suite') !== suite) {
    throw new ImageFault('release_refused', `${archive} ${suite}: its Release is of ${codename || 'no suite'}`)
  }
  const date = isoOf(field(fields, 'Date'))
  if (date === null) throw new ImageFault('release_refused', `${archive} ${suite}: its Release has no date`)
  return { archive, suite, codename, date, validUntil: isoOf(field(fields, 'Valid-Until')) }
}

/** Throws release_refused when any suite is older than the lock's: a stale mirror must not take us back. */
export function refuseOlder(before: readonly LockedRelease[], after: readonly LockedRelease[]): void {
  const older = after.flatMap(release => {
    const locked = before.find(({ archive, suite }) => archive === release.archive && suite === release.suite)
    if (locked === undefined || release.date >= locked.date) return []
    return [`${release.archive} ${release.suite}: Release of ${release.date}, the lock was made from ${locked.date}`]
  })
  if (older.length > 0) throw new ImageFault('release_refused', older.join('; '))
}

/** Lines that say from which state of the archive a new lock is made, for people. */
export function releaseLines(before: readonly LockedRelease[], after: readonly Release[], nowMs: number): string[] {
  return after.map(({ archive, suite, codename, date, validUntil }) => {
    const locked = before.find(release => release.archive === archive && release.suite === suite)
    const moved = locked === undefined ? '' : `${locked.codename} ${locked.date} -> `
    const isPast = validUntil !== null && Date.parse(validUntil) < nowMs
    const past = isPast ? `; ITS TIME ENDED ${validUntil}: the mirror may be held back` : ''
    return `${archive} ${suite}: ${moved}${codename} ${date}${past}`
  })
}

/** The signed part of a clear-signed file (RFC 9580 section 7); anybody can write the fields around it. */
function signedPart(text: string): string {
  if (!text.includes('-----BEGIN PGP')) return text
  return (
    /^-----BEGIN PGP SIGNED MESSAGE-----\n(?:[A-Za-z]+: .*\n)*\n([\s\S]*?)\n-----BEGIN PGP SIGNATURE-----\n/.exec(
      text,
    )?.[1] ?? ''
  )
}

function field(text: string, name: string): string | null {
  return new RegExp(`^${name}: (.+)$`, 'm').exec(text)?.[1]?.trim() ?? null
}

/** RFC 5322 dates, as Release files have them. */
function isoOf(date: string | null): string | null {
  const ms = Date.parse(date ?? '')
  return Number.isNaN(ms) ? null : new Date(ms).toISOString().replace('.000Z', 'Z')
}
