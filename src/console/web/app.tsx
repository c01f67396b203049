// Chooses the page by its address: the tenant's side, the log-in, or one of the operator's pages.

import { useSignal } from '@preact/signals'
import type { ComponentChildren, ComponentType } from 'preact'
import { useEffect } from 'preact/hooks'
import { followLive } from './core/live.ts'
import { matchPath } from './core/path.ts'
import { problemFrom, type RequestProblem } from './core/request.ts'
import { address } from './core/router.ts'
import { enter, entryProblem, lookAgain, session, sessionState, takeCursor, tokenIn } from './core/session.ts'
import { isShown } from './core/shown.ts'
import { AccountPage } from './operator/account/account.tsx'
import { LogInPage } from './operator/account/log-in.tsx'
import { BuildPage } from './operator/builds/build.tsx'
import { BuildsPage } from './operator/builds/builds.tsx'
import { FleetPage } from './operator/fleet/fleet.tsx'
import { FleetHostPage } from './operator/fleet/host.tsx'
import { GatewayPage } from './operator/gateway/gateway.tsx'
import { DoctorPage } from './operator/host/doctor.tsx'
import { EventsPage } from './operator/host/events.tsx'
import { LogPage } from './operator/host/log.tsx'
import { OverviewPage } from './operator/host/overview.tsx'
import { InstancePage } from './operator/instances/instance.tsx'
import { InstancesPage } from './operator/instances/instances.tsx'
import { OrganizationPage } from './operator/organizations/organization.tsx'
import { OrganizationsPage } from './operator/organizations/organizations.tsx'
import { SearchPage } from './operator/search.tsx'
import { OperatorShell } from './operator/shell.tsx'
import { Empty, Page, ProblemNote, Waiting } from './parts/page.tsx'
import { Link } from './parts/text.tsx'

/** Pattern of a path, and its page; null if this appliance lacks the page. */
type Route = readonly [pattern: string, page: (...parts: string[]) => ComponentChildren | null]

const ROUTES: readonly Route[] = [
  ['/', () => <OverviewPage />],
  ['/search', () => <SearchPage />],
  ['/organizations', () => <OrganizationsPage />],
  ['/organizations/:slug', (slug = '') => <OrganizationPage key={slug} slug={slug} />],
  ['/instances', () => <InstancesPage />],
  [
    '/instances/:organization/:name',
    (organization = '', name = '') => (
      <InstancePage key={`${organization}/${name}`} organization={organization} name={name} />
    ),
  ],
  ['/gateway', () => <GatewayPage />],
  ['/builds', () => <BuildsPage />],
  ['/builds/:id', (id = '') => <BuildPage key={id} id={id} />],
  ['/fleet', () => (isInFleet() ? <FleetPage /> : null)],
  ['/fleet/:host', (host = '') => (isInFleet() ? <FleetHostPage key={host} name={host} /> : null)],
  ['/log', () => <LogPage />],
  ['/events', () => <EventsPage />],
  ['/doctor', () => <DoctorPage />],
  ['/account', () => <AccountPage />],
]

function isInFleet(): boolean {
  return session.value?.fleet === true
}

export function App() {
  const { path } = address.value
  return path === '/tenant' || path.startsWith('/tenant/') ? <TenantSide /> : <OperatorSide />
}

function OperatorSide() {
  const state = sessionState.value
  const isSeen = isShown.value
  useEffect(() => {
    if (state.kind === 'unknown') void enter()
    if (state.kind === 'in' && isSeen) return followLive('/api/live', takeCursor(), () => void lookAgain())
    return undefined
  }, [state.kind, isSeen])
  useEffect(() => {
    // Opening a link in a window that already shows the console only changes the fragment.
    const take = () => {
      if (tokenIn(location.hash) !== null) void enter()
    }
    addEventListener('hashchange', take)
    return () => removeEventListener('hashchange', take)
  }, [])
  if (state.kind === 'unknown') return <Starting />
  if (state.kind === 'out') return <LogInPage problem={state.problem} />
  const { value: problem } = entryProblem
  return (
    <OperatorShell>
      {problem !== null && <ProblemNote problem={problem} close={() => (entryProblem.value = null)} />}
      {pageAt(address.value.path)}
    </OperatorShell>
  )
}

function pageAt(path: string): ComponentChildren {
  for (const [pattern, page] of ROUTES) {
    const parts = matchPath(pattern, path)
    const found = parts === null ? null : page(...parts)
    if (found !== null) return found
  }
  return (
    <Page title="Page not found">
      <Empty title={`No page at ${path}`}>
        <Link href="/">Go to the overview</Link>
      </Empty>
    </Page>
  )
}

function Starting() {
  return (
    <main id="main" class="alone">
      <Waiting what="the console" />
    </main>
  )
}

/** Loaded on demand, because operators do not need it. */
function TenantSide() {
  const side = useSignal<ComponentType | null>(null)
  const problem = useSignal<RequestProblem | null>(null)
  const load = () => {
    problem.value = null
    import('./tenant/tenant.tsx').then(
      ({ Tenant }) => {
        side.value = Tenant
      },
      error => {
        problem.value = problemFrom(error)
      },
    )
  }
  useEffect(load, [])
  const { value: Side } = side
  if (Side !== null) return <Side />
  if (problem.value === null) return <Starting />
  return (
    <main id="main" class="alone">
      <ProblemNote problem={problem.value} retry={load} />
    </main>
  )
}
