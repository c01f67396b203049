// Deletes failed instances together, one after another.

import { useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import type { AdminInstance } from '../../../../contract/admin/admin.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { countText } from '../../core/format.ts'
import { isAbort, RequestProblem } from '../../core/request.ts'
import { operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { Foreign } from '../../parts/text.tsx'

const namesShown = 10

type DeleteFailedProps = {
  /** The instances that the list showed when the person pressed the button; later ones are not deleted. */
  readonly instances: readonly AdminInstance[]
  readonly close: () => void
  readonly changed: () => void
}

export function DeleteFailed({ instances, close, changed }: DeleteFailedProps) {
  const deleted = useSignal(0)
  const stopped = useRef(new AbortController())
  useEffect(() => () => stopped.current.abort(), [])
  const remove = useAction(async () => {
    const { signal } = stopped.current
    // A second attempt continues after the instances that the first one deleted.
    for (const { id } of instances.slice(deleted.peek())) {
      await deleteFailed(id, signal)
      deleted.value += 1
    }
  })
  const count = countOf(instances.length)
  return (
    <ActionDialog
      title={`Delete ${count}`}
      action={remove}
      done={changed}
      verb={`Delete ${count}`}
      busyWord={`Deleted ${countText(deleted.value)} of ${countText(instances.length)} …`}
      tone="danger"
      command={instances.length === 1 ? commandOf(['instance', 'delete', refOf(instances[0])]) : null}
      close={() => {
        close()
        if (deleted.peek() > 0) changed()
      }}
    >
      <p>
        This deletes these instances and their data permanently. Their records are kept for at least 30 days. Closing
        this dialog stops after the current instance.
      </p>
      <ul class="names">
        {instances.slice(0, namesShown).map(instance => (
          <li key={instance.id}>
            <Foreign text={refOf(instance)} /> <span class="hint">{instance.failure_code}</span>
          </li>
        ))}
        {instances.length > namesShown && <li>and {countText(instances.length - namesShown)} more</li>}
      </ul>
    </ActionDialog>
  )
}

export function countOf(count: number): string {
  return count === 1 ? '1 failed instance' : `${countText(count)} failed instances`
}

function refOf(instance: Pick<AdminInstance, 'organization' | 'name'> | undefined): string {
  return instance === undefined ? '' : `${instance.organization}/${instance.name}`
}

/** Deletes by id, because a name may belong to a newer instance. An instance that is gone counts as deleted. */
async function deleteFailed(id: string, signal: AbortSignal): Promise<void> {
  try {
    await operate(`/instance?ref=${encodeURIComponent(id)}`, { method: 'DELETE', signal })
  } catch (error) {
    if (error instanceof RequestProblem && error.status === 404) return
    if (isAbort(error)) throw new RequestProblem({ code: 'stopped', message: 'stopped', status: 0 })
    throw error
  }
}
