// One instance of the tenant: its state, how to log in, its evidence, and its deletion.

import { useSignal } from '@preact/signals'
import { toBase64Url } from '../../../../base/bytes.ts'
import type { InstanceRecord } from '../../../../contract/http/instance.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { Card, Facts, Note, Page, Shown, Waiting } from '../../parts/page.tsx'
import { CommandLine, Foreign, Instant, Link, StateMark } from '../../parts/text.tsx'
import { EvidenceCard } from '../evidence.tsx'
import { askInstances, fetchBytes, useServiceUrl } from '../services.ts'

const everyMs = 3_000
const nonceBytes = 32
const evidenceBytesMax = 1_048_576

export function InstancePage({ name }: { name: string }) {
  const path = pathTo`/v1/instances/${name}`
  const found = useLoaded(path, options => askInstances<InstanceRecord>(path, options), { everyMs })
  const isDeleting = useSignal(false)
  const { data } = found
  return (
    <Page
      title={name}
      lead={<Link href="/tenant">Instances</Link>}
      actions={
        data !== null &&
        data.status !== 'terminated' &&
        data.status !== 'terminating' && (
          <button type="button" class="danger" onClick={() => (isDeleting.value = true)}>
            Delete
          </button>
        )
      }
    >
      <Shown of={found} what="the instance">
        {instance => (
          <>
            {instance.failure_code !== null && (
              <Note tone="bad">
                <p>
                  <strong>{instance.failure_code}</strong> <Foreign text={instance.failure_message} none="" />
                </p>
              </Note>
            )}
            {instance.status === 'provisioning' && <Waiting what="the VM, which can take a few minutes," />}
            <StateCard instance={instance} />
            {instance.status === 'ready' && <Ready instance={instance} />}
          </>
        )}
      </Shown>
      {isDeleting.value && (
        <DeleteDialog
          name={name}
          close={() => (isDeleting.value = false)}
          deleted={() => {
            isDeleting.value = false
            found.reload()
          }}
        />
      )}
    </Page>
  )
}

function StateCard({ instance }: { instance: InstanceRecord }) {
  return (
    <Card title="State" wide>
      <Facts
        rows={[
          ['Status', <StateMark word={instance.status} />],
          ['Host name', <Foreign text={instance.hostname} />],
          ['Agent', instance.agent],
          ['Model', <Foreign text={instance.inference_model} />],
          ['Created', <Instant at={instance.created_at} />],
          ['Ready', <Instant at={instance.ready_at} none="not yet" />],
          instance.terminated_at === null ? null : ['Terminated', <Instant at={instance.terminated_at} />],
          ['Public key', <Foreign text={instance.public_key} />],
        ]}
      />
    </Card>
  )
}

function Ready({ instance: { name, hostname } }: { instance: InstanceRecord }) {
  const policies = { policy: 'instance-policy.json', 'gateway-policy': 'gateway-policy.json' }
  const load = async () => {
    const nonce = toBase64Url(crypto.getRandomValues(new Uint8Array(nonceBytes)))
    const path = `${pathTo`/v1/instances/${name}`}/attestation?nonce=${nonce}`
    const document = `${name}-attestation.json`
    return {
      name: document,
      bytes: await fetchBytes('instances', path, { bytesMax: evidenceBytesMax }),
      command: commandOf(['verify', 'instance', hostname], { document, nonce, ...policies }),
    }
  }
  return (
    <>
      <EvidenceCard title="Evidence" load={load} fresh={commandOf(['verify', 'instance', hostname], policies)}>
        <p>The VM signs its launch, its host key and its gateway, together with a nonce from this page.</p>
      </EvidenceCard>
      <Card title="Connect" wide>
        <p>This command verifies the VM before each connection and accepts only its host key:</p>
        <CommandLine command={commandOf(['ssh', hostname])} />
        <p>
          Or use ssh after <code>strongroom verify instance</code> has added the host key to known_hosts:
        </p>
        <CommandLine command={`ssh agent@${hostname}`} />
      </Card>
    </>
  )
}

function DeleteDialog({ name, close, deleted }: { name: string; close: () => void; deleted: () => void }) {
  const url = useServiceUrl('instances')
  const remove = useAction(() => askInstances(pathTo`/v1/instances/${name}`, { method: 'DELETE' }))
  return (
    <ActionDialog
      title={`Delete ${name}`}
      action={remove}
      done={deleted}
      verb="Delete permanently"
      busyWord="Deleting …"
      tone="danger"
      command={`curl --cacert ca.pem -H "Authorization: Bearer $KEY" -X DELETE ${url}/v1/instances/${name}`}
      close={close}
    >
      <p>This deletes the instance and its data permanently.</p>
    </ActionDialog>
  )
}
