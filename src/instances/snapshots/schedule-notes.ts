// Instances whose VMs take snapshots by a schedule, in memory. Pure.
//
// A VM counts its time from what it has signed, so it must learn that its host has not kept that. This host counts too:
// one that always answers that a snapshot is due would keep the disk busy.

/** `beganMs`: the last attempt; null before the first. `isLost`: the VM has signed one since the last one was kept. */
type Note = { beganMs: number | null; isLost: boolean }

/** The shortest time of a schedule. */
const pauseMs = 15 * 60_000

export class ScheduleNotes {
  /** By instance. */
  readonly #notes = new Map<string, Note>()

  /** Notes that a snapshot is due by the VM's count. Reports whether it is by this host's, too. */
  isDue(instanceId: string, nowMs: number): boolean {
    const note = this.#notes.get(instanceId) ?? { beganMs: null, isLost: false }
    this.#notes.set(instanceId, note)
    return note.beganMs === null || nowMs - note.beganMs >= pauseMs
  }

  began(instanceId: string, nowMs: number): void {
    const note = this.#notes.get(instanceId)
    if (note !== undefined) note.beganMs = nowMs
  }

  /** Notes that the VM has signed one; `kept` follows, unless this host fails. */
  signed(instanceId: string): void {
    const note = this.#notes.get(instanceId)
    if (note !== undefined) note.isLost = true
  }

  kept(instanceId: string): void {
    const note = this.#notes.get(instanceId)
    if (note !== undefined) note.isLost = false
  }

  /** Reports whether the last one that the VM signed was not kept. False for a VM that has never had a schedule. */
  isLost(instanceId: string): boolean {
    return this.#notes.get(instanceId)?.isLost === true
  }

  forget(instanceId: string): void {
    this.#notes.delete(instanceId)
  }
}
