// The frame of every page, for operators and tenants: name, menu of pages, and the menu's footer.

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { Link } from './text.tsx'
import { ThemeChoice } from './theme-choice.tsx'

type FrameProps = {
  /** Path of the first page. */
  readonly home: string
  readonly pages: readonly { readonly href: string; readonly words: string; readonly isHere: boolean }[]
  /** Shown next to the name. */
  readonly mark?: ComponentChildren
  readonly foot: ComponentChildren
  readonly children: ComponentChildren
}

export function Frame({ home, pages, mark, foot, children }: FrameProps) {
  const isOpen = useSignal(false)
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to content
      </a>
      <header class="top">
        <Link href={home} class="brand">
          <span class="brand-mark" aria-hidden="true" />
          Strongroom
        </Link>
        {mark}
        <button
          type="button"
          class="menu-button"
          aria-expanded={isOpen.value}
          aria-controls="menu"
          onClick={() => (isOpen.value = !isOpen.value)}
        >
          Menu
        </button>
      </header>
      <nav id="menu" class={isOpen.value ? 'side open' : 'side'} aria-label="Pages">
        {/* biome-ignore lint/a11y/useKeyWithClickEvents: the links in it are what is clicked, by keyboard too */}
        <ul onClick={() => (isOpen.value = false)}>
          {pages.map(({ href, words, isHere }) => (
            <li key={href}>
              <Link href={href} current={isHere}>
                {words}
              </Link>
            </li>
          ))}
        </ul>
        <div class="side-foot">
          {foot}
          <ThemeChoice />
        </div>
      </nav>
      {children}
    </div>
  )
}
