// Deletion of an organization: shows the plan, then requires the slug to be typed.

import { useSignal } from '@preact/signals'
import type { AdminDeletion } from '../../../../contract/admin/deletion.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { bytesText, countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { operate } from '../../core/session.ts'
import { ActionForm, Dialog } from '../../parts/dialog.tsx'
import { TextField, Tick } from '../../parts/field.tsx'
import { Facts, Shown } from '../../parts/page.tsx'
import { Foreign } from '../../parts/text.tsx'

export function DeleteOrganization({ slug, close, changed }: { slug: string; close: () => void; changed: () => void }) {
  const path = pathTo`/organizations/${slug}/deletion`
  const plan = useLoaded(path, options => operate<AdminDeletion>(path, options), { topics: ['organizations'] })
  const typed = useSignal('')
  const force = useSignal(false)
  const remove = useAction(() =>
    operate(`${pathTo`/organizations/${slug}`}?force=${force.value}`, { method: 'DELETE' }),
  )
  return (
    <Dialog title={`Delete ${slug}`} close={close}>
      <Shown of={plan} what="the plan">
        {data =>
          data.deleting_at === null ? (
            <ActionForm
              action={remove}
              done={changed}
              verb="Delete permanently"
              busyWord="Deleting …"
              tone="danger"
              command={commandOf(['org', 'delete', slug], { force: force.value })}
              isReady={typed.value === slug}
              close={close}
            >
              <Plan plan={data} />
              <Tick
                label="Stop running instances and builds (--force)"
                value={force.value}
                change={value => (force.value = value)}
              />
              <TextField
                label={`Type ${slug} to confirm`}
                value={typed.value}
                change={value => (typed.value = value.trim())}
                hint="This slug cannot be used again, because host names, receipts and bills contain it."
              />
            </ActionForm>
          ) : (
            <Plan plan={data} />
          )
        }
      </Shown>
    </Dialog>
  )
}

function Plan({ plan }: { plan: AdminDeletion }) {
  const names = (list: readonly string[]) =>
    list.length === 0 ? 'none' : <Foreign text={`${list.length}: ${list.join(', ')}`} />
  return (
    <Facts
      rows={[
        plan.deleting_at === null ? null : ['Waiting for', plan.waits_for.join(', ') || 'the last check'],
        ['Instances to delete', names(plan.instances)],
        ['Builds to cancel', names(plan.builds)],
        ['Reserved build VMs', `${plan.reserved_vms}; kept until they expire`],
        ['Build files', `${bytesText(plan.build_file_bytes)}; deleted`],
        ['Keys', `${plan.keys_active} API keys, ${plan.gateway_keys_active} gateway keys; revoked immediately`],
        ['Records', `${countText(plan.records)} of terminated instances; kept for instances.retention_days`],
      ]}
    />
  )
}
