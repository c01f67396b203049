// Charts of the gateway's requests, tokens and first-chunk times since the page was opened.

import { countText } from '../../core/format.ts'
import { quantileOf, sumOf } from '../../core/metrics.ts'
import { Chart } from '../../parts/chart.tsx'
import { Card, Facts, Waiting } from '../../parts/page.tsx'
import { CommandLine } from '../../parts/text.tsx'
import { useMetrics } from './metrics-history.ts'

const firstChunk = 'gen_ai_server_time_to_first_token_seconds'

export function GatewayCharts() {
  const { latest, points } = useMetrics()
  if (latest === null) return <Waiting what="metrics" />
  const times = points.map(({ atS }) => atS)
  const last = points.at(-1)
  const half = quantileOf(latest, firstChunk, 0.5)
  const most = quantileOf(latest, firstChunk, 0.95)
  return (
    <Card title="Requests" wide>
      <CommandLine command="strongroom metrics" />
      <Facts
        rows={[
          ['Since the start', `${countText(sumOf(latest, 'strongroom_gateway_requests_total'))} requests`],
          ['Running', countText(sumOf(latest, 'strongroom_gateway_requests_running'))],
          ['Waiting for an upstream', countText(sumOf(latest, 'strongroom_gateway_requests_queued'))],
          [
            'First chunk',
            half === null
              ? 'no requests yet'
              : `${secondsText(half)} median, ${secondsText(most ?? half)} 95th percentile`,
          ],
        ]}
      />
      <div class="charts">
        <Chart
          title="Requests per second"
          times={times}
          series={[
            { name: 'all', values: points.map(({ requests }) => requests) },
            { name: 'failed', values: points.map(({ failures }) => failures) },
          ]}
          format={rateText}
          summary={`${rateText(last?.requests ?? 0)} now, ${rateText(last?.failures ?? 0)} failed`}
        />
        <Chart
          title="Tokens per second"
          times={times}
          series={[
            { name: 'prompt', values: points.map(({ promptTokens }) => promptTokens) },
            { name: 'completion', values: points.map(({ completionTokens }) => completionTokens) },
          ]}
          format={rateText}
          summary={`${rateText(last?.promptTokens ?? 0)} prompt, ${rateText(last?.completionTokens ?? 0)} completion`}
        />
        <Chart
          title="Time to the first chunk"
          times={times}
          series={[
            { name: 'median', values: points.map(({ firstChunkHalfS }) => firstChunkHalfS) },
            { name: '95th percentile', values: points.map(({ firstChunkMostS }) => firstChunkMostS) },
          ]}
          format={secondsText}
          summary={
            last?.firstChunkHalfS == null
              ? 'no requests in the last interval'
              : `${secondsText(last.firstChunkHalfS)} median`
          }
        />
      </div>
    </Card>
  )
}

function rateText(perSecond: number): string {
  return perSecond >= 10 ? countText(Math.round(perSecond)) : perSecond.toFixed(perSecond === 0 ? 0 : 1)
}

function secondsText(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`
}
