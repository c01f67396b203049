// Fields of forms: a label, a control, a hint, and the server's error for the field.

import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'
import type { RequestProblem } from '../core/request.ts'

type FieldProps = {
  readonly label: string
  readonly value: string
  readonly change: (value: string) => void
  readonly hint?: ComponentChildren
  /** Wire name, used to show the server's error next to the field. */
  readonly name?: string
  readonly problem?: RequestProblem | null
}

type TextFieldProps = FieldProps & {
  readonly type?: 'text' | 'search' | 'password' | 'date'
  readonly required?: boolean
  readonly inputMode?: 'numeric' | 'decimal' | 'text' | 'url'
}

export function TextField({ label, value, change, hint, name, problem, type = 'text', ...more }: TextFieldProps) {
  const id = useId()
  const isAtFault = problem !== undefined && problem !== null && name !== undefined && problem.param === name
  const control = {
    ...more,
    id,
    value,
    autoComplete: 'off',
    spellcheck: false,
    'aria-invalid': isAtFault,
    'aria-describedby': hint === undefined ? undefined : `${id}-hint`,
    onInput: (event: InputEvent & { currentTarget: HTMLInputElement }) => change(event.currentTarget.value),
  }
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {type === 'text' && <input type="text" {...control} />}
      {type === 'search' && <input type="search" {...control} />}
      {type === 'password' && <input type="password" {...control} />}
      {type === 'date' && <input type="date" {...control} />}
      <Hint id={id} hint={hint} />
    </div>
  )
}

export function TextArea({ label, value, change, hint, rows = 6 }: FieldProps & { readonly rows?: number }) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        rows={rows}
        value={value}
        spellcheck={false}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onInput={event => change(event.currentTarget.value)}
      />
      <Hint id={id} hint={hint} />
    </div>
  )
}

export function Choice<Value extends string>({
  label,
  value,
  change,
  hint,
  options,
  isCompact = false,
}: Omit<FieldProps, 'value' | 'change'> & {
  readonly value: Value
  readonly change: (value: Value) => void
  readonly options: readonly (readonly [value: Value, words: string])[]
  readonly isCompact?: boolean
}) {
  const id = useId()
  const chosen = (text: string) => options.find(([option]) => option === text)?.[0]
  return (
    <div class={isCompact ? 'field compact' : 'field'}>
      <label for={id}>{label}</label>
      <select
        id={id}
        value={value}
        onChange={event => {
          const option = chosen(event.currentTarget.value)
          if (option !== undefined) change(option)
        }}
      >
        {options.map(([option, words]) => (
          <option key={option} value={option} selected={option === value}>
            {words}
          </option>
        ))}
      </select>
      <Hint id={id} hint={hint} />
    </div>
  )
}

export function Tick({
  label,
  value,
  change,
  hint,
}: Omit<FieldProps, 'value' | 'change'> & {
  readonly value: boolean
  readonly change: (value: boolean) => void
}) {
  const id = useId()
  return (
    <div class="tick">
      <input id={id} type="checkbox" checked={value} onChange={event => change(event.currentTarget.checked)} />
      <label for={id}>
        {label}
        {hint !== undefined && <span class="hint">{hint}</span>}
      </label>
    </div>
  )
}

function Hint({ id, hint }: { id: string; hint: ComponentChildren }) {
  if (hint === undefined) return null
  return (
    <p id={`${id}-hint`} class="hint">
      {hint}
    </p>
  )
}
