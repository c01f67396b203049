// Models of the gateway, their usage by model and day, and the gateway's evidence.

import { useSignal } from '@preact/signals'
import type { Static } from '@sinclair/typebox'
import { toBase64Url } from '../../../../base/bytes.ts'
import { dayMs } from '../../../../base/time.ts'
import type { GatewayModel, GatewayModelList, GatewayUsageRows } from '../../../../contract/http/inference.ts'
import { commandOf } from '../../core/command.ts'
import { countText, usdText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { nowMs } from '../../core/now.ts'
import { type RequestOptions, RequestProblem } from '../../core/request.ts'
import { Choice } from '../../parts/field.tsx'
import { Card, Empty, Page, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { Foreign } from '../../parts/text.tsx'
import { UsageTable } from '../../parts/usage-table.tsx'
import { EvidenceCard } from '../evidence.tsx'
import { askService, fetchBytes, useServiceUrl } from '../services.ts'

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
              <Empty title="Your key has no models" />
            ) : (
              <Table label="Models" columns={COLUMNS} rows={data} keyOf={({ id }) => id} />
            )
          }
        </Shown>
      </Card>
      <GatewayEvidence />
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
  { name: 'Price per million prompt tokens', isNumber: true, cell: row => priceOf(row.pricing?.prompt) },
  { name: 'Price per million completion tokens', isNumber: true, cell: row => priceOf(row.pricing?.completion) },
]

function priceOf(perToken: string | undefined): string {
  return perToken === undefined ? 'free' : usdText((Number(perToken) * 1_000_000).toFixed(6))
}

function GatewayEvidence() {
  const url = useServiceUrl('inference')
  const found = useLoaded(workloadPath, options => hasWorkload(options))
  // These files decide what passes, so they must be the reader's own: this page saves none from the host.
  const own = {
    policy: 'gateway-policy.json',
    ...(found.data === false ? hostFiles : { workload: 'workload.json' }),
  }
  const load = async () => {
    const nonce = toBase64Url(crypto.getRandomValues(new Uint8Array(nonceBytes)))
    const bytes = await fetchBytes('inference', `/attestation?nonce=${nonce}`, { bytesMax: evidenceBytesMax })
    const document = 'gateway-attestation.json'
    return { name: document, bytes, command: commandOf(['verify', 'gateway'], { document, nonce, ...own }) }
  }
  const fresh = commandOf(['verify', 'gateway', url], own)
  return (
    <EvidenceCard title="Evidence of the gateway" load={load} fresh={fresh}>
      <p>
        The gateway's VM signs its launch and its model, together with a nonce from this page.
        {found.data !== false &&
          ' In the commands, workload.json is your own checked copy for the gateway that you expect.'}
      </p>
    </EvidenceCard>
  )
}

/** Files that pin a gateway without a VM of its own. */
const hostFiles = { allowlist: 'allowlist.json', configuration: 'gateway-configuration.json' }

const workloadPath = '/workload.json'

/** Reports whether the gateway runs in its own VM. A gateway in the daemon responds with 404. */
async function hasWorkload(options: RequestOptions): Promise<boolean> {
  try {
    await fetchBytes('inference', workloadPath, { ...options, bytesMax: workloadBytesMax })
    return true
  } catch (error) {
    if (error instanceof RequestProblem && error.status === 404) return false
    throw error
  }
}

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
        <Choice label="Period" isCompact value={days.value} change={value => (days.value = value)} options={SPANS} />
      }
    >
      <Shown of={found} what="usage">
        {usage => <UsageTable usage={usage} />}
      </Shown>
    </Card>
  )
}
