// The request that this host made last, and the identity that opens the response. Effects: `share/` of the state
// directory, readable only by root.

import { join } from 'node:path'
import { utf8 } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { checked } from '../../contract/check.ts'
import { removeTree } from '../../linux/files/removal.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { SignedRequest } from './request.codec.ts'

export type Pending = { readonly asked: SignedRequest; readonly identity: string }

/** Stores a request. Replaces an earlier one, whose response can then no longer be opened. */
export function keepPending(stateDir: string, { asked, identity }: Pending): void {
  const dir = dirOf(stateDir)
  ensureDir(dir, { mode: 0o700 })
  writeFileAtomic(fileOf(stateDir), utf8(`${JSON.stringify({ asked, identity })}\n`), { mode: 0o600 })
}

/** Reads the request. Faults: `not_found` (there is none), `internal` (the file was damaged). */
export function readPending(stateDir: string): Pending {
  const text = readTextOrNull(fileOf(stateDir))
  if (text === null) {
    const message =
      'this host has asked for no secrets, or has them by now: make a request with `strongroom fleet share request`'
    throw new Fault('not_found', message)
  }
  const { asked, identity } = Object(parseJson(utf8(text), { depthMax: 4, what: fileOf(stateDir) }))
  if (typeof identity !== 'string') throw new Fault('internal', `${fileOf(stateDir)}: no identity; make a new request`)
  return { asked: checked(SignedRequest, asked, { what: fileOf(stateDir), code: 'internal' }), identity }
}

export function dropPending(stateDir: string): void {
  removeTree(fileOf(stateDir))
}

/** Returns the directory for the host's own secrets when others replace them. Each request has its own. */
export function asideDir(stateDir: string, requestSha256: string): string {
  return join(dirOf(stateDir), `before-${requestSha256.slice(0, 16)}`)
}

function dirOf(stateDir: string): string {
  return join(stateDir, 'share')
}

function fileOf(stateDir: string): string {
  return join(dirOf(stateDir), 'request.json')
}
