// strongroom usage: the organization's current billing period. Effects: the network.

import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { bytesText, fields, type Paint, timeText } from '../../terminal/render.ts'
import { clientConfigHelp, loadClientDefaults } from '../client-config.ts'
import { addServiceOptions, readService, type ServiceOptions } from '../verify/service-options.ts'
import type { SeenUsage } from './records.ts'
import { createService } from './service.ts'

export function addUsage(program: Command): void {
  addServiceOptions(program.command('usage').description('show what your organization used in this billing period'))
    .addHelpText(
      'after',
      `${clientConfigHelp}
The numbers are those of the service, for all instances together: it has none of a single instance. Only the egress
limit is one for each instance.
${helpText('strongroom usage', 'strongroom usage --json')}`,
    )
    .runs(show)
}

async function show(run: Run, options: ServiceOptions): Promise<void> {
  const { env } = run.io
  const { pricing, usage } = await createService(readService(env, options, await loadClientDefaults(env))).usage()
  await run.result(documentOf({ pricing, usage }), () => textOf(run.paint, { pricing, usage }))
}

/** Returns the known fields. Leaves out those of later versions. */
function documentOf({ pricing, usage }: SeenUsage) {
  return {
    pricing: {
      period_start: pricing.period_start,
      period_end: pricing.period_end,
      subscription_cost_usd: pricing.subscription_cost_usd,
      instance_hours_included: pricing.instance_hours_included,
      overage_per_hour_usd: pricing.overage_per_hour_usd,
    },
    usage: {
      instance_hours_used: usage.instance_hours_used,
      inference_cost_usd: usage.inference_cost_usd,
      egress_bytes: usage.egress_bytes,
      egress_limit_bytes: usage.egress_limit_bytes,
      egress_observed_at: usage.egress_observed_at,
      egress_blocked: usage.egress_blocked,
      egress_block_applied_at: usage.egress_block_applied_at,
    },
  }
}

function textOf(paint: Paint, { pricing, usage }: SeenUsage): string {
  const blocked = usage.egress_block_applied_at
  const hours = usage.instance_hours_used.toFixed(2)
  return fields(paint, [
    ['period', `${timeText(pricing.period_start)} to ${timeText(pricing.period_end)}`],
    ['base cost', `$${pricing.subscription_cost_usd}`],
    [
      'instance hours',
      `${hours} of ${pricing.instance_hours_included} included; $${pricing.overage_per_hour_usd} for each further hour`,
    ],
    ['inference', `$${usage.inference_cost_usd}`],
    [
      'egress',
      `${bytesText(usage.egress_bytes)} by all instances, at ${timeText(usage.egress_observed_at)}; limit of each: ${bytesText(usage.egress_limit_bytes)}`,
    ],
    ['blocked', usage.egress_blocked ? `an instance has spent its egress, since ${timeText(blocked)}` : 'no'],
  ])
}
