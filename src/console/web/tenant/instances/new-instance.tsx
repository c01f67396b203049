// Creates an instance. A repeated click, or a lost response, does not create a second one.

import { useSignal } from '@preact/signals'
import type { CreateInstance, InstanceCreated } from '../../../../contract/http/instance.ts'
import { useAction } from '../../core/action.ts'
import { quoted } from '../../core/command.ts'
import { pathTo } from '../../core/path.ts'
import { go } from '../../core/router.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { TextArea, TextField } from '../../parts/field.tsx'
import { askInstances, useServiceUrl } from '../services.ts'

export function NewInstance({ close }: { close: () => void }) {
  const url = useServiceUrl('instances')
  const publicKey = useSignal('')
  const model = useSignal('')
  /** Idempotency key, the same for all attempts with the same fields. */
  const attempt = useSignal(crypto.randomUUID())
  const body = (): CreateInstance => ({
    public_key: publicKey.value.trim(),
    ...(model.value === '' ? {} : { inference_model: model.value }),
  })
  const create = useAction(async () => {
    const headers = { 'idempotency-key': attempt.value }
    const made = await askInstances<InstanceCreated>('/v1/instances', { method: 'POST', body: body(), headers })
    go(pathTo`/tenant/instances/${made.name}`)
  })
  const change = (field: typeof publicKey) => (text: string) => {
    field.value = text
    attempt.value = crypto.randomUUID()
  }
  return (
    <ActionDialog
      title="New instance"
      action={create}
      verb="Create"
      busyWord="Creating …"
      command={curlOf(url, body())}
      isReady={publicKey.value.trim() !== ''}
      close={close}
    >
      <TextArea
        label="Your SSH public key"
        value={publicKey.value}
        change={change(publicKey)}
        rows={3}
        hint="The line in ~/.ssh/id_ed25519.pub. Only this key can connect to the instance."
      />
      <TextField
        label="Model"
        name="inference_model"
        value={model.value}
        change={change(model)}
        problem={create.problem}
        hint="The operator's default if empty"
      />
    </ActionDialog>
  )
}

/**
 * Returns the command of `strongroom help instances`. It uses curl, because there is no command for clients of the API.
 */
function curlOf(url: string, body: CreateInstance): string {
  const headers = `-H "Authorization: Bearer $KEY" -H 'Content-Type: application/json'`
  return `curl --cacert ca.pem ${headers} -d ${quoted(JSON.stringify(body))} ${url}/v1/instances`
}
