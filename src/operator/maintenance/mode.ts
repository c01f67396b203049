// Maintenance of this host: nothing new is accepted, everything that exists keeps running, and responses carry a
// notice. Effects: one row of the ledger, so that a restart keeps the mode.

import { type Clock, iso } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { type AdminMaintenanceBegin, MaintenanceNotice } from '../../contract/admin/maintenance.ts'
import { checkedJson } from '../../contract/check.ts'
import { UnavailableFault } from '../../http/limited.ts'
import type { Store } from '../../store/db.ts'
import { readMeta, removeMeta, swapMeta } from '../../store/ledger/meta.query.ts'

export const maintenanceHeader = 'X-Strongroom-Maintenance'

const metaName = 'maintenance'
/** Retry-After without an expected end, and after it has passed. */
const retryMs = 10 * 60 * 1000

export class MaintenanceMode {
  readonly #ledger: Store['ledger']
  readonly #clock: Pick<Clock, 'nowMs'>
  #notice: MaintenanceNotice | null

  constructor(store: Pick<Store, 'ledger'>, { clock, log }: { clock: Pick<Clock, 'nowMs'>; log: Logger }) {
    this.#ledger = store.ledger
    this.#clock = clock
    this.#notice = stored(store.ledger, log)
  }

  /** Null if this host is in operation. */
  view(): MaintenanceNotice | null {
    return this.#notice
  }

  /** Begins, or changes the end and the message; the beginning stays. */
  begin({ until, message }: AdminMaintenanceBegin): MaintenanceNotice {
    const since = this.#notice?.since ?? iso(this.#clock.nowMs())
    const notice = { since, until, message }
    swapMeta(this.#ledger.db, metaName, JSON.stringify(notice))
    this.#notice = notice
    return notice
  }

  /** Returns false if there was none. */
  end(): boolean {
    const wasOn = this.#notice !== null
    removeMeta(this.#ledger.db, metaName)
    this.#notice = null
    return wasOn
  }

  /** Throws UnavailableFault during maintenance; its words are for tenants. `what`: such as `instances`. */
  admitNew(what: string): void {
    const notice = this.#notice
    if (notice === null) return
    const { until, message } = notice
    const waitMs = until === null ? 0 : Date.parse(until) - this.#clock.nowMs()
    const end = until === null ? '' : ` until about ${until}`
    const words = message === '' ? '' : ` Message of the operator: ${message}`
    throw new UnavailableFault(
      `This appliance is in maintenance${end} and accepts no new ${what}. Nothing was created; send the request again after the time in Retry-After.${words}`,
      waitMs > 0 ? waitMs : retryMs,
    )
  }

  /** Returns a handler that does the same, and adds the notice to responses during maintenance. */
  noticed<Args extends unknown[]>(
    handler: (...args: Args) => Response | Promise<Response>,
  ): (...args: Args) => Promise<Response> {
    return async (...args) => {
      const response = await handler(...args)
      if (this.#notice !== null) response.headers.set(maintenanceHeader, headerText(this.#notice))
      return response
    }
  }
}

/** A dictionary of RFC 9651. */
function headerText({ since, until, message }: MaintenanceNotice): string {
  const text = (value: string) => `"${value.replaceAll(/[\\"]/g, match => `\\${match}`)}"`
  return [
    `since=${text(since)}`,
    ...(until === null ? [] : [`until=${text(until)}`]),
    ...(message === '' ? [] : [`message=${text(message)}`]),
  ].join(', ')
}

/** A row that cannot be read keeps the mode on: an operator wanted it. */
function stored({ db }: Store['ledger'], log: Logger): MaintenanceNotice | null {
  const text = readMeta(db, metaName)
  if (text === null) return null
  try {
    return checkedJson(MaintenanceNotice, new TextEncoder().encode(text), { what: metaName, code: 'internal' })
  } catch (error) {
    log.error('the notice of maintenance cannot be read; this host stays in maintenance', { error })
    return { since: iso(0), until: null, message: '' }
  }
}
