// Light or dark: the system's choice, unless the person chose. Effects: the page's root element, local storage.

import { signal } from '@preact/signals'

export const THEMES = ['system', 'light', 'dark'] as const
export type Theme = (typeof THEMES)[number]

const storageName = 'strongroom-theme'

export const theme = signal<Theme>('system')

/** Applies the stored choice. Call it once, before the first drawing. */
export function applyStoredTheme(): void {
  const stored = THEMES.find(name => name === localStorage.getItem(storageName))
  chooseTheme(stored ?? 'system')
}

export function chooseTheme(chosen: Theme): void {
  theme.value = chosen
  if (chosen === 'system') {
    document.documentElement.removeAttribute('data-theme')
    localStorage.removeItem(storageName)
  } else {
    document.documentElement.setAttribute('data-theme', chosen)
    localStorage.setItem(storageName, chosen)
  }
}
