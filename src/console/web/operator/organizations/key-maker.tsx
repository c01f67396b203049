// Client-made keys: the mark in a list, and the field for a registration line.

import { type KeyTag, readRegistration } from '../../../../contract/admin/key-registration.ts'
import type { KeyMaker } from '../../../../contract/key-rules.ts'
import { TextField } from '../../parts/field.tsx'
import { Note } from '../../parts/page.tsx'

const NEW_COMMANDS = { ca: 'strongroom key new', gw: 'strongroom gateway key new' } as const

export function KeyName({
  tag,
  of: { prefix, made_by: maker },
}: {
  tag: KeyTag
  of: { prefix: string; made_by: KeyMaker }
}) {
  return (
    <>
      <code>
        {tag}_{prefix}_…
      </code>
      <span class="hint">{maker === 'host' ? ' created by the host' : ' created by its client'}</span>
    </>
  )
}

export function isRegistration(tag: KeyTag, line: string): boolean {
  return readRegistration(tag, line).ok
}

/** Checks the line in the browser, so that a pasted key is never sent. */
export function RegistrationField({
  tag,
  line,
  change,
}: {
  tag: KeyTag
  line: string
  change: (line: string) => void
}) {
  const read = readRegistration(tag, line)
  return (
    <>
      <TextField
        name="registration"
        label="Registration line"
        hint={`The client runs ${NEW_COMMANDS[tag]} on its own machine and sends you this line, never the key`}
        value={line}
        change={change}
        required
      />
      {line !== '' && !read.ok && (
        <Note tone="warn">
          <p>{read.problem}</p>
        </Note>
      )}
    </>
  )
}
