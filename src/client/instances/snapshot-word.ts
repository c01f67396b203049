// Which snapshot a word of the command line means: NAME or NAME:NUMBER. Effects: reads files, requests lists. Faults
// invalid_request, not_found, and those of the service.

import { InvalidArgumentError } from 'commander'
import type { Snapshot } from '../../contract/http/snapshot.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { readInstanceHostname } from '../../verifier/instance.ts'
import { findKnownHost } from '../known-hosts.ts'
import type { SeenSnapshots, SnapshotMemory } from '../snapshots/memory.ts'
import type { LocalNames } from './names.ts'
import type { Service } from './service.ts'
import type { SnapshotService } from './snapshot-service.ts'
import { targetWord, unknownName } from './target.ts'

export type SnapshotWord = {
  /** A name of an instance, or a whole host name. */
  readonly word: string
  /** Null for the newest. */
  readonly number: number | null
}

/** Throws commander's InvalidArgumentError. */
export function snapshotWord(text: string): SnapshotWord {
  const [, word = '', digits] = /^([^:]*)(?::([1-9][0-9]{0,8}))?$/.exec(text) ?? []
  if (word === '')
    throw new InvalidArgumentError('It must be NAME, or NAME:NUMBER as `strongroom snapshot ls` shows it.')
  return { word: targetWord(word), number: digits === undefined ? null : Number(digits) }
}

export type WordLookup = {
  readonly names: LocalNames
  readonly memory: SnapshotMemory
  readonly service: Pick<Service, 'retrieve' | 'host'>
}

/** Returns the memory of the instance that the word means, also after its end. */
export async function knownInstance(word: string, { names, memory, service }: WordLookup): Promise<SeenSnapshots> {
  const hostname = readInstanceHostname(word) === null ? (names.find(word)?.hostname ?? null) : word
  const found = hostname === null ? memory.named(word) : seenOf(hostname, names, memory)
  if (found !== null) return found
  const record = hostname === null && /^[a-z0-9]{8}$/.test(word) ? await service.retrieve(word) : null
  const last = hostname ?? record?.hostname ?? null
  if (last === null) throw unknownName(word)
  const seen = seenOf(last, names, memory)
  if (seen !== null) return seen
  throw new AdvisedFault('not_found', `this machine has never verified ${last}, whose host key signs its snapshots`, {
    remedy: `copy ~/.config/strongroom/snapshots/${last}.json from the machine that has`,
  })
}

/** The file of the memory; without one, the verified line of known_hosts. */
function seenOf(hostname: string, names: LocalNames, memory: SnapshotMemory): SeenSnapshots | null {
  const seen = memory.find(hostname)
  if (seen !== null) return seen
  const known = findKnownHost(names.knownHosts, hostname)
  const hostKey = known?.line.split(' ').slice(1).join(' ')
  return hostKey === undefined ? null : { hostname, localName: null, hostKey, atMs: 0, newest: null }
}

/** The record of a snapshot that the service has. */
export async function findSnapshot(
  { hostname, newest }: SeenSnapshots,
  number: number | null,
  service: Pick<SnapshotService, 'list' | 'host'>,
): Promise<Snapshot> {
  const instance = hostname.split('.')[0] ?? ''
  const list = await service.list(instance)
  const snapshots = list?.snapshots ?? []
  const found = number === null ? snapshots.at(-1) : snapshots.find(snapshot => snapshot.number === number)
  if (found !== undefined) return found
  const known = newest === null ? '' : `; this machine has seen snapshot ${newest.number} of it`
  const what = number === null ? 'no snapshot' : `no snapshot ${number}`
  throw new AdvisedFault('not_found', `${service.host} has ${what} of ${hostname}${known}`, {
    remedy: '`strongroom snapshot ls` lists those that it has',
  })
}
