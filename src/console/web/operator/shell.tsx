// The frame of the operator's pages: navigation, the person who is logged in, and whether the content is current.

import type { ComponentChildren } from 'preact'
import { durationText } from '../core/format.ts'
import { liveState } from '../core/live.ts'
import { nowMs } from '../core/now.ts'
import { address } from '../core/router.ts'
import { may, session } from '../core/session.ts'
import { Frame } from '../parts/frame.tsx'
import { Link } from '../parts/text.tsx'

const PAGES = [
  ['/', 'Overview'],
  ['/search', 'Search'],
  ['/organizations', 'Organizations'],
  ['/instances', 'Instances'],
  ['/gateway', 'Gateway'],
  ['/builds', 'Builds'],
  ['/fleet', 'Fleet'],
  ['/log', 'Log'],
  ['/events', 'Events'],
  ['/doctor', 'Doctor'],
] as const

export function OperatorShell({ children }: { children: ComponentChildren }) {
  const { path } = address.value
  const here = (href: string) => (href === '/' ? path === '/' : path === href || path.startsWith(`${href}/`))
  const isShown = (href: string) =>
    href === '/events' ? may('GET /events') : href !== '/fleet' || session.value?.fleet === true
  const pages = PAGES.filter(([href]) => isShown(href)).map(([href, words]) => ({ href, words, isHere: here(href) }))
  const account = (
    <Link href="/account" current={here('/account')}>
      {session.value?.actor ?? ''} <span class="muted">{session.value?.role}</span>
    </Link>
  )
  return (
    <Frame home="/" pages={pages} mark={<LiveMark />} foot={account}>
      <StaleNote />
      {children}
    </Frame>
  )
}

function LiveMark() {
  const { kind } = liveState.value
  const words = { off: '', connecting: 'connecting', live: 'live', stale: 'not connected' }[kind]
  return (
    <span class={`live ${kind}`} role="status">
      {words}
    </span>
  )
}

function StaleNote() {
  const state = liveState.value
  if (state.kind !== 'stale') return null
  const seconds = Math.max(0, Math.round((nowMs.value - state.sinceMs) / 1000))
  return (
    <p class="stale-note" role="alert">
      No answer from the appliance for {durationText(seconds)}. This page may be out of date. It reconnects
      automatically.
    </p>
  )
}
