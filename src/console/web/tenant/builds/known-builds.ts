// Builds that this tab has submitted, including details that the API does not return; it lists no builds. Effects:
// session storage.

import { signal } from '@preact/signals'
import type { KnownBuild } from './known-build.ts'

const storageName = 'strongroom-builds'
const keptMax = 50

export const knownBuilds = signal<readonly KnownBuild[]>(stored())

export function remember(build: KnownBuild): void {
  knownBuilds.value = [build, ...knownBuilds.value.filter(({ id }) => id !== build.id)].slice(0, keptMax)
  sessionStorage.setItem(storageName, JSON.stringify(knownBuilds.value))
}

export function knownBuild(id: string): KnownBuild | null {
  return knownBuilds.value.find(build => build.id === id) ?? null
}

function stored(): KnownBuild[] {
  try {
    const found: unknown = JSON.parse(sessionStorage.getItem(storageName) ?? '[]')
    return Array.isArray(found) ? found.filter(isKnown).slice(0, keptMax) : []
  } catch {
    return []
  }
}

/** Reports whether this page, in this or an earlier version, wrote the value. */
function isKnown(value: unknown): value is KnownBuild {
  const field = (name: string): unknown => Reflect.get(Object(value), name)
  return typeof field('id') === 'string' && typeof field('nonce') === 'string' && typeof field('source') === 'object'
}
