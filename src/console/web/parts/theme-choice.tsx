// Chooses light or dark.

import { chooseTheme, THEMES, theme } from '../core/theme.ts'
import { Choice } from './field.tsx'

const WORDS = { system: 'System', light: 'Light', dark: 'Dark' } as const

export function ThemeChoice() {
  return (
    <Choice
      label="Theme"
      isCompact
      value={theme.value}
      change={chooseTheme}
      options={THEMES.map(name => [name, WORDS[name]] as const)}
    />
  )
}
