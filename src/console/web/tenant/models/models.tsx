// Models of the gateway, their usage by model and day, and the gateway's evidence.

import { useSignal } from '@preact/signals'
import type { Static } from '@sinclair/typebox'
import { toBase64Url } from '../../../../base/bytes.ts'
import type { GatewayModel, GatewayModelList, GatewayUsageRows } from '../../../../contract/http/inference.ts'
import { commandOf } from '../../core/command.ts'
import { countText, usdText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { nowMs } from '../../core/now.ts'
import { RequestProblem } from '../../core/request.ts'
import { Choice } from '../../parts/field.tsx'
import { Card, Empty, Page, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { Foreign } from '../../parts/text.tsx'
import { UsageTable } from '../../parts/usage-table.tsx'
import { askService, publicBytes } from '../services.ts'
import { verifyOptions } from '../verify/options.ts'
import { Verification, type Verify } from '../verify/verification.tsx'

type Model = Static<typeof GatewayModel>

const nonceBytes = 32
const evidenceBytesMax = 2_097_152
const workloadBytesMax = 1_048_576

export function ModelsPage() {
  const list = useLoaded('/v1/models', options =>
    askService<Static<typeof GatewayModelList>>('inference', '/v1/models', options),
  )
  return (
    <Page title="Models and usage">
      <Card title="Models" wide>
        <Shown of={list} what="models">
          {({ data }) =>
            data.length === 0 ? (
              <Empty title="Your key may use no model" />
            ) : (
              <Table label="Models" columns={COLUMNS} rows={data} keyOf={({ id }) => id} />
            )
          }
        </Shown>
      </Card>
      <Verification
        title="Evidence of the gateway"
        lead="The gateway's VM proves now, for a nonce of this page, what it was launched from and which model is inside. A page cannot see the TLS key of its connection, so that check is not made here."
        verify={verifyGateway}
      />
      <UsageCard />
    </Page>
  )
}

const COLUMNS: readonly Column<Model>[] = [
  { name: 'Model', cell: ({ id }) => <Foreign text={id} /> },
  {
    name: 'Context',
    isNumber: true,
    cell: row => (row.context_length === undefined ? '–' : countText(row.context_length)),
  },
  { name: 'A million prompt tokens', isNumber: true, isWide: true, cell: row => priceOf(row.pricing?.prompt) },
  { name: 'A million completion tokens', isNumber: true, isWide: true, cell: row => priceOf(row.pricing?.completion) },
]

function priceOf(perToken: string | undefined): string {
  return perToken === undefined ? 'free' : usdText((Number(perToken) * 1_000_000).toFixed(6))
}

const verifyGateway: Verify = async ({ expected, asOf }) => {
  const nonce = crypto.getRandomValues(new Uint8Array(nonceBytes))
  const [document, workload] = await Promise.all([
    publicBytes('inference', `/attestation?nonce=${toBase64Url(nonce)}`, { bytesMax: evidenceBytesMax }),
    publicBytes('inference', '/workload.json', { bytesMax: workloadBytesMax }).catch(noWorkload),
  ])
  const { judgeGateway } = await import('../verify/judge.ts')
  const judged = await judgeGateway(document, { workload, nonce, expected, asOf })
  const own = workload === null ? [] : [{ name: 'workload.json', bytes: workload }]
  // A file that is named on the command line pins HOST_DATA. The host's own copy of it must not.
  const isUnpinned = judged.checks.some(({ name, outcome }) => name === 'pin-allowlist' && outcome === 'fail')
  const command = commandOf(['verify', 'gateway'], {
    document: 'attestation.json',
    workload: workload === null || isUnpinned ? null : 'workload.json',
    nonce: toBase64Url(nonce),
    'as-of': new Date(asOf).toISOString(),
    ...verifyOptions(expected, 'gateway'),
  })
  return { judged, command, files: [{ name: 'attestation.json', bytes: document }, ...own] }
}

/** A gateway in the daemon has none. */
function noWorkload(error: unknown): null {
  if (error instanceof RequestProblem && error.status === 404) return null
  throw error
}

const dayMs = 86_400_000

const SPANS = [
  ['7', '7 days'],
  ['30', '30 days'],
  ['90', '90 days'],
] as const

function UsageCard() {
  const days = useSignal<(typeof SPANS)[number][0]>('30')
  const dayOf = (ms: number) => new Date(ms).toISOString().slice(0, 10)
  const asked = {
    from: dayOf(nowMs.value - (Number(days.value) - 1) * dayMs),
    to: dayOf(nowMs.value),
    by: 'model,day',
  }
  const path = `/v1/usage?${new URLSearchParams(asked)}`
  const found = useLoaded(path, options => askService<Static<typeof GatewayUsageRows>>('inference', path, options))
  return (
    <Card
      title="Usage of this key by model and day"
      wide
      actions={
        <Choice label="Of" isCompact value={days.value} change={value => (days.value = value)} options={SPANS} />
      }
    >
      <Shown of={found} what="usage">
        {usage => <UsageTable usage={usage} />}
      </Shown>
    </Card>
  )
}
