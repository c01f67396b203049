// Client-made keys: the mark in a list, and the field for a registration line.

import { type KeyTag, readRegistration } from '../../../../contract/admin/key-registration.ts'
import { keyNameProblem } from '../../../../contract/admin/key-terms.ts'
import type { KeyMaker } from '../../../../contract/key-rules.ts'
import { TextField } from '../../parts/field.tsx'
import { Note } from '../../parts/page.tsx'

const NEW_COMMANDS = { ca: 'strongroom key new', gw: 'strongroom gateway key new' } as const

export function KeyName({
  tag,
  of: { prefix, name, made_by: maker },
}: {
  tag: KeyTag
  of: { prefix: string; name: string | null; made_by: KeyMaker }
}) {
  return (
    <>
      {name !== null && (
        <>
          <strong>{name}</strong>{' '}
        </>
      )}
      <code>
        {tag}_{prefix}_…
      </code>
      <span class="hint">{maker === 'host' ? ' created by the host' : ' created by its client'}</span>
    </>
  )
}

export function NameField({ name, change }: { name: string; change: (name: string) => void }) {
  const problem = name === '' ? null : keyNameProblem(name)
  return (
    <>
      <TextField name="name" label="Name" hint="Like ci; optional" value={name} change={change} />
      {problem !== null && (
        <Note tone="warn">
          <p>The name of a key {problem}.</p>
        </Note>
      )}
    </>
  )
}

export function isKeyName(name: string): boolean {
  return name === '' || keyNameProblem(name) === null
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
