// The tenant's keys: in the page's memory, or on request in the tab's storage. Never in a cookie. Effects: session
// storage.

import { computed, signal } from '@preact/signals'
import { forgetDocuments } from '../core/loaded.ts'

/** `ca`: the organization's key, for instances and builds. `gw`: the gateway key, for models. */
export type TenantKeys = { readonly ca: string | null; readonly gw: string | null }

const storageName = 'strongroom-keys'
const forms = { ca: /^ca_[a-z0-9]{8}_[a-z0-9]{18}$/, gw: /^gw_[a-z0-9]{8}_[a-z0-9]{32}$/ } as const

export const tenantKeys = signal<TenantKeys>(storedKeys())
export const hasKey = computed(() => tenantKeys.value.ca !== null || tenantKeys.value.gw !== null)

/** Returns the kind of a key by its form; null if it is not a key. */
export function kindOfKey(text: string): keyof TenantKeys | null {
  if (forms.ca.test(text)) return 'ca'
  return forms.gw.test(text) ? 'gw' : null
}

/** Stores a key; false if it is not one. `keep`: store it in the tab, so that it survives reloads. */
export function takeKey(text: string, keep: boolean): boolean {
  const kind = kindOfKey(text)
  if (kind === null) return false
  forgetDocuments()
  tenantKeys.value = { ...tenantKeys.value, [kind]: text }
  if (keep) sessionStorage.setItem(storageName, JSON.stringify(tenantKeys.value))
  return true
}

export function dropKeys(): void {
  sessionStorage.removeItem(storageName)
  forgetDocuments()
  tenantKeys.value = { ca: null, gw: null }
}

function storedKeys(): TenantKeys {
  try {
    const stored: unknown = JSON.parse(sessionStorage.getItem(storageName) ?? 'null')
    const at = (kind: keyof TenantKeys) => {
      const text: unknown = Reflect.get(Object(stored), kind)
      return typeof text === 'string' && kindOfKey(text) === kind ? text : null
    }
    return { ca: at('ca'), gw: at('gw') }
  } catch {
    return { ca: null, gw: null }
  }
}

/** Returns the part of a key that identifies it and is not secret. */
export function shownKey(key: string): string {
  return `${key.slice(0, 11)}_…`
}
