// Fetches evidence for a nonce of this page, judges it here, shows the verdict, and saves it all for offline use.
// Effects: requests, randomness, the time, downloads.

import { useSignal } from '@preact/signals'
import { useAction } from '../../core/action.ts'
import { BusyButton } from '../../parts/dialog.tsx'
import { Card, ProblemNote } from '../../parts/page.tsx'
import { CommandLine, Link } from '../../parts/text.tsx'
import { type Expected, expected } from './expected.ts'
import type { Judged } from './judge.ts'
import { Verdict } from './verdict.tsx'

/** A file of the evidence as it came. */
export type EvidenceFile = { readonly name: string; readonly bytes: Uint8Array<ArrayBuffer> }

export type Verified = { readonly judged: Judged; readonly files: readonly EvidenceFile[]; readonly command: string }

export type Verify = (asked: { readonly expected: Expected; readonly asOf: number }) => Promise<Verified>

export function Verification({ title, lead, verify }: { title: string; lead: string; verify: Verify }) {
  const found = useSignal<Verified | null>(null)
  const act = useAction(async () => {
    // An attempt that fails leaves no verdict of an earlier one: nothing has been judged then.
    found.value = null
    found.value = await verify({ expected: expected.value, asOf: Date.now() })
  })
  const { value } = found
  return (
    <>
      <Card
        title={title}
        wide
        actions={
          <BusyButton
            isBusy={act.isBusy}
            verb={value === null ? 'Verify' : 'Verify again'}
            busyWord="Verifying …"
            onClick={() => void act.run()}
          />
        }
      >
        <p>
          {lead} It is compared with <Link href="/tenant/expectations">what you expect</Link>.
        </p>
        {act.problem !== null && <ProblemNote problem={act.problem} />}
        {value !== null && (
          <>
            <div class="actions">
              {value.files.map(file => (
                <button key={file.name} type="button" onClick={() => save(file)}>
                  Save {file.name}
                </button>
              ))}
            </div>
            <p class="muted">The same on the command line, with the saved files and your own policy:</p>
            <CommandLine command={value.command} />
          </>
        )}
      </Card>
      {value !== null && <Verdict judged={value.judged} />}
    </>
  )
}

/** Hands a file to the browser to be saved. */
export function save({ name, bytes }: EvidenceFile): void {
  const url = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
