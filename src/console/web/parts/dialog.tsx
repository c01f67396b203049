// Dialogs: a form above the page, with the equivalent command beside its button. Effects: focus.

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

/** Shows a modal dialog. Escape closes it. */
export function Dialog({ title, close, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null)
  const id = useId()
  // Runs before the page is drawn, and before its element is removed; otherwise the focus is lost for a moment.
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

type ActionProps = {
  readonly action: Action<readonly []>
  /** Called after the action has succeeded. */
  readonly done?: () => void
  /** The button's label; `busyWord` while it is running. */
  readonly verb: string
  readonly busyWord: string
  readonly tone?: 'primary' | 'danger'
  /** The equivalent command; null if there is none. */
  readonly command: string | null
  readonly isReady?: boolean
  readonly close: () => void
  readonly children?: ComponentChildren
}

/** Shows a dialog with a form that performs one action. Content in `instead` replaces the form. */
export function ActionDialog({
  title,
  instead,
  ...form
}: ActionProps & { title: string; instead?: ComponentChildren }) {
  return (
    <Dialog title={title} close={form.close}>
      {instead || <ActionForm {...form} />}
    </Dialog>
  )
}

export function ActionForm({
  action,
  done,
  verb,
  busyWord,
  tone = 'primary',
  command,
  isReady = true,
  close,
  children,
}: ActionProps) {
  const send = async (event: Event) => {
    event.preventDefault()
    if (isReady && (await action.run())) done?.()
  }
  return (
    <form class="dialog-form" onSubmit={send}>
      {children}
      {action.problem !== null && <ProblemNote problem={action.problem} />}
      {command !== null && (
        <div class="same-command">
          <p class="muted">Equivalent command:</p>
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
