// Why a snapshot is not taken or kept, as callers see it. Pure.

import { Fault } from '../../base/fault.ts'
import { harmlessLine } from '../../base/harmless.ts'

/** A snapshot has no room here now. */
export class RoomFault extends Fault {}

/** The share of an organization is used up. */
export class ShareFault extends RoomFault {}

/** No file has changed since the last snapshot, so the owner's schedule skips one. */
class UnchangedFault extends Fault {}

/** Reports whether the guest refused: `channel.refused` has its words. */
export function isOfGuest(error: Error): boolean {
  return error instanceof Fault && error.code === 'channel.refused'
}

/** Reports whether the VM has not ended an attempt yet, which may have failed here already. */
export function isBusy(error: Error): boolean {
  return isOfGuest(error) && error.message.startsWith('failed: snapshot: another one is under way')
}

export function isUnchanged(error: Error): boolean {
  return error instanceof UnchangedFault
}

export function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}

export function switchedOff(): Fault {
  return new Fault('conflict', 'Snapshots are switched off on this host.')
}

/** Explains refusals of a guest that have a meaning of their own. Returns every other failure unchanged. */
export function explained(error: unknown): Error {
  if (error instanceof Fault && error.code === 'channel.refused') {
    if (error.message.startsWith('bad_request'))
      return new Fault('conflict', 'The image of this instance has no snapshots; create another instance.')
    if (error.message.startsWith('unchanged'))
      return new UnchangedFault('conflict', 'No file has changed since the last snapshot.')
  }
  return toError(error)
}

const messageCharsMax = 1_000

/** Text for the owner of an instance. */
export function shownReason(error: Error): string {
  return error instanceof Fault ? shortLine(error.message) : 'An unexpected error occurred; the operator has its log.'
}

export function shortLine(message: string): string {
  return harmlessLine(message).slice(0, messageCharsMax)
}
