// Memory for large bodies and for earlier responses that requests name, of all requests of this
// process together. State in memory.

import { FairSlots, type SlotOwner } from '../../base/work/fair-slots.ts'
import { BusyFault } from '../failure.ts'

/** Room for four bodies of the default limit. */
const roomBytesMin = 134_217_728
/** An organization may hold 1 / `parts` of the room. */
const parts = 2
const retryAfterSeconds = 5

export class BodyRoom {
  readonly #places: FairSlots

  /** `bodyBytesMax`: each of two organizations has room for one body of that size, as sent and decoded. */
  constructor(bodyBytesMax: number) {
    this.#places = new FairSlots(Math.max(roomBytesMin, 2 * parts * bodyBytesMax))
  }

  /** Takes room. The returned function releases it, once. Throws BusyFault if there is none at present. */
  take(bytes: number, organizationId: string): () => void {
    const owners: readonly SlotOwner[] = [{ name: organizationId, parts }]
    const leave = this.#places.take(owners, bytes)
    if (typeof leave === 'function') return leave
    const whose = leave === 'own' ? 'Your organization’s requests hold' : 'Requests hold'
    throw new BusyFault(
      `${whose} all memory for large bodies; retry shortly, send smaller pictures, or name fewer earlier responses.`,
      retryAfterSeconds,
    )
  }
}
