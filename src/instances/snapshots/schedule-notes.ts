// Instances whose VMs take snapshots by a schedule, in memory. Pure.
//
// A VM counts its time from what it has signed, so it must learn that its host has not kept that.

/** `isLost`: the VM has signed one since the last one that was kept. */
type Note = { isLost: boolean }

export class ScheduleNotes {
  /** By instance. */
  readonly #notes = new Map<string, Note>()

  /** Notes that a snapshot is due by the VM's count. */
  due(instanceId: string): void {
    if (!this.#notes.has(instanceId)) this.#notes.set(instanceId, { isLost: false })
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
