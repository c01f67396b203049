// Raises the egress limit of one instance.

import { useSignal } from '@preact/signals'
import type { AdminInstance } from '../../../../contract/admin/admin.ts'
import type { AdminEgressRaise } from '../../../../contract/admin/egress.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { bytesOfGib, bytesText, gibOf, gibOption } from '../../core/format.ts'
import { operate, session } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { TextField } from '../../parts/field.tsx'

export function RaiseDialog({
  reference,
  instance,
  close,
  changed,
}: {
  reference: string
  instance: AdminInstance
  close: () => void
  changed: () => void
}) {
  const gib = useSignal('')
  const reason = useSignal('')
  const toBytes = bytesOfGib(gib.value)
  const raise = useAction(() => {
    const body: AdminEgressRaise = {
      to_bytes: toBytes,
      by_bytes: null,
      reason: reason.value === '' ? null : reason.value,
      operator: session.value?.actor ?? '',
    }
    return operate(`/instance/egress-limit?ref=${encodeURIComponent(reference)}`, { method: 'POST', body })
  })
  const command = commandOf(['instance', 'egress', 'raise', reference], {
    // Defaults to the current limit until the person types another; raising to it changes nothing.
    to: gibOption(gib.value || gibOf(instance.egress_limit_bytes ?? 0)),
    reason: reason.value || null,
  })
  return (
    <ActionDialog
      title={`Raise the egress limit of ${reference}`}
      action={raise}
      done={changed}
      verb="Raise"
      busyWord="Raising …"
      command={command}
      isReady={toBytes > (instance.egress_limit_bytes ?? 0)}
      close={close}
    >
      <p>
        The limit is {bytesText(instance.egress_limit_bytes ?? 0)}; {bytesText(instance.egress_bytes)} are used. You can
        only raise a limit. A higher limit lifts the block.
      </p>
      <TextField
        label="New limit (GiB)"
        name="to_bytes"
        value={gib.value}
        change={value => (gib.value = value.trim())}
        problem={raise.problem}
        inputMode="decimal"
        required
      />
      <TextField
        label="Reason"
        name="reason"
        value={reason.value}
        change={value => (reason.value = value)}
        problem={raise.problem}
      />
    </ActionDialog>
  )
}
