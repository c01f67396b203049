// The end of a build, on pages of operators and tenants: its failure, and the dialog that cancels it.

import { useAction } from '../core/action.ts'
import { ActionDialog } from './dialog.tsx'
import { Note } from './page.tsx'
import { ForeignBlock } from './text.tsx'

const LIVING: readonly string[] = ['queued', 'starting', 'running']

export function isLiving({ state }: { readonly state: string }): boolean {
  return LIVING.includes(state)
}

type Failed = { readonly error_type: string | null; readonly error: string | null }

export function BuildFailure({ build }: { build: Failed }) {
  if (build.error_type === null) return null
  return (
    <Note tone="bad">
      <p>
        <strong>{build.error_type}</strong>
      </p>
      <ForeignBlock text={build.error ?? ''} />
    </Note>
  )
}

type CancelProps = {
  readonly id: string
  readonly ask: () => Promise<unknown>
  /** The equivalent command. */
  readonly command: string
  readonly words: string
  readonly close: () => void
  readonly cancelled: () => void
}

export function CancelBuild({ id, ask, command, words, close, cancelled }: CancelProps) {
  const cancel = useAction(ask)
  return (
    <ActionDialog
      title={`Cancel build ${id.slice(0, 8)}`}
      action={cancel}
      done={() => {
        close()
        cancelled()
      }}
      verb="Cancel the build"
      busyWord="Cancelling …"
      tone="danger"
      command={command}
      close={close}
    >
      <p>{words}</p>
    </ActionDialog>
  )
}
