// Evidence to verify elsewhere with a command. This page verifies nothing: the host serves it, so its verdict would
// prove nothing against the host. Effects: requests, downloads.

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useAction } from '../core/action.ts'
import { BusyButton } from '../parts/dialog.tsx'
import { Card, Note, ProblemNote } from '../parts/page.tsx'
import { CommandLine } from '../parts/text.tsx'

export type Evidence = {
  /** Name of the saved file, as used in the command. */
  readonly name: string
  readonly bytes: Uint8Array<ArrayBuffer>
  /** The command that verifies the file offline. */
  readonly command: string
}

export type EvidenceCardProps = {
  readonly title: string
  /** Explains what the evidence proves, and which other files the command needs. */
  readonly children: ComponentChildren
  /** Requests fresh evidence on each call. */
  readonly load: () => Promise<Evidence>
  /** A command that needs no file from this page; null if there is none. */
  readonly fresh: string | null
}

export function EvidenceCard({ title, children, load, fresh }: EvidenceCardProps) {
  const saved = useSignal<Pick<Evidence, 'name' | 'command'> | null>(null)
  const download = useAction(async () => {
    // Remove the command of an earlier file, in case the attempt fails.
    saved.value = null
    const { name, bytes, command } = await load()
    save(name, bytes)
    saved.value = { name, command }
  })
  const { value: found } = saved
  return (
    <Card
      title={title}
      wide
      actions={
        <BusyButton
          isBusy={download.isBusy}
          verb="Download evidence"
          busyWord="Downloading …"
          onClick={() => void download.run()}
        />
      }
    >
      {children}
      {download.problem !== null && <ProblemNote problem={download.problem} />}
      {found !== null && (
        <div role="status">
          <p>{found.name} is saved. Verify it offline on a machine that you trust:</p>
          <CommandLine command={found.command} />
        </div>
      )}
      {fresh !== null && (
        <>
          <p>To verify fresh evidence with your own nonce:</p>
          <CommandLine command={fresh} />
        </>
      )}
      <Note>
        <p>
          This page does not verify evidence. The host serves the page, so its result would prove nothing about the
          host. The commands use your own policy files. This command creates one for an image that you have checked:
        </p>
        <CommandLine command="strongroom verify policy-example --image IMAGE --operator-key operator-key.pub.pem" />
      </Note>
    </Card>
  )
}

/** Makes the browser save a file. */
function save(name: string, bytes: Uint8Array<ArrayBuffer>): void {
  const url = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
