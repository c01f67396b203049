// Alerts in the admin interface: a test message to each receiver. Effects: the appliance sends it, by a function.

import { Elysia } from 'elysia'
import { Fault } from '../../base/fault.ts'
import { AdminAlertsTest } from '../../contract/admin/alerts.ts'

/** Sends a test to each receiver. Null if none is configured. */
export type TestAlerts = (() => Promise<AdminAlertsTest['results']>) | null

export function alertRoutes({ testAlerts }: { readonly testAlerts: TestAlerts }) {
  return new Elysia({ normalize: false }).post(
    '/alerts/test',
    async () => {
      if (testAlerts === null) {
        const message =
          'no receiver of alerts is configured: set alerts.webhook_url, or alerts.smtp_server and alerts.email_to'
        throw new Fault('conflict', message, { param: 'alerts' })
      }
      return { results: await testAlerts() }
    },
    { response: AdminAlertsTest },
  )
}
