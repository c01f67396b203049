// The tenant's side: requests a key, then shows instances, models and builds.

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { matchPath } from '../core/path.ts'
import { address } from '../core/router.ts'
import { TextField, Tick } from '../parts/field.tsx'
import { Frame } from '../parts/frame.tsx'
import { Empty, Note, Page } from '../parts/page.tsx'
import { Foreign, Instant, Link } from '../parts/text.tsx'
import { ThemeChoice } from '../parts/theme-choice.tsx'
import { BuildPage } from './builds/build.tsx'
import { BuildsPage } from './builds/builds.tsx'
import { InstancePage } from './instances/instance.tsx'
import { InstancesPage } from './instances/instances.tsx'
import { dropKeys, hasKey, shownKey, takeKey, tenantKeys } from './keys.ts'
import { ModelsPage } from './models/models.tsx'
import { useMaintenance } from './services.ts'

const PAGES = [
  ['/tenant', 'Instances'],
  ['/tenant/models', 'Models and usage'],
  ['/tenant/builds', 'Builds'],
] as const

export function Tenant() {
  return hasKey.value ? <TenantShell>{pageAt(address.value.path)}</TenantShell> : <KeyPage />
}

function pageAt(path: string): ComponentChildren {
  const instance = matchPath('/tenant/instances/:name', path)
  if (instance !== null) return needs('ca', <InstancePage key={instance[0]} name={instance[0] ?? ''} />)
  const build = matchPath('/tenant/builds/:id', path)
  if (build !== null) return needs('ca', <BuildPage key={build[0]} id={build[0] ?? ''} />)
  if (path === '/tenant') return tenantKeys.value.ca === null ? <ModelsPage /> : <InstancesPage />
  if (path === '/tenant/models') return needs('gw', <ModelsPage />)
  if (path === '/tenant/builds') return needs('ca', <BuildsPage />)
  return (
    <Page title="Page not found">
      <Empty title={`No page at ${path}`}>
        <Link href="/tenant">Go to your instances</Link>
      </Empty>
    </Page>
  )
}

function needs(kind: 'ca' | 'gw', page: ComponentChildren): ComponentChildren {
  if (tenantKeys.value[kind] !== null) return page
  const words = kind === 'ca' ? 'an API key of your organization (ca_…)' : 'a gateway key (gw_…)'
  return (
    <Page title="Another key required">
      <p>This page needs {words}.</p>
      <KeyForm />
    </Page>
  )
}

function TenantShell({ children }: { children: ComponentChildren }) {
  const { path } = address.value
  const { ca, gw } = tenantKeys.value
  const here = (href: string) =>
    href === '/tenant' ? path === href || path.startsWith('/tenant/instances/') : path.startsWith(href)
  const pages = PAGES.map(([href, words]) => ({ href, words, isHere: here(href) }))
  const keys = (
    <div class="held-keys">
      {[ca, gw].map(key => key !== null && <code key={key}>{shownKey(key)}</code>)}
      <button type="button" onClick={dropKeys}>
        Sign out
      </button>
    </div>
  )
  return (
    <Frame home="/tenant" pages={pages} foot={keys}>
      <MaintenanceNote />
      {children}
    </Frame>
  )
}

function MaintenanceNote() {
  const notice = useMaintenance()
  if (notice === null) return null
  const { until, message } = notice
  return (
    <div class="maintenance">
      <Note tone="warn">
        <p>
          This appliance is in maintenance and accepts no new instances and builds
          {until !== null && (
            <>
              {' '}
              until about <Instant at={until} />
            </>
          )}
          . What runs keeps running.
        </p>
        {message !== '' && (
          <p>
            Message of the operator: <Foreign text={message} />
          </p>
        )}
      </Note>
    </div>
  )
}

function KeyPage() {
  return (
    <main id="main" class="alone">
      <div class="log-in">
        <p class="brand">
          <span class="brand-mark" aria-hidden="true" />
          Strongroom
        </p>
        <h1>Your instances, models and builds</h1>
        <KeyForm />
        <p class="muted">
          Do you run this appliance? <Link href="/">Sign in as an operator</Link>.
        </p>
        <ThemeChoice />
      </div>
    </main>
  )
}

function KeyForm() {
  const text = useSignal('')
  const keep = useSignal(false)
  const isWrong = useSignal(false)
  const take = (event: Event) => {
    event.preventDefault()
    isWrong.value = !takeKey(text.value.trim(), keep.value)
    if (!isWrong.value) text.value = ''
  }
  return (
    <form class="dialog-form" onSubmit={take}>
      <TextField
        label="Key"
        type="password"
        value={text.value}
        change={value => (text.value = value)}
        hint="ca_… for instances and builds, gw_… for models. This page sends it only to this appliance, whose host can read it. Do not enter a key that you created yourself."
        required
      />
      <Tick
        label="Remember until this tab closes"
        value={keep.value}
        change={value => (keep.value = value)}
        hint="Otherwise you enter it again after a reload."
      />
      {isWrong.value && (
        <Note tone="bad">
          <p>This is not a key. A key looks like ca_PREFIX_SECRET or gw_PREFIX_SECRET.</p>
        </Note>
      )}
      <button type="submit" class="primary">
        Continue
      </button>
    </form>
  )
}
