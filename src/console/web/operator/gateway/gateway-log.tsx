// The last log lines of the gateway's VM: ids and codes, never text of a request.

import type { Static } from '@sinclair/typebox'
import type { AdminGatewayVmLog } from '../../../../contract/admin/gateway-vms.ts'
import { useLoaded } from '../../core/loaded.ts'
import type { LoadRequest } from '../../core/request.ts'
import { operate } from '../../core/session.ts'
import { Card, Shown } from '../../parts/page.tsx'
import { StreamText } from '../../parts/stream-text.tsx'
import { CommandLine } from '../../parts/text.tsx'

const everyMs = 5_000

export function GatewayLog() {
  const load = (options: LoadRequest) => operate<Static<typeof AdminGatewayVmLog>>('/inference/log', options)
  const found = useLoaded('/inference/log', load, { topics: ['gateway'], everyMs })
  return (
    <Card title="Log" wide>
      <CommandLine command="strongroom inference logs" />
      <Shown of={found} what="the log">
        {({ lines }) => (
          <StreamText
            label="Log of the gateway's VM"
            text={lines.map(({ seq, line }) => `${seq} ${line}`).join('\n')}
            isCut={false}
            none="No lines yet."
          />
        )}
      </Shown>
    </Card>
  )
}
