// Instances whose VMs take snapshots by a schedule, in memory. Pure.
//
// The VM counts the time of its schedule. This host counts too: a VM that always answers that a snapshot is due would
// keep the disk busy, and one for which there is no room would pack its files again and again.

/** `beganMs`: the last attempt; null before the first. `pauseMs`: from it to the next one. */
type Note = { beganMs: number | null; pauseMs: number }

/** The shortest time of a schedule. */
const pauseMs = 15 * 60_000
/** The longest pause after attempts that find no room. Each one doubles it. */
const pauseMsMax = 4 * 60 * 60_000

export class ScheduleNotes {
  /** By instance. */
  readonly #notes = new Map<string, Note>()

  /** Notes that a snapshot is due by the VM's count. Reports whether it is by this host's, too. */
  isDue(instanceId: string, nowMs: number): boolean {
    const note = this.#notes.get(instanceId) ?? { beganMs: null, pauseMs }
    this.#notes.set(instanceId, note)
    return note.beganMs === null || nowMs - note.beganMs >= note.pauseMs
  }

  began(instanceId: string, nowMs: number): void {
    const note = this.#notes.get(instanceId)
    if (note !== undefined) note.beganMs = nowMs
  }

  /** Notes the end of an attempt that began. `hadRoom`: false if there was no room for what it had packed. */
  ended(instanceId: string, { hadRoom }: { readonly hadRoom: boolean }): void {
    const note = this.#notes.get(instanceId)
    if (note !== undefined) note.pauseMs = hadRoom ? pauseMs : Math.min(note.pauseMs * 2, pauseMsMax)
  }

  /** Reports whether the VM has had a schedule since the start of this host. */
  has(instanceId: string): boolean {
    return this.#notes.has(instanceId)
  }

  forget(instanceId: string): void {
    this.#notes.delete(instanceId)
  }
}
