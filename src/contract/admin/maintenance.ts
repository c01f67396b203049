// Maintenance of a single host, in the admin interface and for tenants. Pure.

import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

const Time = Type.String({ description: 'ISO 8601 UTC', maxLength: 32 })
/** Printable ASCII, because it is also sent in a header. */
const Message = Type.String({ pattern: '^[ -~]*$', maxLength: 200 })

/** The notice for tenants. */
export const MaintenanceNotice = Closed({
  since: Time,
  /** Expected end; null if unknown. Maintenance does not end by itself. */
  until: OrNull(Time),
  /** The operator's words; empty without any. */
  message: Message,
})
export type MaintenanceNotice = Static<typeof MaintenanceNotice>

/** Null if this host is in operation. */
export const AdminMaintenance = Closed({ maintenance: OrNull(MaintenanceNotice) })
export type AdminMaintenance = Static<typeof AdminMaintenance>

export const AdminMaintenanceBegin = Closed({ until: OrNull(Time), message: Message })
export type AdminMaintenanceBegin = Static<typeof AdminMaintenanceBegin>
