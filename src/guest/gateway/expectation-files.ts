// The two documents with the requirements for the gateway, as files. Effects: reads and writes below /run.
//
// The owner's is in a directory of the login user, who may put anything there: a link, a pipe, or more than fits.

import * as fs from 'node:fs'
import { Fault, systemErrorCode, wrapFault } from '../../base/fault.ts'
import { writeFileAtomic } from '../../linux/files.ts'
import type { GuestPaths } from '../paths.ts'
import { type Expectation, expectationBytesMax, expectationOf } from './expectation.codec.ts'

export type ExpectationPaths = Pick<GuestPaths, 'gatewaySettings' | 'ownGateway'>

/** The expectation in force; null if this instance has no gateway. Faults: invalid_request, internal. */
export function readExpectation({ gatewaySettings, ownGateway }: ExpectationPaths): Expectation | null {
  const settings = readBounded(gatewaySettings)
  return settings === null ? null : expectationOf(settings, readBounded(ownGateway))
}

/** Changes with either document. */
export function expectationStamp({ gatewaySettings, ownGateway }: ExpectationPaths): string {
  return `${stampOf(gatewaySettings)} ${stampOf(ownGateway)}`
}

function stampOf(path: string): string {
  const stat = fs.lstatSync(path, { bigint: true, throwIfNoEntry: false })
  return stat === undefined ? 'none' : `${stat.dev}:${stat.ino}:${stat.size}:${stat.mtimeNs}`
}

/** Runs as the login user. */
export function writeOwnGateway({ ownGateway }: Pick<GuestPaths, 'ownGateway'>, text: string): void {
  writeFileAtomic(ownGateway, text, { mode: 0o644 })
}

export function removeOwnGateway({ ownGateway }: Pick<GuestPaths, 'ownGateway'>): void {
  fs.rmSync(ownGateway, { force: true })
}

/** Null if the file does not exist. Faults: invalid_request (not a regular file, or too large), internal. */
function readBounded(path: string): string | null {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants
  let fd: number
  try {
    fd = fs.openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, `read ${path}`)
  }
  try {
    const stat = fs.fstatSync(fd)
    if (!stat.isFile()) throw new Fault('invalid_request', `${path}: not a file`)
    const bytes = Buffer.alloc(expectationBytesMax + 1)
    const count = fs.readSync(fd, bytes)
    if (count > expectationBytesMax) throw new Fault('invalid_request', `${path}: over ${expectationBytesMax} bytes`)
    return bytes.toString('utf8', 0, count)
  } finally {
    fs.closeSync(fd)
  }
}
