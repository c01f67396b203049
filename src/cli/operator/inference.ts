// strongroom inference: the VM of the gateway, as the operator sees it. Effects: requests to the daemon.

import { AdminGatewayVmLog, AdminGatewayVms } from '../../contract/admin/gateway-vms.ts'
import { countOption } from '../../terminal/options.ts'
import { dash, oneLine, type Paint, table, timeText } from '../../terminal/render.ts'
import type { Command } from '../operator-run.ts'

export function addInference(program: Command): void {
  const inference = program
    .command('inference')
    .description('the VM of the inference gateway: show, update, logs')
    .examples('strongroom inference show', 'strongroom inference update')

  inference
    .command('show')
    .description('show the gateway VMs: the one that serves, those that start or drain, and the last former ones')
    .examples('strongroom inference show', 'strongroom inference show --json')
    .runs(async run => {
      await run.show({ path: '/inference', response: AdminGatewayVms }, gatewaysText)
    })

  inference
    .command('update')
    .description('start a new VM; it serves when it is verified, and the former one completes its requests')
    .examples('strongroom inference update')
    .runs(async run => {
      await run.show({ method: 'POST', path: '/inference/update', response: AdminGatewayVms }, gatewaysText)
      await run.hint('`strongroom inference show` has the progress')
    })

  inference
    .command('logs')
    .description(
      'print the last log lines of the VM that serves, or else of the one that starts: ids and codes, never text of a request',
    )
    .option('--from <n>', 'start at this line number', countOption(0, Number.MAX_SAFE_INTEGER), 0)
    .examples('strongroom inference logs', 'strongroom inference logs --from 120 --json')
    .runs(async (run, { from }: { from: number }) => {
      const found = await run.client().request({ path: '/inference/log', query: { from }, response: AdminGatewayVmLog })
      await run.result(found, found.lines.map(({ seq, line }) => `${seq} ${oneLine(line)}`).join('\n'))
    })
}

function gatewaysText({ placement, problem, gateways }: AdminGatewayVms, paint: Paint): string {
  if (placement === 'off') return 'there is no gateway: listen.inference is off'
  if (placement === 'host') return 'the gateway is a part of the daemon: inference.placement is "host"'
  const rows = gateways.map(gateway => [
    gateway.vm,
    paint.word(gateway.state),
    dash(gateway.address),
    gateway.current ? 'yes' : 'no',
    gateway.requests_running === null ? '-' : String(gateway.requests_running),
    `${gateway.usage_booked}${gateway.usage_waiting ? ` + ${gateway.usage_waiting}` : ''}`,
    timeText(gateway.since),
    oneLine(dash(gateway.problem ?? gateway.reason)),
  ])
  const head = ['VM', 'STATE', 'ADDRESS', 'CURRENT', 'RUNNING', 'USAGE ROWS', 'SINCE', 'PROBLEM']
  const found = gateways.length === 0 ? 'there is no gateway VM yet' : table(paint, head, rows)
  return problem === null ? found : `${found}\n\nproblem: ${oneLine(problem)}`
}
