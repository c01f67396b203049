// The layout of one page: heading, texts while it loads, fails or is empty, and groups of facts.

import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import type { Loaded } from '../core/loaded.ts'
import type { RequestProblem } from '../core/request.ts'
import { CommandLine } from './text.tsx'

/** `command`: the command line equivalent of the page. */
export function Page({
  title,
  lead,
  command,
  actions,
  children,
}: {
  title: string
  lead?: ComponentChildren
  command?: string
  actions?: ComponentChildren
  children: ComponentChildren
}) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · Strongroom`
    // Screen readers start at the new page. For the first page, the browser decides on the focus.
    if (document.activeElement !== null && document.activeElement !== document.body) heading.current?.focus()
  }, [title])
  return (
    <main id="main" class="page">
      <header class="page-head">
        <div class="page-title">
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {lead !== undefined && <p class="lead">{lead}</p>}
        </div>
        {actions !== undefined && <div class="actions">{actions}</div>}
      </header>
      {command !== undefined && <CommandLine command={command} />}
      {children}
    </main>
  )
}

/** `level`: 2 on a page, 3 in a section of a page. */
export function Card({
  title,
  actions,
  children,
  wide = false,
}: {
  title: string
  actions?: ComponentChildren
  children: ComponentChildren
  wide?: boolean
}) {
  return (
    <section class={wide ? 'card wide' : 'card'}>
      <header class="card-head">
        <h2>{title}</h2>
        {actions !== undefined && <div class="actions">{actions}</div>}
      </header>
      {children}
    </section>
  )
}

/** Draws a document when it is loaded. Shows a failure above the previous document if there is one. */
export function Shown<T>({
  of,
  what,
  children,
}: {
  of: Loaded<T>
  what: string
  children: (data: T) => ComponentChildren
}) {
  const { data, problem, isLoading, reload } = of
  return (
    <>
      {problem !== null && <ProblemNote problem={problem} retry={reload} />}
      {data !== null ? children(data) : isLoading && <Waiting what={what} />}
    </>
  )
}

/** Shown after a short delay, so that fast responses cause no flicker. */
export function Waiting({ what }: { what: string }) {
  return (
    <p class="waiting" role="status">
      <span class="spinner" aria-hidden="true" /> Loading {what} …
    </p>
  )
}

type ProblemNoteProps = { problem: RequestProblem; retry?: () => void; close?: () => void }

export function ProblemNote({ problem, retry, close }: ProblemNoteProps) {
  return (
    <div class="note bad" role="alert">
      <p>
        {problem.param !== null && <strong>{problem.param}: </strong>}
        {problem.message}
      </p>
      {retry !== undefined && (
        <button type="button" class="quiet" onClick={retry}>
          Try again
        </button>
      )}
      {close !== undefined && (
        <button type="button" class="quiet" onClick={close}>
          Close
        </button>
      )}
    </div>
  )
}

export function Note({
  tone = 'plain',
  children,
}: {
  tone?: 'plain' | 'warn' | 'bad' | 'good'
  children: ComponentChildren
}) {
  return <div class={`note ${tone}`}>{children}</div>
}

/** Shown if there is no content, with advice on what to do. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  )
}

export type Fact = readonly [name: string, value: ComponentChildren]

export function Facts({ rows }: { rows: readonly (Fact | null)[] }) {
  return (
    <dl class="facts">
      {rows
        .filter(row => row !== null)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  )
}

/** Shows how much of a resource is used. */
export function Meter({
  label,
  used,
  total,
  text,
}: {
  label: string
  used: number | null
  total: number
  text: string
}) {
  const share = used === null || total === 0 ? 0 : Math.min(1, used / total)
  const tone = share >= 0.95 ? 'bad' : share >= 0.8 ? 'warn' : 'good'
  return (
    <div class="meter">
      <div class="meter-words">
        <span>{label}</span>
        <span class="meter-text">{text}</span>
      </div>
      {/* biome-ignore lint/a11y/useSemanticElements: no two browsers draw a meter alike */}
      <div
        class="meter-track"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(share * 100)}
        aria-valuetext={text}
      >
        <div class={`meter-fill ${tone}`} style={{ width: `${share * 100}%` }} />
      </div>
    </div>
  )
}
