// The operator's prices: the table `billing` of the configuration. Pure.

import { Count, Section, Usd } from './fields.ts'

export const BillingConfig = Section({
  subscription_cost_usd: Usd('0.00', 'Cost of a billing period, whatever is used.'),
  instance_hours_included: Count(
    [0, 0, 1_000_000],
    'Instance-hours of a period that `subscription_cost_usd` includes.',
  ),
  overage_per_hour_usd: Usd('0.00', 'Cost of each instance-hour beyond the included ones.'),
})
