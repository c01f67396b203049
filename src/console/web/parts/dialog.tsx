// Dialogs: a form above the page, with the command that does the same beside its button. Effects: focus.

import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef } from 'preact/hooks'
import type { Action } from '../core/action.ts'
import { ProblemNote } from './page.tsx'
import { CommandLine } from './text.tsx'

type DialogProps = {
  readonly title: string
  readonly close: () => void
  readonly children: ComponentChildren
}

/** Modal while it is there; Escape closes it. */
export function Dialog({ title, close, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null)
  const id = useId()
  // Before the page is drawn, and before its element goes: else the focus is nowhere for a moment.
  useLayoutEffect(() => {
    const { current } = element
    const before = document.activeElement
    current?.showModal()
    return () => {
      current?.close()
      if (before instanceof HTMLElement) before.focus()
    }
  }, [])
  return (
    <dialog
      ref={element}
      aria-labelledby={id}
      onCancel={event => {
        event.preventDefault()
        close()
      }}
    >
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={close}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  )
}

/** A form that carries out one action. `done`: the word on its button; `command`: what does the same. */
export function ActionForm<Given extends readonly unknown[]>({
  action,
  submit,
  verb,
  busyWord,
  tone = 'primary',
  command,
  isReady = true,
  close,
  children,
}: {
  action: Action<Given>
  submit: () => Promise<unknown>
  verb: string
  busyWord: string
  tone?: 'primary' | 'danger'
  command: string | null
  isReady?: boolean
  close: () => void
  children?: ComponentChildren
}) {
  const send = (event: Event) => {
    event.preventDefault()
    if (isReady) void submit()
  }
  return (
    <form class="dialog-form" onSubmit={send}>
      {children}
      {action.problem !== null && <ProblemNote problem={action.problem} />}
      {command !== null && (
        <div class="same-command">
          <p class="muted">The same on the command line:</p>
          <CommandLine command={command} />
        </div>
      )}
      <div class="dialog-foot">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <BusyButton isBusy={action.isBusy} isReady={isReady} tone={tone} verb={verb} busyWord={busyWord} />
      </div>
    </form>
  )
}

export function BusyButton({
  isBusy,
  isReady = true,
  tone = 'primary',
  verb,
  busyWord,
  onClick,
}: {
  isBusy: boolean
  isReady?: boolean
  tone?: 'primary' | 'danger' | 'plain'
  verb: string
  busyWord: string
  onClick?: () => void
}) {
  return (
    <button
      type={onClick === undefined ? 'submit' : 'button'}
      class={tone}
      disabled={isBusy || !isReady}
      aria-busy={isBusy}
      onClick={onClick}
    >
      {isBusy && <span class="spinner" aria-hidden="true" />}
      {isBusy ? busyWord : verb}
    </button>
  )
}
