// Drain, undrain, remove and forget a host. Each shows its consequences first.

import { useSignal } from '@preact/signals'
import type { FleetHost } from '../../../../contract/admin/fleet.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { countText } from '../../core/format.ts'
import { pathTo } from '../../core/path.ts'
import { go } from '../../core/router.ts'
import { operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { TextField } from '../../parts/field.tsx'

type Row = {
  readonly verb: string
  readonly busyWord: string
  readonly tone: 'primary' | 'danger'
  /** Whether the host leaves the fleet. */
  readonly isEnd: boolean
  /** Whether the person must type the host's name first. */
  readonly isTyped: boolean
  readonly effect: (host: FleetHost) => string
}

const byOwner = 'If this host does not own the database, run the command with --as and the owner.'

const ACTIONS = {
  drain: {
    ...{ verb: 'Drain', busyWord: 'Draining …', tone: 'primary', isEnd: false, isTyped: false },
    effect: () => 'The host accepts no new instances. Existing instances keep running until their owners delete them.',
  },
  undrain: {
    ...{ verb: 'Undrain', busyWord: 'Undraining …', tone: 'primary', isEnd: false, isTyped: false },
    effect: () => 'The host accepts new instances again.',
  },
  remove: {
    ...{ verb: 'Remove', busyWord: 'Removing …', tone: 'danger', isEnd: true, isTyped: false },
    effect: () => `The host is drained and has no instances. This removes it from the fleet. ${byOwner}`,
  },
  forget: {
    ...{ verb: 'Forget permanently', busyWord: 'Forgetting …', tone: 'danger', isEnd: true, isTyped: true },
    effect: ({ instances }) =>
      `The host cannot return. Its ${countText(instances)} instances fail with host_lost. The command fails while the host renews its lease. ${byOwner}`,
  },
} as const satisfies Record<string, Row>

export type HostAction = keyof typeof ACTIONS

type HostDialogProps = {
  readonly action: HostAction
  readonly host: FleetHost
  readonly close: () => void
  readonly reload: () => void
}

export function HostDialog({ action, host, close, reload }: HostDialogProps) {
  const { name } = host
  const row: Row = ACTIONS[action]
  const typed = useSignal('')
  const send = useAction(() => operate(`${pathTo`/fleet/hosts/${name}`}/${action}`, { method: 'POST' }))
  return (
    <ActionDialog
      title={`${row.isTyped ? 'Forget' : row.verb} ${name}`}
      action={send}
      done={() => {
        close()
        if (row.isEnd) go('/fleet')
        else reload()
      }}
      verb={row.verb}
      busyWord={row.busyWord}
      tone={row.tone}
      command={commandOf(['fleet', action, name])}
      isReady={!row.isTyped || typed.value === name}
      close={close}
    >
      <p>{row.effect(host)}</p>
      {row.isTyped && (
        <TextField
          label={`Type ${name} to confirm`}
          value={typed.value}
          change={value => (typed.value = value.trim())}
        />
      )}
    </ActionDialog>
  )
}
