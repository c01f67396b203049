// Small pieces of text: times, ids, links, commands, states. External text only ever becomes text nodes.

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { shownLine, shownText } from '../core/foreign.ts'
import { distanceText, instantText, shortText } from '../core/format.ts'
import { nowMs } from '../core/now.ts'
import { go } from '../core/router.ts'

/** Links to a page of the console without a reload; with a modifier key the browser handles the click. */
export function Link({
  href,
  class: name,
  current,
  children,
}: {
  href: string
  class?: string
  current?: boolean
  children: ComponentChildren
}) {
  const open = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    go(href)
  }
  return (
    <a href={href} class={name} aria-current={current === true ? 'page' : undefined} onClick={open}>
      {children}
    </a>
  )
}

/** Shows a time relative to now, with the instant as a tooltip. */
export function Time({ at, none = '–' }: { at: string | null; none?: string }) {
  if (at === null) return <span class="muted">{none}</span>
  return (
    <time dateTime={at} title={instantText(at)}>
      {distanceText(Date.parse(at), nowMs.value)}
    </time>
  )
}

export function Instant({ at, none = '–' }: { at: string | null; none?: string }) {
  if (at === null) return <span class="muted">{none}</span>
  return <time dateTime={at}>{instantText(at)}</time>
}

/** Shows text from a guest, a build or a tenant. */
export function Foreign({ text, none = '–' }: { text: string | null; none?: string }) {
  if (text === null || text === '') return <span class="muted">{none}</span>
  return <bdi class="foreign">{shownLine(text)}</bdi>
}

export function ForeignBlock({ text }: { text: string }) {
  return <bdi class="foreign block">{shownText(text)}</bdi>
}

/** Shows a digest or id shortened, and copies all of it. */
export function Digest({ value, none = '–' }: { value: string | null; none?: string }) {
  if (value === null) return <span class="muted">{none}</span>
  return (
    <span class="digest">
      <code title={value}>{shortText(value)}</code>
      <CopyButton text={value} what="the whole value" />
    </span>
  )
}

const TONES: Readonly<Record<string, 'good' | 'warn' | 'bad' | 'busy'>> = {
  ready: 'good',
  active: 'good',
  ok: 'good',
  serving: 'good',
  live: 'good',
  believed: 'good',
  good: 'good',
  attested: 'good',
  pass: 'good',
  running: 'busy',
  queued: 'busy',
  starting: 'busy',
  provisioning: 'busy',
  terminating: 'busy',
  draining: 'busy',
  deleting: 'busy',
  booting: 'busy',
  failed: 'bad',
  bad: 'bad',
  fail: 'bad',
  revoked: 'bad',
  suspended: 'warn',
  held: 'warn',
  cancelled: 'warn',
  expired: 'warn',
  soon: 'warn',
  old: 'warn',
  interrupted: 'warn',
  'not-checked': 'warn',
  simulated: 'warn',
  SIMULATED: 'warn',
}

/** Shows a state with the API's word. The colour only repeats it. */
export function StateMark({ word, tone }: { word: string; tone?: 'good' | 'warn' | 'bad' | 'busy' | 'plain' }) {
  return <span class={`mark ${tone ?? TONES[word] ?? 'plain'}`}>{word}</span>
}

export function CopyButton({ text, what }: { text: string; what: string }) {
  const outcome = useSignal<'none' | 'copied' | 'failed'>('none')
  const copy = async () => {
    outcome.value = await navigator.clipboard.writeText(text).then(
      () => 'copied' as const,
      () => 'failed' as const,
    )
    setTimeout(() => {
      outcome.value = 'none'
    }, 2_000)
  }
  const words = { none: 'Copy', copied: 'Copied', failed: 'Not copied' }[outcome.value]
  return (
    <button type="button" class="copy" aria-label={outcome.value === 'none' ? `Copy ${what}` : words} onClick={copy}>
      {words}
    </button>
  )
}

/** Shows the equivalent command. */
export function CommandLine({ command }: { command: string }) {
  return (
    <div class="command">
      <code>{command}</code>
      <CopyButton text={command} what={`the command ${command}`} />
    </div>
  )
}
